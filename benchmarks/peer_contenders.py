"""The peers of the step-rate benchmark, on the workloads of `peer_workloads.py`; no TensorFlow."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks import contenders, settings
from benchmarks.contenders import CellJob, Contender, PsTrainer, StockScript
from benchmarks.peer_workloads import PEER_WORKLOADS
from benchmarks.peers import install

BARE_OPS, BARE_OPS_LOOP, BARE_OPS_COLOCATED = "bare_ops", "bare_ops_loop", "bare_ops_colocated"
RAW_SOCKET = "raw_socket"
# A bound for ps_trainer, not a system to train with.
LIMITS = (BARE_OPS, BARE_OPS_LOOP, BARE_OPS_COLOCATED, RAW_SOCKET)
# As many as a call of `async` holds at most. A test compares both.
LOOP_STEPS = 50
_RULES = ("async", "sync", "all_reduce")


class Variant(NamedTuple):
    """The settings in which a contender differs from `async`.

    Attributes:
        flags: Further flags of the workers.
        is_colocated: Whether the workers hold the parameters.
    """

    flags: Sequence[str] = ()
    is_colocated: bool = False


_16_BIT = ("--pull_dtype=bfloat16", "--gradient_transform=cast:dtype=bfloat16")
VARIANTS: Mapping[str, Variant] = {
    "async_one_step": Variant(["--steps_per_call=1"]),
    "async_16bit": Variant(_16_BIT),
    "colocated": Variant(is_colocated=True),
    "colocated_16bit": Variant(_16_BIT, is_colocated=True),
}
OWN = (*_RULES, *VARIANTS)

_PADDLE_WORKLOADS = ("deep", "wide", "mlp", "scalar")


class Module(Contender):
    """A peer whose task is `python -m benchmarks.peers.MODULE`.

    Args:
        name: Name in the results.
        module: Name of the module.
        environment: Peer of `install` whose environment runs it; empty = this program's own.
        has_ps: Whether there are ps tasks; otherwise the workers find each other by the first worker's port.
        is_colocated: Whether the workers hold the parameters in place of ps tasks.
        flags: Further flags.
        workloads: The workloads that it trains.
    """

    def __init__(
        self,
        name: str,
        module: str,
        environment: str = "",
        *,
        has_ps: bool = True,
        is_colocated: bool = False,
        flags: Sequence[str] = (),
        workloads: Sequence[str] = tuple(PEER_WORKLOADS),
    ):
        self.name = name
        self.has_ps = has_ps and not is_colocated
        self._knows_hosts = has_ps
        self.workloads = workloads
        # PyTorch's sparse gradients sometimes end a worker by SIGABRT in malloc.
        self.attempts = 2 if environment else 1
        self._module = module
        self._environment = environment
        self._flags = flags

    @property
    def missing(self) -> str:
        """The action that is needed before it can run; empty if it can."""
        if not self._environment or install.python(self._environment).exists():
            return ""
        return f"python -m benchmarks.peers.install {self._environment}"

    def ps_command(self, job: CellJob, task_index: int) -> list[str]:
        return self._command(job, "ps", task_index)

    def worker_command(self, job: CellJob, task_index: int) -> list[str]:
        command = self._command(job, "worker", task_index)
        return [*command, f"--steps={contenders.ENDLESS_STEPS}", f"--report_file={self.report_path(job, task_index)}"]

    def report_path(self, job: CellJob, task_index: int) -> pathlib.Path:
        return job.folder / f"worker-{task_index}.jsonl"

    def _command(self, job: CellJob, job_name: str, task_index: int) -> list[str]:
        python = str(install.python(self._environment)) if self._environment else sys.executable
        command = [python, "-m", f"benchmarks.peers.{self._module}", f"--workload={job.cell.workload}", *self._flags]
        if self._knows_hosts:
            hosts = job.cluster_flags if self.has_ps else [job.worker_flag]
            return [*command, *hosts, f"--job_name={job_name}", f"--task_index={task_index}"]
        port = job.worker_hosts[0].rpartition(":")[2]
        return [*command, f"--rank={task_index}", f"--world_size={job.cell.num_workers}", f"--port={port}"]


class RawSocket(Module):
    """The bytes of a step through plain sockets."""

    def _command(self, job: CellJob, job_name: str, task_index: int) -> list[str]:
        workload = PEER_WORKLOADS[job.cell.workload]
        port = job.ps_hosts[0].rpartition(":")[2]
        return [
            sys.executable,
            "-m",
            "benchmarks.peers.raw_socket",
            f"--job_name={job_name}",
            f"--port={port}",
            f"--pull_bytes={workload.pull_bytes}",
            f"--push_bytes={workload.push_bytes}",
        ]


PEER_CONTENDERS: Mapping[str, Contender] = {
    **{rule: PsTrainer("packed", rule) for rule in _RULES},
    **{
        name: PsTrainer("packed", "async", name=name, flags=variant.flags, is_colocated=variant.is_colocated)
        for name, variant in VARIANTS.items()
    },
    "stock": StockScript("stock"),
    "torch_ddp": Module("torch_ddp", "torch_peer", "torch", has_ps=False, flags=("--framework=ddp",)),
    "horovod": Module("horovod", "torch_peer", "horovod", has_ps=False, flags=("--framework=horovod",)),
    "paddle_ps": Module("paddle_ps", "paddle_peer", "paddle", workloads=_PADDLE_WORKLOADS),
    BARE_OPS: Module(BARE_OPS, "bare_ops"),
    BARE_OPS_LOOP: Module(BARE_OPS_LOOP, "bare_ops", flags=(f"--steps_per_call={LOOP_STEPS}",)),
    BARE_OPS_COLOCATED: Module(BARE_OPS_COLOCATED, "bare_ops", is_colocated=True),
    RAW_SOCKET: RawSocket(RAW_SOCKET, "raw_socket"),
}
DEFAULT = ("async", "sync", "stock", "torch_ddp", "horovod", "paddle_ps", BARE_OPS, BARE_OPS_LOOP, RAW_SOCKET)


def of_workload(workload: str, names: Sequence[str]) -> dict[str, Contender]:
    """Returns the contenders, by name, that train a workload; some rules cannot train its table."""
    found = {}
    for name in names:
        contender = PEER_CONTENDERS[name]
        if isinstance(contender, Module) and workload not in contender.workloads:
            continue
        if name in settings.WITHOUT_TABLES and contenders.has_table(workload):
            continue
        found[name] = contender
    return found


def left_out(workloads: Sequence[str], names: Sequence[str]) -> list[str]:
    """Returns the contenders and workloads that `of_workload` leaves out, such as "paddle_ps on table"."""
    trained = {workload: of_workload(workload, names) for workload in workloads}
    return [f"{name} on {workload}" for name in names for workload in workloads if name not in trained[workload]]


def missing(names: Sequence[str]) -> list[str]:
    """Returns the commands that install what the contenders need."""
    modules = [PEER_CONTENDERS[name] for name in names]
    return sorted({module.missing for module in modules if isinstance(module, Module) and module.missing})

"""The contenders of the step-rate benchmark, their tasks' commands, and the numbers they share; no TensorFlow."""

from __future__ import annotations

import abc
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import settings
from benchmarks.peer_workloads import LEARNING_RATE as PEER_LEARNING_RATE
from benchmarks.peer_workloads import PEER_WORKLOADS

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
REPORT_SECS = 1

ENDLESS_STEPS = 10**9  # the benchmark ends a run when its window is over
# The stock script makes no checkpoints, so this project makes none within the measured window.
NEVER_SECS = 10**6

BATCH_SIZE = 32
# Small enough that thousands of steps on one batch do not explode, whatever the staleness.
LEARNING_RATE = 0.001


class WorkloadSize(NamedTuple):
    """Size of a workload's model: `num_layers` dense layers of `width` x `width` with bias."""

    num_layers: int
    width: int


DEEP = WorkloadSize(num_layers=40, width=64)  # 80 variables, 0.67 MB
WIDE = WorkloadSize(num_layers=4, width=512)  # 8 variables, 4.2 MB

SIZES = {"deep": DEEP, "wide": WIDE}

# For update rules that train no model without an embedding table: `deep` with one.
TABLE_WORKLOAD = "deep_table"
RULE_SIZES = {**SIZES, TABLE_WORKLOAD: DEEP}


def has_table(workload: str) -> bool:
    """Returns whether the model of a workload has an embedding table.

    Args:
        workload: Key of `RULE_SIZES` or of `PEER_WORKLOADS`.
    """
    return workload == TABLE_WORKLOAD or (workload in PEER_WORKLOADS and bool(PEER_WORKLOADS[workload].row_sizes))


def training_settings(workload: str) -> dict[str, Any]:
    """Returns the fields of `TrainConfig` by which ps_trainer trains a workload.

    Args:
        workload: Key of `RULE_SIZES`.
    """
    return {
        "model": f"benchmarks.workloads:{workload.title().replace('_', '')}",
        "dataset": "benchmarks.workloads:RandomInput",
        "dataset_option": (f"width={RULE_SIZES[workload].width}",),
        "batch_size": BATCH_SIZE,
        "optimizer": "sgd",
        "learning_rate": LEARNING_RATE,
    }


def peer_settings(workload: str) -> dict[str, Any]:
    """Returns the same fields for a workload on which peers run as well: all of them start from the same values."""
    return {
        "model": "benchmarks.peer_models:PeerModel",
        "model_option": (f"workload={workload}",),
        "dataset": "benchmarks.peer_models:PeerInput",
        "dataset_option": (f"workload={workload}",),
        "batch_size": PEER_WORKLOADS[workload].batch_size,
        "optimizer": "sgd",
        "learning_rate": PEER_LEARNING_RATE,
    }


# Classes of the hand-written script: TensorFlow's, `ps_trainer.tf1`'s, or `ps_trainer.tf1`'s with packed variables.
CLASSES = ("stock", "drop_in", "drop_in_packed")

MODES = ("async", "sync")
RULES_MODE = "rules"  # the contenders are update rules
PEERS_MODE = "peers"  # the contenders are update rules and other systems


class Cell(NamedTuple):
    """One line of the comparison: what every contender runs.

    Attributes:
        workload: Key of `RULE_SIZES`.
        mode: "async", "sync", or "rules" where each contender has its own update rule.
        num_ps: Number of ps tasks.
        num_workers: Number of worker tasks.
    """

    workload: str
    mode: str
    num_ps: int
    num_workers: int


class CellJob(NamedTuple):
    """One run of a cell: the addresses of its tasks, and their folder."""

    cell: Cell
    ps_hosts: tuple[str, ...]
    worker_hosts: tuple[str, ...]
    folder: pathlib.Path

    @property
    def cluster_flags(self) -> list[str]:
        """`--ps_hosts` and `--worker_hosts`."""
        return [f"--ps_hosts={','.join(self.ps_hosts)}", self.worker_flag]

    @property
    def worker_flag(self) -> str:
        """`--worker_hosts`."""
        return f"--worker_hosts={','.join(self.worker_hosts)}"


class Contender(abc.ABC):
    """A program that can run a cell.

    Attributes:
        name: Name in the results.
        is_chief_first: Whether the other workers must start after the chief's first step.
        has_ps: Whether it has ps tasks.
        modes: Modes of the cells in which it takes part.
        environ: Environment variables of its tasks.
        attempts: Runs after which a failure counts: more than 1 for systems that may crash by a fault of their own.
    """

    name: str
    is_chief_first = False
    has_ps = True
    attempts = 1
    modes: Sequence[str] = MODES
    environ: Mapping[str, str] = {}

    @abc.abstractmethod
    def ps_command(self, job: CellJob, task_index: int) -> list[str]:
        """Returns the command of a ps task, run in the repository's root."""

    @abc.abstractmethod
    def worker_command(self, job: CellJob, task_index: int) -> list[str]:
        """Returns the command of a worker task."""

    @abc.abstractmethod
    def report_path(self, job: CellJob, task_index: int) -> pathlib.Path:
        """Returns the file to which a worker appends JSON lines with "kind", "wall_time" and "local_step"."""


class StockScript(Contender):
    """The hand-written script, `benchmarks.peers.stock_tf1`.

    Args:
        classes: One of `CLASSES`, and name in the results.
    """

    def __init__(self, classes: str):
        self.name = classes
        # With TensorFlow's classes, a worker that finds the variables not yet initialised sleeps 30 s.
        self.is_chief_first = classes == CLASSES[0]

    def ps_command(self, job: CellJob, task_index: int) -> list[str]:
        return self._command(job, "ps", task_index)

    def worker_command(self, job: CellJob, task_index: int) -> list[str]:
        command = self._command(job, "worker", task_index)
        command += [
            f"--workload={job.cell.workload}",
            f"--steps={ENDLESS_STEPS}",
            f"--report_file={self.report_path(job, task_index)}",
        ]
        command += ["--peers"] if job.cell.mode == PEERS_MODE else []
        return [*command, "--sync"] if job.cell.mode == "sync" else command

    def report_path(self, job: CellJob, task_index: int) -> pathlib.Path:
        return job.folder / f"worker-{task_index}.jsonl"

    def _command(self, job: CellJob, job_name: str, task_index: int) -> list[str]:
        task_flags = [f"--job_name={job_name}", f"--task_index={task_index}"]
        program = [sys.executable, "-m", "benchmarks.peers.stock_tf1", f"--classes={self.name}"]
        return [*program, *job.cluster_flags, *task_flags]


class PsTrainer(Contender):
    """`run_ps.py` and `run_worker.py` of this project.

    Args:
        layout: Value of `--layout`.
        rule: Value of `--update`, and name in the results; None = the cell's mode, and the layout's name.
        options: Values of `--update_option`.
        modes: Modes of the cells in which it takes part.
        name: Name in the results, in place of the rule's or the layout's.
        flags: Further flags of the workers.
        is_colocated: Whether the workers hold the parameters; then there are no ps tasks.
    """

    def __init__(
        self,
        layout: str,
        rule: str | None = None,
        options: Sequence[str] = (),
        modes: Sequence[str] = MODES,
        *,
        name: str = "",
        flags: Sequence[str] = (),
        is_colocated: bool = False,
    ):
        self.modes = modes
        self.name = name or rule or layout
        self.has_ps = not is_colocated
        self._layout = layout
        self._rule = rule
        self._options = options
        self._flags = flags

    def ps_command(self, job: CellJob, task_index: int) -> list[str]:
        return [sys.executable, "run_ps.py", *job.cluster_flags, f"--task_index={task_index}"]

    def worker_command(self, job: CellJob, task_index: int) -> list[str]:
        return [
            sys.executable,
            "run_worker.py",
            *(job.cluster_flags if self.has_ps else [job.worker_flag, "--placement=colocated"]),
            f"--task_index={task_index}",
            *_flags((peer_settings if job.cell.mode == PEERS_MODE else training_settings)(job.cell.workload)),
            f"--update={self._rule or job.cell.mode}",
            *(f"--update_option={option}" for option in self._options),
            f"--layout={self._layout}",
            f"--max_steps={ENDLESS_STEPS}",
            f"--logdir={job.folder}",
            f"--report_secs={REPORT_SECS}",
            f"--save_checkpoint_secs={NEVER_SECS}",
            *self._flags,
        ]

    def report_path(self, job: CellJob, task_index: int) -> pathlib.Path:
        return job.folder / "metrics" / f"worker-{task_index}.jsonl"


def _flags(values: Mapping[str, Any]) -> list[str]:
    """Returns the flags of the command line for fields of `TrainConfig`; a tuple repeats its flag."""
    return [
        f"--{name}={part}"
        for name, value in values.items()
        for part in (value if isinstance(value, tuple) else [value])
    ]


STOCK = CLASSES[0]
CONTENDERS: dict[str, Contender] = {
    contender.name: contender
    for contender in (
        *map(StockScript, CLASSES),
        PsTrainer("packed"),
        PsTrainer("per_variable"),
        # The class and the placement of `stock` in "sync".
        PsTrainer("per_variable", "sync_replicas", modes=("sync",)),
    )
}

ASYNC = "async"


def rule_contenders(rules: Sequence[str], group_size: int) -> list[tuple[str, dict[str, Contender]]]:
    """Returns update rules in groups with `async` as first member, all with the layout packed.

    Groups are small, so that a rule and the `async` that it is compared with run within minutes of each other.

    Args:
        rules: Registered names that have a setting.
        group_size: Rules in a group, beside `async`.

    Returns:
        Workload and contenders of each group.
    """
    dense = [rule for rule in rules if rule != ASYNC and not settings.RULES[rule].needs_table]
    groups = [("deep", dense[start : start + group_size]) for start in range(0, len(dense), group_size)]
    if with_table := [rule for rule in rules if settings.RULES[rule].needs_table]:
        groups.append((TABLE_WORKLOAD, with_table))
    return [
        (workload, {rule: PsTrainer("packed", rule, settings.RULES[rule].options) for rule in [ASYNC, *group]})
        for workload, group in groups or [("deep", [])]
    ]

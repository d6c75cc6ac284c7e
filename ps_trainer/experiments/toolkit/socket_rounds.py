"""Rounds of gradients through plain sockets between shaped hosts: what links and TCP allow, as a control of clusters.

The tasks are processes of `socket_task.py`, in the same network namespaces as those of a cluster.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.errors import RunError
from ps_trainer.experiments.toolkit.shaped_hosts import CONGESTION_CONTROL, BytesPerSec, MeteredHosts
from ps_trainer.experiments.toolkit.statistics import without_warmup
from ps_trainer.launch.hosts import TaskHost
from ps_trainer.launch.hosts_rate import parse_rate

_MODULE = "ps_trainer.experiments.toolkit.socket_task"
_DEADLINE_SECS = 300.0
_VALUE_BYTES = 4


class SocketRounds(NamedTuple):
    """Finished rounds."""

    round_secs: float  # mean time of a round after warm-up, the mean over the workers
    traffic: Mapping[str, BytesPerSec]  # mean rates of each host after warm-up
    window: tuple[float, float]  # wall time, seconds since the epoch, of the rounds after warm-up
    num_retransmitted: int = 0  # TCP segments that all hosts have sent again, in the whole run
    num_dropped: int = 0  # packets to all hosts that found a queue full, in the whole run

    @property
    def bytes_per_round(self) -> dict[str, BytesPerSec]:
        """Bytes that each host receives and sends in a round, headers included."""
        return {host: BytesPerSec(*(rate * self.round_secs for rate in rates)) for host, rates in self.traffic.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SocketCluster:
    """Tasks on hosts with links of limited rate, which add up gradients through plain sockets."""

    num_workers: int
    num_ps: int  # 0 for a ring
    num_bytes: int  # size of a gradient
    rate: str  # rate of each host's link, each way: "100mbit"
    num_rounds: int
    num_chunks: int = 1  # chunks in which a ps task gets and sends its share
    shared: Mapping[str, str] = dataclasses.field(default_factory=dict)  # task -> the task on whose host it is
    congestion_control: str = CONGESTION_CONTROL  # of TCP on all hosts

    def run(self) -> SocketRounds:
        """Runs all rounds; leaves no process behind.

        Raises:
            OptionError: This machine cannot have shaped hosts.
            RunError: A host could not be made, a task failed, or a task was too slow.
        """
        rate = parse_rate(self.rate, "--rate")
        with MeteredHosts(rate, self.shared, congestion_control=self.congestion_control) as hosts:
            placed = hosts.place([*(f"ps-{i}" for i in range(self.num_ps)), *self._workers])
            with _processes([(placed[task], spec) for task, spec in self._specs(placed).items()]) as processes:
                outputs = [_output_of(process) for process in processes]
        ends = [json.loads(text)["ends"] for text in outputs if text]
        warm = [without_warmup(own)[0] for own in ends]
        secs = [(own[-1] - own[0]) / (len(own) - 1) for own in warm]
        window = warm[0][0], warm[0][-1]  # of one worker, so that it is whole rounds long
        traffic = hosts.between(*window)
        return SocketRounds(float(np.mean(secs)), traffic, window, hosts.num_retransmitted, hosts.num_dropped)

    @property
    def _workers(self) -> list[str]:
        return [f"worker-{i}" for i in range(self.num_workers)]

    def _specs(self, placed: Mapping[str, TaskHost]) -> dict[str, dict[str, Any]]:
        """Returns what each task is told."""
        num_values = self.num_bytes // _VALUE_BYTES
        common = {"num_workers": self.num_workers, "num_rounds": self.num_rounds}
        if not self.num_ps:
            addresses = [placed[worker].address for worker in self._workers]
            ring = {"job": "ring", "addresses": addresses, "num_values": num_values, **common}
            return {worker: {"index": i, **ring} for i, worker in enumerate(self._workers)}
        common |= {"num_values": num_values // self.num_ps, "num_chunks": self.num_chunks}
        ps_addresses = {task: placed[task].address for task in placed if task.startswith("ps-")}
        tasks = {task: {"job": "ps", "address": address, **common} for task, address in ps_addresses.items()}
        worker = {"job": "worker", "ps_addresses": list(ps_addresses.values()), **common}
        return tasks | {name: {"index": i, **worker} for i, name in enumerate(self._workers)}


@contextlib.contextmanager
def _processes(tasks: Sequence[tuple[TaskHost, Mapping[str, Any]]]) -> Iterator[list[subprocess.Popen[str]]]:
    """Starts a process for each task, and kills those that are left at the end."""
    with contextlib.ExitStack() as ended:
        processes = []
        for host, spec in tasks:
            command = [*host.prefix, sys.executable, "-m", _MODULE, json.dumps(spec)]
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            ended.enter_context(process)
            ended.callback(process.kill)
            processes.append(process)
        yield processes


def _output_of(process: subprocess.Popen[str]) -> str:
    """Returns what a task printed, after its end."""
    try:
        output, errors = process.communicate(timeout=_DEADLINE_SECS)
    except subprocess.TimeoutExpired as error:
        raise RunError(f"a task with plain sockets was not done after {_DEADLINE_SECS:g} s") from error
    if process.returncode:
        raise RunError(f"a task with plain sockets failed, exit code {process.returncode}:\n{errors.strip()}")
    return output

"""Real clusters on shaped hosts: training, and the bytes that pass each host in the meantime."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import signal
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from rich.console import Console

from ps_trainer.config import TrainConfig
from ps_trainer.errors import Interrupted, RunError
from ps_trainer.experiments.toolkit.clusters import LOGDIR_NAME, Training, flags_of, read_training
from ps_trainer.experiments.toolkit.shaped_hosts import BytesPerSec, MeteredHosts
from ps_trainer.launch import hosts_iproute, local, tail
from ps_trainer.launch.command import OUTPUT_NAME, cpu_environment, shared_server
from ps_trainer.launch.hosts_rate import parse_rate
from ps_trainer.launch.local_cluster import LocalCluster

PAYLOAD_SHARE = 1448 / 1514
"""Of the bytes of a full frame, which the links count, those that TCP carries."""

# Nothing but the steps takes time, and all processes are on the same few cores.
_SETTINGS = {
    "dataset": "ps_trainer.experiments.toolkit.sized_models:RandomIds",
    "dataset_option": ("num_ids=64",),
    "batch_size": 1,
    "learning_rate": 0.001,
    "save_checkpoint_secs": 1e5,
    "report_secs": 30.0,
    "stall_timeout_secs": 120.0,
    "intra_op_threads": 1,
    "inter_op_threads": 2,
    "step_log": True,
}
_LOG_LINES = 40
_INTERRUPTED = {128 + signum: signum for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}


class ShapedTraining(NamedTuple):
    """What a cluster on shaped hosts has done."""

    training: Training
    # mean rates of each host after warm-up; a host is named by the task that has it, or has it first
    traffic: Mapping[str, BytesPerSec]

    @property
    def round_secs(self) -> float:
        """Time in which every worker makes a step, after warm-up.

        Of workers that wait for each other that is a step's time, of others n over all steps per second.
        """
        rates = [1 / (sum(secs) / len(secs)) for secs in self.step_secs.values()]
        return len(rates) / sum(rates)

    @property
    def step_secs(self) -> dict[int, list[float]]:
        """For each worker the times from the end of a step to the end of its next, after warm-up."""
        return {
            worker: [after["t_end"] - before["t_end"] for before, after in itertools.pairwise(steps)]
            for worker, steps in self.training.by_worker().items()
        }

    @property
    def bytes_per_round(self) -> dict[str, BytesPerSec]:
        """What each host receives and sends in `round_secs`, headers included."""
        secs = self.round_secs
        return {host: BytesPerSec(*(rate * secs for rate in rates)) for host, rates in self.traffic.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShapedCluster:
    """A cluster whose tasks are on hosts with links of limited rate."""

    num_workers: int  # number of worker tasks
    num_ps: int  # number of ps tasks
    rate: str  # rate of each host's link, each way: "200mbit"
    shared: Mapping[str, str] = dataclasses.field(default_factory=dict)  # task -> the task on whose host it is
    # fields of `TrainConfig`, beside those that all such runs have in common
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def train(self, folder: pathlib.Path) -> ShapedTraining:
        """Trains to the end in a subfolder of the run's folder; leaves no process behind.

        Raises:
            RunError: The run failed, or made too few steps.
            Interrupted: A signal came.
        """
        logdir = folder.resolve() / LOGDIR_NAME
        logdir.mkdir(parents=True)
        settings = {**_SETTINGS, **self.settings}
        config = TrainConfig(**settings, logdir=str(logdir))
        config.check()
        cluster = LocalCluster(
            config=config,
            train_args=flags_of(settings),
            num_ps=self.num_ps,
            num_workers=self.num_workers,
            preload=True,
            plain=True,
        )
        hosts = MeteredHosts(parse_rate(self.rate, "--rate"), self.shared)
        started = time.monotonic()
        output = logdir / OUTPUT_NAME
        with output.open("w", encoding="utf-8") as file:
            code = local.run(
                cluster,
                server=shared_server(logdir),
                hosts=hosts,
                environ=cpu_environment(os.environ),
                console=Console(file=file),
            )
        if code in _INTERRUPTED:
            raise Interrupted(_INTERRUPTED[code])
        if code:
            lines = tail.last_lines(output, _LOG_LINES)
            raise RunError("\n".join([f"exit code {code}", f"--- the end of {output}", *lines]))
        training = read_training(logdir, time.monotonic() - started)
        return ShapedTraining(training, hosts.between(*_whole_steps(training)))


def why_not() -> str:
    """Why there can be no shaped hosts on this machine; empty where there can."""
    return hosts_iproute.probe().problem


def dense_model(num_bytes: int) -> dict[str, Any]:
    """Settings of a model of so many bytes, all of which each step pulls and pushes, with nothing to compute."""
    return {
        "model": "ps_trainer.experiments.toolkit.sized_models:Dense",
        "model_option": (f"num_values={num_bytes // 4}",),
    }


def payload_bytes_per_sec(rate: str) -> float:
    """What TCP carries over a link of a rate such as "200mbit", each way."""
    return parse_rate(rate, "--rate") / 8 * PAYLOAD_SHARE


def _whole_steps(training: Training) -> tuple[float, float]:
    """Wall time from the end of a worker's first step after warm-up to that of its last: whole rounds, pull and push.

    The window of all workers begins with the first one's pull and ends with the last one's.
    """
    steps = next(iter(training.by_worker().values()))
    if len(steps) < 2:
        raise RunError(f"worker {steps[0]['worker']} made one step after warm-up; raise max_steps")
    return steps[0]["wall_time"], steps[-1]["wall_time"]

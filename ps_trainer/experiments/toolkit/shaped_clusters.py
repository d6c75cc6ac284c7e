"""Real clusters on shaped hosts: training, and the bytes that pass each host during it."""

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
from ps_trainer.experiments.toolkit.clusters import LOGDIR_NAME, QUIET, Training, flags_of, read_training
from ps_trainer.experiments.toolkit.shaped_hosts import CONGESTION_CONTROL, BytesPerSec, MeteredHosts
from ps_trainer.launch import hosts_iproute, local, tail
from ps_trainer.launch.command import OUTPUT_NAME, cpu_environment, shared_server
from ps_trainer.launch.hosts_netns import QUEUE_SECS
from ps_trainer.launch.hosts_rate import parse_rate
from ps_trainer.launch.local_cluster import LocalClusterSpec

PAYLOAD_SHARE = 1448 / 1514
"""Share of a full frame's bytes that TCP carries as payload; the links count the whole frame."""

MOST_BYTES = 2**24
"""Largest share of a ps task, in bytes, that travels as one message."""

# Only the steps should take time, because all processes share a few cores.
_SETTINGS = {
    **QUIET,
    "dataset": "ps_trainer.experiments.toolkit.sized_models:RandomIds",
    "dataset_option": ("num_ids=64",),
    "batch_size": 1,
    "learning_rate": 0.001,
    "stall_timeout_secs": 120.0,
    "step_log": True,
    # As the papers' systems: a message each way, and every step by itself. By default, a ps task sends a piece of the
    # parameters back while it still receives the gradients of others.
    "layout_option": (f"max_piece_bytes={4 * MOST_BYTES}",),
    "steps_per_call": 1,
}
_LOG_LINES = 40
_INTERRUPTED = {128 + signum: signum for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}


class ShapedTraining(NamedTuple):
    """A finished training of a cluster on shaped hosts, with its traffic."""

    training: Training
    # mean rates of each host after warm-up; a host has the name of its task, or of its first task
    traffic: Mapping[str, BytesPerSec]
    num_retransmitted: int = 0  # TCP segments that all hosts have sent again, in the whole run
    num_dropped: int = 0  # packets to all hosts that found a queue full, in the whole run

    @property
    def round_secs(self) -> float:
        """Time in which every worker makes a step, after warm-up.

        If workers wait for each other, it is the time of a step. Otherwise, it is n over all steps per second.
        """
        rates = [1 / (sum(secs) / len(secs)) for secs in self.step_secs.values()]
        return len(rates) / sum(rates)

    @property
    def step_secs(self) -> dict[int, list[float]]:
        """Each worker's times from the end of a step to the end of its next step, after warm-up."""
        return {
            worker: [after.t_end - before.t_end for before, after in itertools.pairwise(steps)]
            for worker, steps in self.training.by_worker().items()
        }

    @property
    def bytes_per_round(self) -> dict[str, BytesPerSec]:
        """Bytes that each host receives and sends in `round_secs`, headers included."""
        secs = self.round_secs
        return {host: BytesPerSec(*(rate * secs for rate in rates)) for host, rates in self.traffic.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShapedCluster:
    """A cluster whose tasks are on hosts with links of limited rate."""

    num_workers: int  # number of worker tasks
    num_ps: int  # number of ps tasks
    rate: str  # rate of each host's link, each way: "200mbit"
    shared: Mapping[str, str] = dataclasses.field(default_factory=dict)  # task -> the task on whose host it is
    congestion_control: str = CONGESTION_CONTROL  # of TCP on all hosts
    queue_secs: float = QUEUE_SECS  # longest queue at each end of a link
    # fields of `TrainConfig`, in addition to those that all such runs share
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
        cluster = LocalClusterSpec(
            config=config,
            train_args=flags_of(settings),
            num_ps=self.num_ps,
            num_workers=self.num_workers,
            preload=True,
            plain=True,
        )
        hosts = MeteredHosts(
            parse_rate(self.rate, "--rate"),
            self.shared,
            congestion_control=self.congestion_control,
            queue_secs=self.queue_secs,
        )
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
        traffic = hosts.between(*_whole_steps(training))
        return ShapedTraining(training, traffic, hosts.num_retransmitted, hosts.num_dropped)


def why_not() -> str:
    """Returns the reason why this machine cannot have shaped hosts; empty if it can."""
    return hosts_iproute.probe().problem


def dense_model(num_bytes: int) -> dict[str, Any]:
    """Returns the settings of a model of `num_bytes` that computes nothing; each step pulls and pushes all bytes."""
    return {
        "model": "ps_trainer.experiments.toolkit.sized_models:Dense",
        "model_option": (f"num_values={num_bytes // 4}",),
    }


def payload_bytes_per_sec(rate: str) -> float:
    """Returns the bytes per second that TCP carries each way over a link of a rate such as "200mbit"."""
    return parse_rate(rate, "--rate") / 8 * PAYLOAD_SHARE


def _whole_steps(training: Training) -> tuple[float, float]:
    """Returns the wall times at which a worker's first and last steps after warm-up end, whole rounds apart.

    A window of all workers would begin with the first worker's pull and end with the last worker's.
    """
    steps = next(iter(training.by_worker().values()))
    if len(steps) < 2:
        raise RunError(f"worker {steps[0].worker} made one step after warm-up; raise max_steps")
    return steps[0].wall_time, steps[-1].wall_time

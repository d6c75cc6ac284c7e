"""Runs of the simulator for tests: scripted compute times, and short functions for a schedule or a summary."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.disturbances import delays
from ps_trainer.options import option
from ps_trainer.simulation import simulate
from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.events import Events
from ps_trainer.simulation.rules import schedule_table
from ps_trainer.simulation.schedule import Schedule, concatenate
from ps_trainer.simulation.summary import Summary, summarise
from ps_trainer.simulation.vectorised import dispatch


class Scripted(delays.Delay):
    """Given compute times in seconds, which repeat."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(delays.DelayOptions):
        """Options of the distribution."""

        secs: str = option("1", "times, with + between them")

    def blocks(self, rng: np.random.Generator, worker: int | None) -> Iterator[np.ndarray]:
        """Yields the given times, again and again."""
        times = [float(text) for text in self.options.secs.split("+")]
        position = 0
        while True:
            yield np.take(times, np.arange(position, position + delays.BLOCK), mode="wrap")
            position += delays.BLOCK


class Push(NamedTuple):
    """A step of a schedule with only its end time."""

    t_push_done: float
    worker: int
    version: int
    update: int


def script(*secs: str) -> list[str]:
    """`compute` of workers with given times, one text for each: "1+2" means 1 s, 2 s, 1 s, …"""
    return [f"{__name__}:Scripted:secs={text},worker={worker}" for worker, text in enumerate(secs)]


def cluster_of(compute: str | Sequence[str], num_workers: int, **fields: Any) -> ClusterModel:
    """A cluster with these compute times."""
    texts = [compute] if isinstance(compute, str) else compute
    return ClusterModel(num_workers=num_workers, compute=[delays.parse(text) for text in texts], **fields)


def scripted(update: str, options: Sequence[str], secs: Sequence[str], num_updates: int, **fields: Any) -> Schedule:
    """The schedule of workers with scripted times."""
    cluster = cluster_of(script(*secs), len(secs), **fields)
    return simulate.simulate(cluster, update, options, num_updates=num_updates)


def pushes_of(schedule: Schedule) -> list[Push]:
    """The steps of a schedule, times rounded to 1e-9 s."""
    steps = schedule.steps
    columns = (np.round(steps.t_push_done, 9), steps.worker, steps.version, steps.update)
    return [Push(*values) for values in zip(*(column.tolist() for column in columns), strict=True)]


def summary_of(
    compute: str | Sequence[str],
    update: str,
    options: Sequence[str] = (),
    *,
    num_workers: int,
    num_updates: int,
    **fields: Any,
) -> Summary:
    """The summary of a run."""
    cluster = cluster_of(compute, num_workers, **fields)
    blocks = simulate.stream(cluster, update, options, num_updates=num_updates)
    return summarise(blocks, num_workers, num_updates)


def by_events(cluster: ClusterModel, update: str, options: Sequence[str], num_updates: int) -> Schedule:
    """The schedule from `Events`, for any number of workers."""
    whole = concatenate(Events(cluster, schedule_table.create(update, options, cluster)).run(num_updates))
    return Schedule(cluster.num_workers, whole.steps, whole.update_secs)


def by_numpy(cluster: ClusterModel, update: str, options: Sequence[str], num_updates: int) -> Schedule:
    """The schedule from `vectorised`, for any number of workers."""
    whole = concatenate(dispatch.run(cluster, schedule_table.create(update, options, cluster), num_updates))
    return Schedule(cluster.num_workers, whole.steps, whole.update_secs)

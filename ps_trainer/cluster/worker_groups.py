"""`WorkerGroup`: the workers that compute one model together, each worker one stage.

Of n workers and a model of s stages the first n / s train: each reads data, runs the steps, and computes stage 0.
Worker k · n / s + i computes stage k for worker i. With one stage every worker trains.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.errors import OptionError


class WorkerGroup(NamedTuple):
    """The group of one worker task.

    Attributes:
        cluster: Cluster of the workers that train, without the workers that compute stages for them. Worker indices are
            the same as in the whole cluster, and the number of workers is the number of groups. None for a task that
            does not train.
        stage: Stage that this task computes.
        members: Worker index of each stage's worker; the first worker trains.
        devices: Device of each member.
        addresses: "host:port" of each member.
        names: Name of each member in messages.
    """

    cluster: ClusterConfig | None
    stage: int
    members: tuple[int, ...]
    devices: tuple[str, ...]
    addresses: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def trainers(self) -> ClusterConfig:
        """The cluster of a task that trains.

        Raises:
            ValueError: This task computes a later stage for another worker, and does not train.
        """
        if self.cluster is None:
            raise ValueError(f"this task computes stage {self.stage} for {self.names[0]}, and does not train itself")
        return self.cluster


def group_of(cluster: ClusterConfig, num_stages: int) -> WorkerGroup:
    """Returns the group of this task, which is a worker or the chief.

    Raises:
        OptionError: The number of workers is not a multiple of the number of stages.
    """
    groups = members_of_groups(cluster.num_workers, num_stages)
    stage, first = divmod(cluster.worker_index, len(groups))
    members = groups[first]
    tasks = [cluster.worker_tasks[member] for member in members]
    return WorkerGroup(
        cluster=_first_workers(cluster, len(groups)) if stage == 0 else None,
        stage=stage,
        members=members,
        devices=tuple(cluster.worker_devices[member] for member in members),
        addresses=tuple(cluster.jobs[job][index] for job, index in tasks),
        names=tuple(f"{job}-{index}" for job, index in tasks),
    )


def members_of_groups(num_workers: int, num_stages: int) -> list[tuple[int, ...]]:
    """Returns the worker indices of each group, ordered by stage; raises OptionError if workers would be left over."""
    num_groups = count_groups(num_workers, num_stages)
    # The workers that train come first, so that their indices stay the same without the stage workers.
    return [tuple(range(first, num_workers, num_groups)) for first in range(num_groups)]


def count_groups(num_workers: int, num_stages: int) -> int:
    """Returns the number of groups; raises OptionError if workers would be left over."""
    if num_workers % num_stages:
        fitting = num_workers - num_workers % num_stages
        start = f"start {fitting} or {fitting + num_stages}" if fitting else f"start {num_stages}"
        raise OptionError(
            f"--placement=model_parallel: num_workers={num_workers} is not a multiple of the model's {num_stages}"
            f" stages, and each stage needs a worker; {start} workers, or use --placement=data_parallel"
        )
    return num_workers // num_stages


def _first_workers(cluster: ClusterConfig, count: int) -> ClusterConfig:
    tasks = cluster.worker_tasks[:count]
    counts = {job: sum(task[0] == job for task in tasks) for job in cluster.jobs} | {"ps": cluster.num_ps}
    kept = {job: hosts[: counts[job]] for job, hosts in cluster.jobs.items()}
    return dataclasses.replace(cluster, jobs={job: hosts for job, hosts in kept.items() if hosts or job == "ps"})

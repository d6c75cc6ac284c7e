"""`ClusterConfig`: which tasks a job has, where they are, and which of them this process is.

Whatever describes the cluster (see `ps_trainer.cluster.sources`), the result is one `ClusterConfig`, checked
in full before anything is started.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ps_trainer.cluster import addresses
from ps_trainer.errors import ClusterConfigError

JOB_NAMES = ("ps", "worker", "chief", "evaluator")
FLAGS = "flags"

_SERVED_JOBS = ("ps", "chief", "worker")
_ALIASES = {"master": "chief"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """The cluster, and this process's place in it.

    The constructor normalises `jobs` and `job_name` ("master" becomes "chief", an evaluator's addresses are
    left out, since no other task talks to it) and checks everything.

    Attributes:
        jobs: job name -> `host:port` of each task. "ps" always; "worker", "chief" or both.
        job_name: this task's job: one of `JOB_NAMES`.
        task_index: this task's index in its job.
        source: where the description came from, for messages; two configurations may be equal that differ in it.

    Raises:
        ClusterConfigError: the description is wrong; the message names the field and the fix.
    """

    jobs: Mapping[str, tuple[str, ...]]
    job_name: str
    task_index: int
    source: str = dataclasses.field(default="ClusterConfig", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "jobs", normalise_jobs(self.jobs, self.source))
        object.__setattr__(self, "job_name", normalise_job_name(self.job_name, self.source))
        check_task(self.jobs, self.job_name, self.task_index, self.source)

    @property
    def num_ps(self) -> int:
        """Number of ps tasks."""
        return len(self.jobs["ps"])

    @property
    def num_workers(self) -> int:
        """Number of tasks that train: the chief, if it has a job of its own, and the workers."""
        return len(self.worker_tasks)

    @property
    def worker_tasks(self) -> tuple[tuple[str, int], ...]:
        """(job, index) of each task that trains, the chief's job first; positions are worker indices."""
        return tuple((job, index) for job in ("chief", "worker") for index in range(len(self.jobs.get(job, ()))))

    @property
    def is_chief(self) -> bool:
        """Whether this task initialises and saves: the chief job, or worker 0 where there is none."""
        return (self.job_name, self.task_index) == self.worker_tasks[0]

    @property
    def worker_index(self) -> int:
        """This task's number among those that train, 0..num_workers-1, the chief first.

        Raises:
            ValueError: this task is a ps or an evaluator.
        """
        task = (self.job_name, self.task_index)
        if task not in self.worker_tasks:
            raise ValueError(f"{self.task_name} does not train, so it has no worker index")
        return self.worker_tasks.index(task)

    @property
    def ps_addresses(self) -> tuple[str, ...]:
        """`host:port` of each ps task."""
        return self.jobs["ps"]

    @property
    def own_address(self) -> str:
        """`host:port` of this task.

        Raises:
            ValueError: this task is an evaluator, which serves nothing and has no address.
        """
        if self.job_name == "evaluator":
            raise ValueError(f"{self.task_name} serves nothing, so it has no address")
        return self.jobs[self.job_name][self.task_index]

    @property
    def own_port(self) -> int:
        """Port of `own_address`; ValueError as there."""
        return addresses.split_address(self.own_address, self.task_name)[1]

    @property
    def peer_ports(self) -> tuple[int, ...]:
        """Ports of all other tasks; several hosts may have the same one."""
        tasks = [(job, index, address) for job, hosts in self.jobs.items() for index, address in enumerate(hosts)]
        others = [task for task in tasks if task[:2] != (self.job_name, self.task_index)]
        return tuple(addresses.split_address(address, f"{job}-{index}")[1] for job, index, address in others)

    @property
    def task_name(self) -> str:
        """This task's name in messages and file names: "worker-1"."""
        return f"{self.job_name}-{self.task_index}"

    @property
    def device(self) -> str:
        """This task's device prefix, "/job:worker/task:1"; empty for an evaluator, which is in no cluster."""
        return "" if self.job_name == "evaluator" else f"/job:{self.job_name}/task:{self.task_index}"

    def as_dict(self) -> dict[str, list[str]]:
        """The jobs in the form that `tf.train.ClusterSpec` takes."""
        return {job: list(hosts) for job, hosts in self.jobs.items()}


def field_name(source: str, job: str) -> str:
    """How a user calls the address list of `job` in `source`: "--ps_hosts", "TF_CONFIG cluster.ps"."""
    return f"--{job}_hosts" if source == FLAGS else f"{source} cluster.{job}"


def task_field_name(source: str, field: str) -> str:
    """How a user calls "type" or "index" of a task in `source`: "--task_index", "TF_CONFIG task.index"."""
    return {"type": "--job_name", "index": "--task_index"}[field] if source == FLAGS else f"{source} task.{field}"


def normalise_job_name(job_name: Any, source: str) -> str:
    """`job_name` with "master" written "chief".

    Raises:
        ClusterConfigError: not one of `JOB_NAMES`.
    """
    name = _ALIASES.get(job_name, job_name) if isinstance(job_name, str) else job_name
    if name not in JOB_NAMES:
        raise ClusterConfigError(
            f"{task_field_name(source, 'type')}={job_name!r}: unknown job; allowed are {', '.join(JOB_NAMES)}"
        )
    return name


def normalise_jobs(jobs: Mapping[str, Any], source: str) -> dict[str, tuple[str, ...]]:
    """The tasks that serve (ps, chief, worker, in this order), checked, as tuples of `host:port`.

    Raises:
        ClusterConfigError: an unknown job, a list that is missing, empty or malformed, a bad address, or
            the same address twice.
    """
    if not isinstance(jobs, Mapping):
        raise ClusterConfigError(f"{source} cluster: got {jobs!r}; write job names with a list of host:port for each")
    given: dict[str, tuple[str, ...]] = {}
    seen: dict[tuple[str, int], str] = {}
    for name, hosts in jobs.items():
        job = _ALIASES.get(name, name)
        if job not in JOB_NAMES:
            raise ClusterConfigError(
                f"{field_name(source, name)}: unknown job {name!r}; allowed are {', '.join(JOB_NAMES)} (or master)"
            )
        if job == "evaluator":
            continue
        if job in given:
            raise ClusterConfigError(f"{source}: both cluster.chief and cluster.master are given; keep one of them")
        given[job] = _checked_hosts(hosts, field_name(source, name), seen)
    if "ps" not in given:
        raise ClusterConfigError(f"{field_name(source, 'ps')} is missing; give the address of at least one ps task")
    if len(given.get("chief", ())) > 1:
        raise ClusterConfigError(
            f"{field_name(source, 'chief')} has {len(given['chief'])} addresses; a cluster has one chief,"
            " list the others as workers"
        )
    if not (given.get("worker") or given.get("chief")):
        raise ClusterConfigError(f"{field_name(source, 'worker')} is missing; give the address of at least one worker")
    return {job: given[job] for job in _SERVED_JOBS if job in given}


def check_task(jobs: Mapping[str, tuple[str, ...]], job_name: str, task_index: Any, source: str) -> None:
    """Checks that the normalised `jobs` have this task; an evaluator may have any index from 0.

    Raises:
        ClusterConfigError: the job is not in the cluster, or the index is not in the job.
    """
    index_field = task_field_name(source, "index")
    if isinstance(task_index, bool) or not isinstance(task_index, int):
        raise ClusterConfigError(f"{index_field}={task_index!r} is not a whole number")
    if task_index < 0:
        raise ClusterConfigError(f"{index_field}={task_index} is negative; tasks count from 0")
    if job_name == "evaluator":
        return
    if job_name not in jobs:
        raise ClusterConfigError(
            f"{task_field_name(source, 'type')}={job_name}: the cluster has no job {job_name!r}, only"
            f" {', '.join(jobs)}; add its addresses or choose one of these"
        )
    if task_index >= len(jobs[job_name]):
        raise ClusterConfigError(
            f"{index_field}={task_index} is out of range: {job_name} has {len(jobs[job_name])} address(es)"
            f" ({', '.join(jobs[job_name])}); allowed are 0..{len(jobs[job_name]) - 1}, or add an address"
        )


def _checked_hosts(hosts: Any, field: str, seen: dict[tuple[str, int], str]) -> tuple[str, ...]:
    """`hosts` as a tuple; notes each address's field in `seen`."""
    if isinstance(hosts, Mapping):
        raise ClusterConfigError(
            f"{field}: got index: address pairs {dict(hosts)!r}; this package needs every task: write a list of all"
        )
    if isinstance(hosts, str) or not isinstance(hosts, (list, tuple)):
        raise ClusterConfigError(f"{field}={hosts!r}: write a list of host:port, for example ['h1:2222', 'h2:2222']")
    if not hosts:
        raise ClusterConfigError(f"{field} is empty; give at least one host:port")
    for index, address in enumerate(hosts):
        where = f"{field}[{index}]"
        if not isinstance(address, str):
            raise ClusterConfigError(f"{where}={address!r} is not a text; write host:port")
        place = addresses.same_place(address, where)
        if place in seen:
            raise ClusterConfigError(
                f"{where}={address!r} is the same address as {seen[place]}; every task needs a port of its own"
                " on its machine"
            )
        seen[place] = f"{where}={address!r}"
    return tuple(hosts)

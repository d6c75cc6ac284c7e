"""`ClusterConfig`: the tasks of a job, their addresses, and the role of this process.

`ps_trainer.cluster.sources` makes one `ClusterConfig` from every description of a cluster, and the constructor checks
it completely before anything is started.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ps_trainer.cluster import addresses
from ps_trainer.errors import ClusterConfigError

JOB_NAMES = ("ps", "worker", "chief", "evaluator")
FLAGS = "flags"
ONE_PROCESS = {"ps": (), "worker": ("this process",)}
"""The jobs of a process that trains alone, without ps tasks, server or address (`one_process.py`)."""

_SERVED_JOBS = ("ps", "chief", "worker")
_ALIASES = {"master": "chief"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """The cluster, and the role of this process in it.

    The constructor checks everything and normalises `jobs` and `job_name`: "master" becomes "chief", and an evaluator's
    addresses are removed, because no other task connects to it.

    Attributes:
        jobs: Addresses (`host:port`) of the tasks by job name. "ps", unless the parameters are colocated; "worker",
            "chief" or both. `ONE_PROCESS` stands for a process that trains alone.
        job_name: Job of this task, one of `JOB_NAMES`.
        task_index: Index of this task in its job.
        is_colocated: Whether the workers hold the parameters (`--placement=colocated`), so that there are no ps tasks.
        source: Source of the description, for messages; it does not count when configurations are compared.

    Raises:
        ClusterConfigError: The description is wrong; the message names the field and the fix.
    """

    jobs: Mapping[str, tuple[str, ...]]
    job_name: str
    task_index: int
    is_colocated: bool = False
    source: str = dataclasses.field(default="ClusterConfig", compare=False)

    def __post_init__(self) -> None:
        # The dataclass is frozen, so this is the only way to replace what was given.
        if self.jobs != ONE_PROCESS:
            object.__setattr__(self, "jobs", normalise_jobs(self.jobs, self.source, is_colocated=self.is_colocated))
        object.__setattr__(self, "job_name", normalise_job_name(self.job_name, self.source))
        check_task(self.jobs, self.job_name, self.task_index, self.source)

    @property
    def num_ps(self) -> int:
        """Number of tasks of the job ps."""
        return len(self.jobs.get("ps", ()))

    @property
    def is_alone(self) -> bool:
        """Whether this process trains alone: it also holds the parameters, and has no server."""
        return self.jobs == ONE_PROCESS

    @property
    def ps_tasks(self) -> tuple[tuple[str, int], ...]:
        """(job, index) of each task that serves parameters to others: the ps tasks, or else the workers."""
        if self.is_colocated:
            return self.worker_tasks
        return tuple(("ps", index) for index in range(self.num_ps))

    @property
    def ps_devices(self) -> tuple[str, ...]:
        """Device of each task that holds parameters: of the ps tasks, the workers, or this process alone."""
        if self.is_alone or self.is_colocated:
            # As on a ps task, which has no GPU, updates run on the CPU.
            return tuple(f"{device}/device:CPU:0" for device in self.worker_devices)
        return tuple(f"/job:{job}/task:{index}" for job, index in self.ps_tasks)

    @property
    def ps_names(self) -> tuple[str, ...]:
        """Name of each task that serves parameters, for messages: "ps-0"."""
        return tuple(f"{job}-{index}" for job, index in self.ps_tasks)

    @property
    def ps_filters(self) -> tuple[str, ...]:
        """Device filters of the tasks that serve parameters: "/job:ps"."""
        return tuple(dict.fromkeys(f"/job:{job}" for job, _ in self.ps_tasks))

    def is_ps(self, ps: int) -> bool:
        """Returns whether this task serves share `ps` of the parameters."""
        return bool(self.ps_tasks) and self.ps_tasks[ps] == (self.job_name, self.task_index)

    @property
    def ps_index(self) -> int:
        """The index of this task among those that serve parameters.

        Raises:
            ValueError: This task serves none.
        """
        task = (self.job_name, self.task_index)
        if task not in self.ps_tasks:
            raise ValueError(f"{self.task_name} serves no parameters, so it has no index among those that do")
        return self.ps_tasks.index(task)

    @property
    def num_workers(self) -> int:
        """Number of tasks that train: the workers, and the chief if it has its own job."""
        return len(self.worker_tasks)

    @property
    def worker_tasks(self) -> tuple[tuple[str, int], ...]:
        """(job, index) of each task that trains, the job `chief` first; the position is the worker index."""
        return tuple((job, index) for job in ("chief", "worker") for index in range(len(self.jobs.get(job, ()))))

    @property
    def is_chief(self) -> bool:
        """Whether this task initialises and saves: the task of the job `chief`, or worker 0 without such a job."""
        return (self.job_name, self.task_index) == self.worker_tasks[0]

    @property
    def worker_index(self) -> int:
        """The index of this task among the tasks that train, 0..num_workers-1, the chief first.

        Raises:
            ValueError: This task is a ps or an evaluator.
        """
        task = (self.job_name, self.task_index)
        if task not in self.worker_tasks:
            raise ValueError(f"{self.task_name} does not train, so it has no worker index")
        return self.worker_tasks.index(task)

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """Device prefix of each task that trains, by worker index."""
        # TensorFlow calls the process of a session without a server so.
        jobs = [("localhost", 0)] if self.is_alone else self.worker_tasks
        return tuple(f"/job:{job}/task:{index}" for job, index in jobs)

    @property
    def ps_addresses(self) -> tuple[str, ...]:
        """`host:port` of each task that serves parameters."""
        return tuple(self.jobs[job][index] for job, index in self.ps_tasks)

    @property
    def spans_hosts(self) -> bool:
        """Whether the tasks are on several hosts, as far as their addresses tell; all loopback names are one host."""
        tasks = [] if self.is_alone else [address for hosts in self.jobs.values() for address in hosts]
        return len({addresses.same_place(address, self.source)[0] for address in tasks}) > 1

    @property
    def own_address(self) -> str:
        """`host:port` of this task.

        Raises:
            ValueError: This task is an evaluator or trains alone, so it runs no server and has no address.
        """
        if self.job_name == "evaluator" or self.is_alone:
            raise ValueError(f"{self.task_name} runs no server, so it has no address")
        return self.jobs[self.job_name][self.task_index]

    @property
    def own_port(self) -> int:
        """Port of `own_address`; raises ValueError for a task without an address."""
        return addresses.split_address(self.own_address, self.task_name)[1]

    @property
    def peer_ports(self) -> tuple[int, ...]:
        """Ports of all other tasks; tasks on different hosts may have the same port."""
        if self.is_alone:
            return ()
        tasks = [(job, index, address) for job, hosts in self.jobs.items() for index, address in enumerate(hosts)]
        others = [task for task in tasks if task[:2] != (self.job_name, self.task_index)]
        return tuple(addresses.split_address(address, f"{job}-{index}")[1] for job, index, address in others)

    @property
    def task_name(self) -> str:
        """This task's name in messages and file names: "worker-1"."""
        return f"{self.job_name}-{self.task_index}"

    @property
    def device(self) -> str:
        """This task's device prefix, "/job:worker/task:1"; empty for an evaluator, which has no server."""
        if self.is_alone:
            return self.worker_devices[0]
        return "" if self.job_name == "evaluator" else f"/job:{self.job_name}/task:{self.task_index}"

    def as_dict(self) -> dict[str, list[str]]:
        """Returns the jobs in the form that `tf.train.ClusterSpec` takes."""
        return {job: list(hosts) for job, hosts in self.jobs.items()}


def field_name(source: str, job: str) -> str:
    """Returns the user's name for the address list of `job` in `source`: "--ps_hosts", "TF_CONFIG cluster.ps"."""
    return f"--{job}_hosts" if source == FLAGS else f"{source} cluster.{job}"


def task_field_name(source: str, field: str) -> str:
    """Returns the user's name for "type" or "index" of a task in `source`: "--task_index", "TF_CONFIG task.index"."""
    return {"type": "--job_name", "index": "--task_index"}[field] if source == FLAGS else f"{source} task.{field}"


def normalise_job_name(job_name: Any, source: str) -> str:
    """Returns `job_name`, with "master" replaced by "chief".

    Raises:
        ClusterConfigError: The name is not one of `JOB_NAMES`.
    """
    name = _ALIASES.get(job_name, job_name) if isinstance(job_name, str) else job_name
    if name not in JOB_NAMES:
        raise ClusterConfigError(
            f"{task_field_name(source, 'type')}={job_name!r}: unknown job; allowed are {', '.join(JOB_NAMES)}"
        )
    return name


def normalise_jobs(jobs: Mapping[str, Any], source: str, *, is_colocated: bool = False) -> dict[str, tuple[str, ...]]:
    """Returns the checked addresses of tasks with a server, as tuples of `host:port`, in the order ps, chief, worker.

    Args:
        jobs: The given addresses by job.
        source: Source of the description, for messages.
        is_colocated: Whether the workers hold the parameters, so that there must be no ps task.

    Raises:
        ClusterConfigError: A job is unknown, a list is missing, empty or malformed, an address is wrong, or occurs
            twice.
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
        if job == "evaluator" or (job == "ps" and is_colocated and hosts in ((), [])):
            continue
        if job in given:
            raise ClusterConfigError(f"{source}: both cluster.chief and cluster.master are given; keep one of them")
        given[job] = _check_hosts(hosts, field_name(source, name), seen)
    if "ps" not in given and not is_colocated:
        raise ClusterConfigError(
            f"{field_name(source, 'ps')} is missing; give the address of at least one ps task, or --placement=colocated"
            " to every task, with which the workers hold the parameters"
        )
    if "ps" in given and is_colocated:
        raise ClusterConfigError(
            f"--placement=colocated: the workers hold the parameters, so {field_name(source, 'ps')} must not be given;"
            " remove it, or --placement"
        )
    if len(given.get("chief", ())) > 1:
        raise ClusterConfigError(
            f"{field_name(source, 'chief')} has {len(given['chief'])} addresses; a cluster has one chief;"
            " list the others as workers"
        )
    if not (given.get("worker") or given.get("chief")):
        raise ClusterConfigError(f"{field_name(source, 'worker')} is missing; give the address of at least one worker")
    return {job: given[job] for job in _SERVED_JOBS if job in given}


def check_task(jobs: Mapping[str, tuple[str, ...]], job_name: str, task_index: Any, source: str) -> None:
    """Checks that the normalised `jobs` contain this task; an evaluator may have any index from 0.

    Raises:
        ClusterConfigError: The job is not in the cluster, or the index is not in the job.
    """
    index_field = task_field_name(source, "index")
    # To `isinstance`, True is an int.
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


def _check_hosts(hosts: Any, field: str, seen: dict[tuple[str, int], str]) -> tuple[str, ...]:
    """Returns the addresses as a tuple; records the field of each address in `seen`, so that duplicates are found."""
    # TensorFlow accepts this sparse form. Here the number of tasks follows from the list, so it must be complete.
    if isinstance(hosts, Mapping):
        raise ClusterConfigError(
            f"{field}: got index: address pairs {dict(hosts)!r}; write a list with the address of every task"
        )
    if isinstance(hosts, str) or not isinstance(hosts, (list, tuple)):
        raise ClusterConfigError(f"{field}={hosts!r}: write a list of host:port, for example ['h1:2222', 'h2:2222']")
    if not hosts:
        raise ClusterConfigError(f"{field} is empty; give at least one host:port")
    for index, address in enumerate(hosts):
        where = f"{field}[{index}]"
        if not isinstance(address, str):
            raise ClusterConfigError(f"{where}={address!r} is not a string; write host:port")
        # TensorFlow does not notice that two tasks have the same address.
        host_and_port = addresses.same_place(address, where)
        if host_and_port in seen:
            raise ClusterConfigError(
                f"{where}={address!r} is the same address as {seen[host_and_port]}; every task needs its own port"
                " on its machine"
            )
        seen[host_and_port] = f"{where}={address!r}"
    return tuple(hosts)

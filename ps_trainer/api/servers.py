"""TensorFlow's servers of this process, which later clusters use again.

TensorFlow cannot stop a server: each keeps its port and about twenty threads until the process ends. So a cluster that
ended well leaves its servers to the next cluster of its shape. The servers of a run that failed are not used again,
since an op may still be waiting on them.
"""

from __future__ import annotations

import threading
from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.ports import check_port_free, pick_free_ports
from ps_trainer.config import TrainConfig
from ps_trainer.runtime.control import ControlGraph
from ps_trainer.runtime.server import create_server, session_config

_lock = threading.Lock()
_free: dict[tuple[int, ...], list[ServerSet]] = {}
_abandoned: list[ServerSet] = []  # kept, since TensorFlow ends a server without a reference to it


class ServerSet:
    """The servers of a whole cluster in this process.

    Args:
        num_ps: Number of ps tasks; 0 = the workers hold the parameters.
        num_workers: Number of workers.
        config: Settings of a run, of which the numbers of threads and devices matter.

    Attributes:
        jobs: Addresses of the tasks by job.
        by_task: Server of each task by name, "worker-1".
    """

    def __init__(self, num_ps: int, num_workers: int, config: TrainConfig):
        ports = pick_free_ports(num_ps + num_workers)
        hosts = [f"localhost:{port}" for port in ports]
        self.jobs = {"ps": tuple(hosts[:num_ps]), "worker": tuple(hosts[num_ps:])}
        self._is_colocated = not num_ps
        if self._is_colocated:
            del self.jobs["ps"]
        self._key = _key(num_ps, num_workers, config)
        self.by_task: dict[str, Any] = {}
        for job_name, count in (("ps", num_ps), ("worker", num_workers)):
            for index in range(count):
                cluster = self.task(job_name, index)
                self.by_task[cluster.task_name] = create_server(cluster, config)

    @classmethod
    def take(cls, num_ps: int, num_workers: int, config: TrainConfig) -> ServerSet:
        """Returns servers that no cluster uses; creates them if there are none."""
        with _lock:
            free = _free.get(_key(num_ps, num_workers, config), [])
            found = free.pop() if free else None
        return found or cls(num_ps, num_workers, config)

    def give_back(self, *, is_sound: bool) -> None:
        """Leaves the servers to another cluster, when no task of this one uses them any more.

        Args:
            is_sound: Whether all tasks ended well. If not, the servers are not used again.
        """
        if is_sound:
            # The next cluster must not take the introductions of these ps tasks for its own.
            for job_name, index in self.task("worker", 0).ps_tasks:
                clear_control(self.by_task[f"{job_name}-{index}"].target, f"/job:{job_name}/task:{index}")
        with _lock:
            (_free.setdefault(self._key, []) if is_sound else _abandoned).append(self)

    def task(self, job_name: str, index: int) -> ClusterConfig:
        """Returns the cluster as one of its tasks sees it."""
        return ClusterConfig(jobs=self.jobs, job_name=job_name, task_index=index, is_colocated=self._is_colocated)

    def server_of(self, cluster: ClusterConfig, _config: TrainConfig) -> Any:
        """Returns the server of a task; used in place of `create_server`."""
        return self.by_task[cluster.task_name]


class JoinedServers:
    """Servers of tasks in clusters that others have started, kept for the next join of the same task."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: dict[tuple[Any, ...], Any] = {}
        self._used: list[Any] = []

    def take(self, cluster: ClusterConfig, config: TrainConfig) -> Any:
        """Returns the server of a task; creates it if this process has none.

        Raises:
            ClusterConfigError: The port is in use, for example by a server of this process whose run has failed.
        """
        with self._lock:
            server = self._free.pop(_task_key(cluster, config), None)
        if server is None:
            check_port_free(cluster.own_address)
            server = create_server(cluster, config)
            self._used.append(server)
        return server

    def give_back(self, cluster: ClusterConfig, config: TrainConfig, server: Any) -> None:
        """Leaves the server to the next join of this task; only if the task has ended well."""
        if cluster.job_name == "ps" or cluster.is_colocated:
            clear_control(server.target, cluster.device)
        with self._lock:
            self._free[_task_key(cluster, config)] = server


def clear_control(target: str, device: str) -> None:
    """Empties the control plane of a ps task that has ended, so that no task takes it for one that serves.

    Args:
        target: Target of the server.
        device: Device of the ps task.
    """
    control = ControlGraph()
    with tf.Session(target, graph=control.graph, config=session_config(device, peers=())) as session:
        session.run(control.init_op)


def _key(num_ps: int, num_workers: int, config: TrainConfig) -> tuple[int, ...]:
    return (num_ps, num_workers, *_server_settings(config))


def _task_key(cluster: ClusterConfig, config: TrainConfig) -> tuple[Any, ...]:
    return (tuple(sorted(cluster.jobs.items())), cluster.job_name, cluster.task_index, *_server_settings(config))


def _server_settings(config: TrainConfig) -> tuple[int, ...]:
    """Returns the settings that a server keeps from its start."""
    return (config.intra_op_threads, config.inter_op_threads, config.devices_per_worker)

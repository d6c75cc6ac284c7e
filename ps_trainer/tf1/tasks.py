"""`Server`: a task of a script's cluster. Its `join` on a ps task ends the process when the job is over."""

from __future__ import annotations

import atexit
import sys
import threading
from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.cluster import network
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.errors import EXIT_DONE, ClusterConfigError, Interrupted, OptionError, PeerFailedError, PsTrainerError
from ps_trainer.runtime import job_runner, lost_task_errors, preflight, task_fingerprint
from ps_trainer.runtime.control import PsClient
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.ps import PsTask
from ps_trainer.runtime.run_record import Status, StatusMessage, WorkerEntry
from ps_trainer.runtime.server import prepare_server, start_errors
from ps_trainer.tf1 import script_settings, signals

_SOURCE = "ClusterSpec"
_LOCAL_MASTERS = ("", "local", None)
_tasks: dict[str, Server] = {}
_local_targets: set[str] = set()  # of `create_local_server`: they belong to no job


class Server(tf.train.Server):
    """`tf.train.Server`, with the same arguments; `join` on a ps task ends the process when the job is over.

    The cluster must have a job "ps" and a job "worker" or "chief".

    Args:
        server_or_cluster_def: Cluster: a `ClusterSpec`, a dict, or a `ClusterDef` or `ServerDef` proto.
        job_name: Job of this task; by default the one in the `ServerDef`.
        task_index: Index of this task in its job; by default the one in the `ServerDef`, or 0 if the job has one task.
        protocol: "grpc", the only protocol of TensorFlow's packages.
        config: Configuration of the server; what it sets replaces ps_trainer's choice.
        start: Whether to start the server at once.

    Attributes:
        cluster: The cluster, with this task's place in it.
        settings: Deadlines of the job.
        is_done: Whether this worker has ended its part in a job well.

    Raises:
        ClusterConfigError: The cluster is wrong, or the port is taken.
    """

    def __init__(
        self,
        server_or_cluster_def: Any,
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = None,
        config: tf.ConfigProto | None = None,
        start: bool = True,
    ):
        given = server_or_cluster_def
        if isinstance(given, tf.train.ServerDef):
            job_name = job_name or given.job_name or None
            task_index = given.task_index if task_index is None else task_index
            protocol = protocol or given.protocol or None
            given = given.cluster
        self.settings: TrainConfig = script_settings.current()
        self.is_done = False
        self.cluster: ClusterConfig = _cluster(tf.train.ClusterSpec(given), job_name, task_index)
        if any(task.cluster.own_address == self.cluster.own_address for task in _tasks.values()):
            raise ClusterConfigError(
                f"{self.cluster.task_name}: this process has a server on {self.cluster.own_address} already, and"
                " TensorFlow cannot stop it; give each job other ports, or restart the notebook's kernel"
            )
        server_config = prepare_server(self.cluster, self.settings, script_settings.rephrase)
        if config is not None:
            server_config.MergeFrom(config)
        with start_errors(self.cluster):
            super().__init__(
                tf.train.ClusterSpec(given),
                job_name=self.cluster.job_name,
                task_index=self.cluster.task_index,
                protocol=protocol,
                config=server_config,
                start=start,
            )
        _tasks[self.target] = self
        signals.prepare_threads()
        if self.cluster.job_name != "ps":
            atexit.register(self._report_failure)

    @staticmethod
    def create_local_server(config: tf.ConfigProto | None = None, start: bool = True) -> tf.train.Server:
        """Returns TensorFlow's server of one process, whose sessions are TensorFlow's own.

        Args:
            config: Configuration of the server.
            start: Whether to start the server at once.
        """
        server = tf.train.Server.create_local_server(config, start)
        _local_targets.add(server.target)
        return server

    def begin(self) -> None:
        """Notes that this worker takes part in a job, which reports how it ends."""
        atexit.unregister(self._report_failure)

    def _report_failure(self) -> None:
        """Tells the ps tasks that serve already by which error the script ends without a session."""
        error = getattr(sys, "last_value", None)
        if error is None:
            return
        entry = WorkerEntry(
            status=Status.FAILED,
            joining=0,
            fingerprint=task_fingerprint.of(self.cluster),
            reason=lost_task_errors.reason(error),
            error=type(error).__name__,
        )
        message = StatusMessage(run_id="", worker=self.cluster.worker_index, entry=entry)
        addresses = enumerate(self.cluster.ps_addresses)
        controls = [PsClient(address, ps) for ps, address in addresses if not network.fault_of(address)]
        preflight.send_to_all(controls, message)

    def join(self) -> None:
        """Serves, on a ps task, until the job is over, and then ends the process with exit code 0.

        TensorFlow's `join` never returns on a ps task. So in many scripts the worker's part follows in the next line.
        There the ps task would take itself for the chief, as its `task_index` is 0. In a notebook, and in other threads
        than the main one, `join` returns.

        On a worker whose part in the job is done it returns at once; before that, it waits forever, as TensorFlow's.

        Raises:
            SystemExit: The job is over.
            StartTimeoutError: No worker came within PS_TRAINER_START_TIMEOUT_SECS.
            RunError: The chief has ended, and a worker has not reported how it ended.
            PeerFailedError: The job ended because a worker failed.
            Interrupted: A signal came.
        """
        if self.cluster.job_name != "ps":
            if not self.is_done:
                super().join()
            return
        code = _serve(PsTask(self.cluster, self.settings, self))
        if code != EXIT_DONE:
            raise PeerFailedError(f"{self.cluster.task_name}: the job ended because a worker failed; look at its log")
        if threading.current_thread() is threading.main_thread() and not hasattr(sys, "ps1"):
            raise SystemExit(EXIT_DONE)


def task_at(master: str) -> Server | None:
    """Returns the task of this process whose server's target is `master`; None for a session without a cluster.

    Raises:
        OptionError: `master` is the target of another server, such as TensorFlow's own.
    """
    task = _tasks.get(master)
    if task is None and master not in _LOCAL_MASTERS and master not in _local_targets:
        raise OptionError(
            f"master={master} is the target of no train.Server in this process; write train.Server in place of"
            " tf.train.Server. For a session without ps_trainer write tf.train in place of train here"
        )
    return task


def only_task() -> Server | None:
    """Returns the only worker task of this process; None if there is none, or more than one."""
    workers = [task for task in _tasks.values() if task.cluster.job_name != "ps"]
    return workers[0] if len(workers) == 1 else None


def task_on(device: str) -> Server | None:
    """Returns the worker task of this process with `device` ("/job:worker/task:1"); None if there is none."""
    spec = tf.DeviceSpec.from_string(device)
    for task in reversed(_tasks.values()):  # a process that runs one job after the other, such as a notebook
        if task.cluster.job_name == spec.job and task.cluster.task_index == spec.task:
            return task
    return None


def own_task() -> Server:
    """Returns the task of this process that builds the graph: the one on whose device the device setter puts an op.

    Raises:
        OptionError: This process has no such task.
    """
    task = task_on(tf.no_op().device) or only_task()
    if task is None:
        raise OptionError("make this task's Server before the graph, which depends on it")
    return task


def _serve(ps: PsTask) -> int:
    try:
        if threading.current_thread() is threading.main_thread():
            return job_runner.call_job(ps.serve)
        stop = StopRequest()

        def on_signal(signum: int) -> None:
            stop.request(signals.interruption(signum))

        with signals.watching(on_signal, on_signal):
            return ps.serve(stop)
    except Interrupted as error:
        raise signals.interruption(error.exit_code - 128) from None
    except PsTrainerError as error:
        script_settings.rephrase_error(error)
        raise


def _cluster(spec: tf.train.ClusterSpec, job_name: str | None, task_index: int | None) -> ClusterConfig:
    jobs = spec.as_dict()
    if "master" in jobs:
        raise ClusterConfigError('the cluster calls its first worker "master"; write "chief", in devices too')
    if job_name is None and len(jobs) == 1:
        job_name = next(iter(jobs))
    if job_name is None:
        raise ClusterConfigError(f"Server needs job_name, one of {', '.join(sorted(jobs))}")
    if task_index is None and len(jobs.get(job_name, ())) == 1:
        task_index = 0
    if task_index is None:
        raise ClusterConfigError(f"Server needs task_index: job {job_name!r} has {len(jobs.get(job_name, ()))} tasks")
    return ClusterConfig(jobs=jobs, job_name=job_name, task_index=task_index, source=_SOURCE)

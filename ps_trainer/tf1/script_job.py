"""`ScriptJob`: a script's side of its job. It hands sessions to the script, and translates what ends the steps."""

from __future__ import annotations

import atexit
import contextlib
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.config import TrainConfig
from ps_trainer.errors import (
    Interrupted,
    OptionError,
    PeerFailedError,
    PsLostError,
    PsTrainerError,
    RunError,
    StalledError,
)
from ps_trainer.runtime import job_runner
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.tf1 import exit_codes, run_state, script_settings, signals, sync_replicas
from ps_trainer.tf1.run_state import SetUp
from ps_trainer.tf1.script_worker import ScriptHandle, ScriptPart, ScriptWorker
from ps_trainer.tf1.step_guard import StepGuard, rephrase_own_error
from ps_trainer.tf1.tasks import Server
from ps_trainer.tf1.watched_session import Session

_POLL_SECS = 0.1


class ScriptJob:
    """A worker's part in a job, from the script's point of view.

    Args:
        task: The task.
        graph: The script's graph.
        set_up: Ops that initialise it.
        config: Configuration of the session; None for TensorFlow's defaults.
        start_secs: Longest wait for the other tasks; None = as the settings say.
        recovers: Whether the script takes another session when it has lost a task.

    Attributes:
        stop: Request that ends the steps.
        save: Function that saves a checkpoint with the given session; None if the script wants none.
        has_ended: Whether the run had ended before this worker joined, so that it has no steps to make.

    Raises:
        OptionError: The graph cannot be trained so, or this task's part in a job is over.
    """

    def __init__(
        self,
        task: Server,
        graph: tf.Graph,
        set_up: SetUp,
        config: tf.ConfigProto | None,
        *,
        start_secs: float | None = None,
        recovers: bool = True,
    ):
        if task.is_done:
            raise OptionError(
                f"{task.cluster.task_name} has ended its part in the job with its first session, and the ps tasks end"
                " with the job; make all steps in one session"
            )
        run_state.check_placement(graph)
        self._task = task
        optimizer = sync_replicas.of_graph(graph)
        self._settings = _settings(optimizer, start_secs)
        self._part = ScriptPart(
            task=task,
            graph=graph,
            set_up=set_up,
            sync=optimizer.ops if optimizer is not None else None,
            session_config=_session_config(task, config),
            create_session=self._create_session,
            check_steps=lambda waited_at: self._steps.check_time(waited_at),
        )
        self.stop = StopRequest()
        self.save: Callable[[tf.Session], Any] | None = None
        self.has_ended = False
        self._worker = ScriptWorker(self._part, self._settings)
        self._thread = threading.Thread(target=self._run, name="job", daemon=True)
        self._ended = threading.Event()  # not the thread: Ctrl-C in a `join` makes Python take it for ended
        recovers = recovers and self._settings.recover_timeout_secs > 0
        self._steps = StepGuard(self._worker, self.stop, self._settings, job_thread=self._thread, recovers=recovers)
        self._failure: BaseException | None = None  # of the job's thread
        self._script_handle: ScriptHandle | None = None
        self._is_waiting = False  # whether the script waits for the job
        self._is_leaving = False
        self._leaves_on_close = False
        self._signals = contextlib.ExitStack()

    @property
    def is_chief(self) -> bool:
        """Whether this worker is the chief."""
        return self._task.cluster.is_chief

    @property
    def max_failed_saves(self) -> int:
        """Consecutive failed saves after which the job fails."""
        return self._settings.max_failed_saves

    def next_session(self) -> tf.Session:
        """Returns a session that is ready for steps; called again when a step has lost a task.

        Raises:
            PsTrainerError: The job cannot begin, or cannot continue.
            Interrupted: A signal came.
        """
        if self._script_handle is None:
            self._start()
        else:
            self._worker.left.put(self._steps.take_loss())
        self._is_waiting = True
        self._script_handle = self._wait_for_handle()
        self._is_waiting = False
        self.has_ended = self._script_handle.peers is None
        return self._script_handle.session

    def wait_for_others(self, session: tf.Session) -> None:
        """Waits, on the chief, until every other worker has ended, so that the last checkpoint has all their steps."""
        if not self.is_chief or self._script_handle is None or self._leaves_on_close:
            return
        _, peers, service = self._script_handle
        if peers is None:
            return
        if service is not None:
            service.worker_left(self._task.cluster.worker_index, 0)
        step = tf.train.get_global_step(self._part.graph)
        peers.wait_for_end(lambda: int(tf.Session.run(session, step)) if step is not None else 0)

    def check(self) -> None:
        """Raises the reason why the job cannot continue, if there is one; for a script that has swallowed it."""
        if self.stop.reason is not None:
            raise rephrase_own_error(self.stop.reason)

    def leave(self, error: BaseException | None) -> None:
        """Ends this worker's part in the job; has an effect once.

        Args:
            error: Error that ended the script's steps; None when they are done.

        Raises:
            PsTrainerError: The end could not be reported.
        """
        if self._is_leaving:
            return
        self._is_leaving = True
        atexit.unregister(self._leave_at_exit)
        if self._thread.ident is not None:
            self._worker.give_up()
            if self._script_handle is None:  # it still waits for other tasks
                self.stop.request(error or RunError("the script has ended before its session began"))
            self._worker.left.put(error)
            self._is_waiting = True
            self._ended.wait()
        self._signals.close()
        if error is None and self._failure is not None:
            raise rephrase_own_error(self._failure)
        self._task.is_done = error is None

    def leave_on_close(self) -> None:
        """Ends this worker's part in the job when the script closes its session, or at the end of the process."""
        self._leaves_on_close = True

    def save_last(self, error: BaseException) -> None:
        """Saves a checkpoint on the chief after a failure that leaves the state sound."""
        is_sound = isinstance(error, Interrupted | PeerFailedError | StalledError)
        if self.save is None or not is_sound or self._script_handle is None or self.has_ended:
            return
        try:
            # A separate session: the script's may have been closed to end a step that blocked.
            with tf.Session(self._task.target, graph=self._part.graph, config=self._part.session_config) as session:
                self.save(session)
        except (tf.errors.OpError, PsTrainerError, RuntimeError) as failure:
            logging.warning("no checkpoint was saved: %s", failure)

    def _start(self) -> None:
        self._signals.enter_context(signals.watching(self._on_signal, self._raise_in_script))
        self._task.begin()
        atexit.register(self._leave_at_exit)
        self._thread.start()
        watch = (self._ended, self.stop, self._give_up)
        threading.Thread(target=job_runner.watch, args=watch, name="watch-job", daemon=True).start()

    def _run(self) -> None:
        try:
            self._worker.work(self.stop)
        except BaseException as error:  # noqa: BLE001 - raised in the script's thread
            self._failure = error
        self._ended.set()

    def _give_up(self, code: int) -> None:
        """Gives the script the reason, if it waits for a job that does not end; else ends the process."""
        if self._is_waiting:
            self._failure = self.stop.reason
            self._ended.set()
        elif not hasattr(sys, "ps1"):  # a notebook would lose everything; there, its cell keeps waiting
            exit_codes.end_process(code)

    def _wait_for_handle(self) -> ScriptHandle:
        while True:
            had_ended = self._ended.is_set()
            with contextlib.suppress(queue.Empty):
                return self._worker.script_handles.get(timeout=_POLL_SECS)
            if had_ended:
                raise rephrase_own_error(self._failure or PsLostError("the job has ended"))

    def _create_session(self, target: str, graph: tf.Graph, config: tf.ConfigProto) -> Session:
        return Session(target, graph, config, in_step=self._steps.step, on_close=self._session_closed)

    def _on_signal(self, signum: int) -> None:
        if not self._is_leaving:
            self.stop.request(signals.interruption(signum))

    def _raise_in_script(self, signum: int) -> None:
        """Raises in the script's own code, so that a long computation between two steps ends at once, too."""
        if not self._steps.is_in_step and not self._is_leaving and self._script_handle is not None:
            raise signals.interruption(signum)

    def _session_closed(self) -> None:
        if self._leaves_on_close:
            self.leave(None)

    def _leave_at_exit(self) -> None:
        """Reports the end for a script that never closes its session; ends the process if that fails."""
        error = getattr(sys, "last_value", None)
        try:
            if error is not None:
                self.save_last(error)
            elif self._script_handle is not None:
                self.check()
                # Also so that the other workers of a synchronous job get their updates to the end.
                self.wait_for_others(self._script_handle.session)
            self.leave(error)
        except BaseException as failure:  # noqa: BLE001 - nobody is left who could catch it
            code = job_runner.report(rephrase_own_error(failure))
            if not self._is_leaving:
                self.save_last(failure)
                self.leave(failure)
            exit_codes.end_process(code)  # Python itself would end with 0


def _settings(optimizer: sync_replicas.SyncReplicasOptimizer | None, start_secs: float | None) -> TrainConfig:
    changes: dict[str, Any] = {"logdir": None}
    if optimizer is not None:
        changes["update"] = "SyncReplicasOptimizer"
        # All workers must give the same number, which they find out by comparing this.
        changes["update_option"] = (f"replicas_to_aggregate={optimizer.ops.required}",)
    if start_secs is not None:
        changes["start_timeout_secs"] = start_secs
    return script_settings.current(**changes)


def _session_config(task: Server, given: tf.ConfigProto | None) -> tf.ConfigProto:
    config = tf.ConfigProto()
    if given is not None:
        config.CopyFrom(given)
    if not config.device_filters:  # else the creation of the session waits for every task of the cluster
        config.device_filters.extend(["/job:ps", task.cluster.device])
    return config


def check_is_chief(task: Server, is_chief: bool) -> None:
    """Checks a script's `is_chief` against the cluster.

    Raises:
        OptionError: They contradict each other.
    """
    cluster = task.cluster
    if cluster.job_name == "ps":
        raise OptionError(f"{cluster.task_name} is a ps task: it calls server.join() and makes no session")
    if bool(is_chief) != cluster.is_chief:
        chief = "-".join(map(str, cluster.worker_tasks[0]))
        raise OptionError(f"is_chief={is_chief} on {cluster.task_name}, but the chief of its cluster is {chief}")

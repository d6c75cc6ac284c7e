"""`ScriptWorker`: a worker whose steps the script makes itself.

The script's own thread makes the steps. Everything else happens in the thread of the job, such as the wait for the ps
tasks, the run's set-up and the recovery after a loss:

    script                                              job (`WorkerTask.work`)
    ──────                                              ───────────────────────
    MonitoredTrainingSession(…), and after a loss   ←   joins the run, hands over a session
    steps
    leaves: done, lost a task, or failed            →   ends the run, joins again, or reports the failure
"""

from __future__ import annotations

import contextlib
import dataclasses
import queue
from collections.abc import Callable
from typing import NamedTuple

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.cluster.worker_groups import group_of
from ps_trainer.config import TrainConfig
from ps_trainer.errors import Interrupted
from ps_trainer.runtime import lost_task_errors, preflight, run_setup
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.run_record import RunStart, RunStatus, Status
from ps_trainer.tf1 import run_state
from ps_trainer.tf1.run_state import Containers, SetUp
from ps_trainer.tf1.sync_ops import SyncOps
from ps_trainer.tf1.sync_service import SyncService
from ps_trainer.tf1.tasks import Server
from ps_trainer.tf1.watched_session import Session
from ps_trainer.training.peer_tracker import PeerNeed, PeerTracker
from ps_trainer.training.worker_task import WorkerTask


class ScriptPart(NamedTuple):
    """A script's part of the job.

    Attributes:
        task: The task.
        graph: The script's graph, complete.
        set_up: Ops that initialise it.
        sync: Ops of its `SyncReplicasOptimizer`; None if it has none.
        session_config: Configuration of the script's session.
        create_session: Function that creates the session that is handed over.
        check_steps: Function that raises StalledError when the script's step takes too long.
    """

    task: Server
    graph: tf.Graph
    set_up: SetUp
    sync: SyncOps | None
    session_config: tf.ConfigProto
    create_session: Callable[[str, tf.Graph, tf.ConfigProto], Session]
    check_steps: Callable[[float], None]


class ScriptHandle(NamedTuple):
    """The parts of the job that the script uses.

    Attributes:
        session: Session, ready for steps.
        peers: The other workers; None if the run has ended before this worker joined.
        service: Service of a `SyncReplicasOptimizer`, on the chief.
    """

    session: tf.Session
    peers: PeerTracker | None = None
    service: SyncService | None = None


class ScriptWorker(WorkerTask):
    """A worker of a script's job; for the chief, too.

    Args:
        part: The script's part.
        config: Settings of the job.

    Attributes:
        script_handles: Queue of what the job gives to the script.
        left: Queue of the script's answers: None when its steps are over, else the error that ended them.
    """

    def __init__(self, part: ScriptPart, config: TrainConfig):
        super().__init__(part.task.cluster, config)
        self._part = part
        self._containers = Containers(part.graph)
        self._start: RunStart | None = None
        self.script_handles: queue.SimpleQueue[ScriptHandle] = queue.SimpleQueue()
        self.left: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    @property
    def name(self) -> str:
        """Name of the task, "worker-1"."""
        return self._cluster.task_name

    def note_progress(self) -> None:
        """Records that the script has completed a step, so that the next loss is not the same one again."""
        self._recovery.note_step(0)

    def give_up(self) -> None:
        """Lets a lost task end the job from now on, since the script takes no session any more."""
        self._recovery.is_possible = False

    def has_state(self) -> bool:
        """Returns whether the ps tasks still hold the run."""
        return self._has_state()

    def _take_part(self, stop: StopRequest) -> None:
        model = run_state.variables_hash(self._part.graph)
        self._fingerprint = dataclasses.replace(self._fingerprint, variables=model)
        if self._cluster.is_chief:
            self._take_part_as_chief(stop)
        elif self._join(stop):
            preflight.check_same_model(self._controls[0], self._fingerprint, self._cluster)
            with self._heartbeat():
                self._train(stop, None)
        else:
            self._hand_over_ended()

    def _take_part_as_chief(self, stop: StopRequest) -> None:
        before = self._run
        # Gradients and tokens of a synchronous step in flight cannot be taken over from a chief that was lost.
        may_attach = self._part.sync is None
        found = run_setup.begin_run(self._controls, self._cluster, self._config, may_attach=may_attach)
        self._run = found.run.replace(model=self._fingerprint.of_model())
        self._say_joined()
        was_ready = before is not None and before.start is not None
        try:
            with self._heartbeat():
                self._train(stop, _FoundState(found.is_alive, was_lost=found.was_lost or was_ready))
        except BaseException as error:
            if not self._recovery.may_follow(error):
                status = Status.INTERRUPTED if isinstance(error, Interrupted) else Status.FAILED
                self._note_end(f"worker 0 {status}: {lost_task_errors.reason(error)}")
            raise
        self._note_end(failure="")

    def _train(self, stop: StopRequest, found_state: _FoundState | None) -> None:
        """Sets up this worker's session, hands it over, and waits until the script leaves it."""
        part = self._part
        self._containers.put_into(self._current_run.run_id)
        with contextlib.ExitStack() as stack:
            stack.enter_context(part.graph.as_default())  # for the script's init_fn
            session = part.create_session(part.task.target, part.graph, part.session_config)
            stack.callback(_close, session)
            stop.on_abort(session.abort)
            if found_state is not None:
                self._begin(session, found_state)
            run_state.make_ready(session, part.set_up)
            service = self._create_service(stop, stack)
            peers = self._create_peers(service, stop)
            stack.callback(peers.close)
            if part.sync is not None:
                _join_updates(session, part.sync)
            peers.start()
            self._send_status(Status.TRAINING)
            if not peers.wait_for_start(self._recovery.limit_secs):
                logging.info("the run ended before this worker had made a step")
            logging.info("%s: training", self._cluster.task_name)
            self.script_handles.put(ScriptHandle(session, peers, service))
            error = self.left.get()
            if service is not None:
                logging.info("sync_replicas: gradients used of each worker: %s", list(service.gradient_counts().used))
            if error is not None:
                raise error

    def _begin(self, session: tf.Session, found_state: _FoundState) -> None:
        start = run_state.begin(
            session, self._part.set_up, is_alive=found_state.is_alive, was_lost=found_state.was_lost
        )
        # A warning, so that it is seen without `logging.set_verbosity`: a script has no other place to look.
        logging.warning("%s: %s, at step %d", self._cluster.task_name, start.how, start.step)
        if self._part.sync is not None:
            session.run(self._part.sync.prepare)
        self._run = self._current_run.replace(status=RunStatus.READY, start=start)
        self._controls[0].write_run(self._run)

    def _create_service(self, stop: StopRequest, stack: contextlib.ExitStack) -> SyncService | None:
        part = self._part
        if part.sync is None or not self._cluster.is_chief:
            return None
        service = SyncService(part.sync, self._cluster.num_workers)
        service.start(tf.Session(part.task.target, graph=part.graph, config=part.session_config))
        stack.callback(service.stop)
        stop.on_release(service.release)
        return service

    def _create_peers(self, service: SyncService | None, stop: StopRequest) -> PeerTracker:
        def look(waited_at: float) -> None:
            if service is not None and (error := service.error()) is not None:
                raise lost_task_errors.reason_to_stop(error) from error
            self._part.check_steps(waited_at)

        return PeerTracker(
            group_of(self._cluster, 1),
            self._config,
            self._controls,
            self._current_run,
            need=PeerNeed(self._part.sync.required if self._part.sync is not None else 1, service),
            stop=stop,
            writer=self._writer,
            on_poll=look,
        )

    def _hand_over_ended(self) -> None:
        """Gives the script a session that asks it to stop, since the run is over."""
        part = self._part
        self._containers.put_into(self._current_run.run_id)
        with contextlib.closing(tf.Session(part.task.target, graph=part.graph, config=part.session_config)) as session:
            self.script_handles.put(ScriptHandle(session))
            self.left.get()


class _FoundState(NamedTuple):
    """The state that the chief has found on the ps tasks.

    Attributes:
        is_alive: Whether they may still hold the run's state.
        was_lost: Whether there was state that is lost now.
    """

    is_alive: bool
    was_lost: bool


def _join_updates(session: tf.Session, sync: SyncOps) -> None:
    """Makes this worker take part in the synchronous updates, from the current step on."""
    session.run(sync.forget)
    step, last_arrival = session.run(sync.current)
    session.run(sync.set_step, {sync.step: step})
    if last_arrival >= step:  # its process before has sent a gradient for this update already
        session.run(sync.await_token)


def _close(session: Session) -> None:
    with contextlib.suppress(tf.errors.OpError, RuntimeError):
        session.abort()

"""`Worker`: a worker that trains. It joins the chief's run, makes steps until they are over, and leaves.

    _take_part        waits for the workers that compute stages for this one, then `_enter_run`
    _enter_run        joins the run, and builds the graph; `_prepare` has built it already, if the run is a new one
      _train          watches the other tasks and opens a session
        _set_up       (chief only) sets up the run's state
        _run_steps    joins the update rule, and makes the steps
        _end_run      (chief only) waits for the other workers, and saves
        _rescue       (chief only) saves what can be saved, if any of these failed

`chief.Chief` overrides the parts for the chief.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.checkpoints.worker_file import SavedWorkerState
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.worker_groups import group_of
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.metrics.figures import WorkerFigures
from ps_trainer.metrics.traffic import SocketTraffic
from ps_trainer.runtime import preflight, task_fingerprint
from ps_trainer.runtime.colocated_ps import ColocatedPs
from ps_trainer.runtime.control import PsClient
from ps_trainer.runtime.job_runner import StopRequest, call_until_final
from ps_trainer.runtime.lost_task_errors import reason_to_stop
from ps_trainer.runtime.run_record import RunRecord, Shards, Status, TaskFingerprint
from ps_trainer.training import background_services, chance_level, graph, stage_workers, worker_faults
from ps_trainer.training.alone_sessions import AloneSessions
from ps_trainer.training.checkpointer import newest_step
from ps_trainer.training.components import Components
from ps_trainer.training.evaluation_helper import EvaluationHelper, can_help
from ps_trainer.training.graph_parts.shard_reader import LeaseLink
from ps_trainer.training.graph_parts.worker_state_saver import WorkerStateSaver
from ps_trainer.training.loop import LoopCalls, StepLoop
from ps_trainer.training.peer_tracker import PeerNeed, PeerTracker
from ps_trainer.training.sessions import ServerSessions, Sessions
from ps_trainer.training.stall_watch import StallWatch
from ps_trainer.training.step_log import progress_for
from ps_trainer.training.train_graph import TrainGraph
from ps_trainer.training.worker_progress import StepObserver, WorkerProgress
from ps_trainer.training.worker_task import WorkerTask
from ps_trainer.updates.chief_service import ChiefService


class ActiveRun(NamedTuple):
    """A run while this worker trains in it.

    Attributes:
        train: Graph of this worker.
        stop: Request that ends the steps.
        session: Second session, which makes no steps.
        peers: The other workers.
    """

    train: TrainGraph
    stop: StopRequest
    session: tf.Session
    peers: PeerTracker


class GraphStart(NamedTuple):
    """Values on which the graph of a worker depends when it starts in a run: arguments of `graph.build`."""

    run_id: str
    name: str
    join_number: int = 1
    shards: Shards | None = None
    spans_hosts: bool = False


class Worker(WorkerTask):
    """A worker that trains.

    Args:
        cluster: Cluster, with this task's place in it.
        config: Settings of the run.
        components: Components of the run.
        server: Server of this task; None in a process that trains alone.
        create_progress: Factory for the counter of this worker's steps; None = as the config says.
        observer: Object that follows the steps and may ask for the end of the run; None = no object.
    """

    def __init__(
        self,
        cluster: ClusterConfig,
        config: TrainConfig,
        components: Components,
        server: tf.train.Server | None,
        *,
        create_progress: Callable[[int], WorkerProgress] | None = None,
        observer: StepObserver | None = None,
    ):
        super().__init__(cluster, config)
        self._components = components
        self._group = group_of(cluster, components.num_stages)
        self._sessions: Sessions = (
            AloneSessions(cluster, config, components)
            if server is None
            else ServerSessions(cluster, config, components, self._group, server.target)
        )
        if cluster.is_colocated and server is not None:
            self._share = ColocatedPs(cluster, config, server)
        self._faults = worker_faults.create(cluster.task_name, self._writer)
        self._create_progress = create_progress or progress_for(cluster, config)
        self._observer = observer
        self._progress = self._create_progress(config.batch_size)
        self._traffic = SocketTraffic(None if server is None else cluster.own_port, cluster.peer_ports)
        self._stall_watch = StallWatch(cluster.task_name, config.stall_timeout_secs)
        self._prepared: tuple[GraphStart, TrainGraph | None] | None = None  # before the first run
        self._trained: TrainGraph | None = None  # of the run that this worker has trained in to its end
        self._kept_state: tuple[SavedWorkerState, ...] = ()  # what only this worker knew when its last steps failed

    def _figures(self) -> WorkerFigures:
        return self._progress.summary()

    def _close(self) -> None:
        self._progress.close()
        self._sessions.close()

    def _take_part(self, stop: StopRequest) -> None:
        limit = self._recovery.limit_secs
        stage_workers.wait_for_servers(self._cluster, self._group, self._config, stop, limit_secs=limit)
        self._enter_run(stop)

    def _enter_run(self, stop: StopRequest) -> None:
        """Joins the run of the chief, and trains in it."""
        if not self._join(stop):
            return
        run = self._current_run
        step = run.start.step if run.start is not None else 0
        name = self._recovery.start_name(step, is_first=self._join_number == 1)
        start = GraphStart(run.run_id, name, self._join_number, run.shards, run.spans_hosts)
        prepared_for, prepared = self._prepared or (None, None)
        self._prepared = None
        with self._heartbeat():
            train = prepared if prepared is not None and prepared_for == start else self._build_graph(start, stop)
            self._train(train, stop)

    def _prepare(self, run: RunRecord, stop: StopRequest) -> None:
        """Builds the graph for the most likely start of the run, while the chief builds its own."""
        if self._run is not None or self._prepared is not None or self._config.sharding == "dynamic":
            return
        self._prepared = GraphStart(run.run_id, ""), None
        # An error is raised when this worker has joined and builds the graph again, because then the others learn it.
        # An unreadable folder of checkpoints, which only the chief needs, does not matter.
        with contextlib.suppress(Exception):
            name = self._recovery.start_name(newest_step(self._config), is_first=True)
            start = GraphStart(run.run_id, name, spans_hosts=run.spans_hosts)
            self._prepared = start, self._build_graph(start, stop)

    def _build_graph(self, start: GraphStart, stop: StopRequest) -> TrainGraph:
        self._writer.state("building the graph")
        build = functools.partial(
            graph.build,
            self._components,
            self._cluster,
            self._config,
            start.run_id,
            start=start.name,
            join_number=start.join_number,
            shards=start.shards,
            spans_hosts=start.spans_hosts,
        )
        train = call_until_final(build, stop)  # a large model takes many seconds
        self._recovery.is_possible = train.step.exchange is None
        return train

    def _train(self, train: TrainGraph, stop: StopRequest) -> None:
        """Trains in one run, from its set-up to the end of this worker's steps."""
        model = task_fingerprint.of_model(train.model_trace)
        self._fingerprint = dataclasses.replace(self._fingerprint, variables=model.variables, graph=model.graph)
        self._agree_on_model(model)
        with contextlib.ExitStack() as stack:
            peers = self._create_peers(train, stop)
            # Closed last: a frozen ps task blocks the end of a session, and the watcher ends that wait.
            stack.callback(peers.close)
            run = ActiveRun(train, stop, stack.enter_context(self._sessions.open_plain(train)), peers)
            try:
                self._set_up(run, stack)
                # Before the watcher, whose first news of other workers goes to the rule's service.
                stack.enter_context(self._services(run))
                peers.start()
                self._run_steps(run)
                self._end_run(run)
                self._trained = train
            except BaseException as raised:  # noqa: BLE001 - raised again below, explained
                self._stall_watch.stop()  # the time until the next try is not a stall
                error = self._translate_error(raised, stop)
                self._rescue(run, error)
                # An error must not be its own cause.
                raise error from (None if error is raised else raised)

    def _after_done(self, stop: StopRequest) -> None:
        """Helps the chief to evaluate, if that takes long."""
        train, ps_0 = self._trained, self._controls[0]
        if train is None or not isinstance(ps_0, PsClient):
            return  # the run had ended before this worker joined, or this process trains alone
        if not can_help(self._components, self._config.eval_examples):
            return

        @contextlib.contextmanager
        def open_parameters(looked_up: Collection[str]) -> Iterator[Mapping[str, Any]]:
            with self._sessions.open_bounded(train) as session:
                yield train.state.read_parameters(session, looked_up)

        EvaluationHelper(
            ps_0,
            run_id=self._current_run.run_id,
            worker=self._cluster.worker_index,
            components=self._components,
            open_parameters=open_parameters,
            report=self._writer.state,
            silence_secs=self._config.heartbeat_timeout_secs,
        ).help(stop)

    def _agree_on_model(self, model: TaskFingerprint) -> None:
        """Raises OptionError if this worker's model has other variables than the chief's."""
        preflight.check_same_model(self._controls[0], model, self._cluster)

    def _set_up(self, run: ActiveRun, stack: contextlib.ExitStack) -> None:
        """Sets up the run's state.

        Args:
            run: The run.
            stack: Stack that ends with the run.
        """

    def _end_run(self, run: ActiveRun) -> None:
        """Does what remains when this worker has made its last step."""

    def _rescue(self, run: ActiveRun, error: BaseException) -> None:
        """Saves what can be saved when `error` ends this worker's part in the run."""

    def _create_peers(self, train: TrainGraph, stop: StopRequest) -> PeerTracker:
        step, rule = train.step, self._components.rule
        service = step.service
        need = PeerNeed(
            rule.min_workers(self._group.trainers.num_workers),
            service,
            all_at_once=step.exchange is not None,
            is_crash_safe=rule.is_crash_safe,
        )
        return PeerTracker(
            self._group,
            self._config,
            self._controls,
            self._current_run,
            need=need,
            stop=stop,
            writer=self._writer,
            on_poll=lambda waited_at: self._check_progress(service, waited_at),
        )

    def _check_progress(self, service: ChiefService | None, waited_at: float) -> None:
        """Raises the reason why this worker cannot continue; its own thread may be blocked in a step."""
        error = service.error() if service is not None else None
        if error is not None:
            raise reason_to_stop(error, is_colocated=self._cluster.is_colocated) from error
        self._stall_watch.check(waited_at)

    def _services(self, run: ActiveRun) -> contextlib.AbstractContextManager[None]:
        """Returns the threads that run beside the steps."""
        link = LeaseLink(
            ps_0=self._controls[0],
            run_id=self._current_run.run_id,
            worker_index=self._cluster.worker_index,
            # Both are functions, because `_begin_progress` replaces the progress.
            on_wait=lambda: self._progress.wait_for_data(),
            num_steps=lambda: self._progress.local_steps,
            pause_secs=self._config.heartbeat_timeout_secs / 2,  # shorter than the silence that makes a worker lost
        )
        return background_services.run_beside_steps(run.train, run.stop, self._sessions, link)

    def _run_steps(self, run: ActiveRun) -> None:
        train = run.train
        run.peers.wait_for_stages(self._recovery.limit_secs)
        state_saver = WorkerStateSaver(
            train.own_variables, self._config, self._cluster.worker_index, kept=self._kept_state
        )
        # `_keeping` is outermost: it reads the worker's variables after the session is closed.
        with self._keeping(state_saver), train.graph.as_default(), self._sessions.open_monitored(train) as session:
            # Before the wait, because every worker waits for this report of all others.
            self._send_status(Status.TRAINING)
            if not run.peers.wait_for_start(self._recovery.limit_secs):
                return
            self._writer.state("training")
            self._begin_progress(train)
            self._stall_watch.start(self._progress)
            loop = StepLoop(
                train,
                self._progress,
                run.stop,
                self._loop_calls(run, state_saver),
                max_steps=self._config.max_steps,
                has_hooks=bool(self._components.hooks),
                is_colocated=self._cluster.is_colocated,
            )
            reason = loop.run(session)
            self._stall_watch.stop()
            self._report()
        logging.info("training ended at step %d by %s", self._progress.global_step, reason.value)

    def _begin_progress(self, train: TrainGraph) -> None:
        """Starts the counts and clocks of the steps, so that they do not include the wait for the start."""
        self._progress.close()
        self._progress = self._create_progress(self._config.batch_size)
        self._progress.observer = self._observer
        shard = Shard(self._group.trainers.worker_index, self._group.trainers.num_workers)
        components = self._components
        self._progress.chance = chance_level.find(components.model, components.dataset, shard, self._config.batch_size)
        if train.shard_reader is not None:
            self._progress.count_examples(train.shard_reader.num_examples)
        if (straggler := train.straggler) is not None:
            self._progress.count_delays(lambda: straggler.last_delay)

    def _loop_calls(self, run: ActiveRun, state_saver: WorkerStateSaver) -> LoopCalls:
        def after_join(raw: tf.Session, global_step: int) -> None:
            state_saver.restore(raw, global_step)
            sent_bytes = raw.make_callable(run.train.sent_bytes)
            # Not earlier: the graph itself is traffic too, and has gone to the ps tasks by now.
            self._progress.watch(self._traffic.sample, lambda: int(sent_bytes()))

        def after_step(raw: tf.Session, counts: Sequence[np.ndarray]) -> None:
            self._recovery.note_step(self._progress.global_step)
            if self._faults is not None:
                self._faults.after_step(self._progress.global_step)
            if self._progress.secs_since_report() >= self._config.report_secs:
                self._report()
            state_saver.after_step(raw, self._progress.global_step, counts)
            self._save_if_due(raw, state_saver)

        def inside_call(global_step: int, counts: Sequence[np.ndarray]) -> bool:
            is_due = (
                (self._faults is not None and self._faults.is_due(global_step))
                or self._progress.secs_since_report() >= self._config.report_secs
                or self._is_save_due(global_step)
                or state_saver.is_due(counts)
                or run.peers.is_target_reached
            )
            if not is_due:
                self._recovery.note_step(global_step)
                state_saver.note(counts)
            return not is_due

        is_target_reached = lambda: self._is_target_reached(run.peers)  # noqa: E731 - passed on once
        return LoopCalls(after_join, after_step, state_saver.save, is_target_reached, inside_call)

    def _save_if_due(self, raw: tf.Session, state_saver: WorkerStateSaver) -> None:
        """Saves a checkpoint when it is time to; called after each step."""

    def _is_save_due(self, global_step: int) -> bool:
        """Returns whether `_save_if_due` would do something after a step."""
        return False

    def _is_target_reached(self, peers: PeerTracker) -> bool:
        """Returns whether the run is to end: the chief finds that out and tells the other workers.

        An observer of another worker can end the steps of that worker only.
        """
        return peers.is_target_reached or bool(self._reason_to_end())

    def _reason_to_end(self) -> str:
        """Returns the observer's sentence that says why the run should end; empty without one."""
        return self._observer.reason_to_end if self._observer is not None else ""

    @contextlib.contextmanager
    def _keeping(self, state_saver: WorkerStateSaver) -> Iterator[None]:
        """Keeps what only this worker knows if its steps fail, for its next join or its next process."""
        try:
            yield
        except BaseException:
            self._kept_state = state_saver.keep(
                self._sessions.read_after_steps,
                num_sent=self._progress.sent_steps,
                global_step=self._progress.global_step,
                in_flight=self._progress.is_in_step,
            )
            raise
        self._kept_state = ()

    def _report(self) -> None:
        report = self._progress.report()
        if report is not None:
            self._writer.train(self._progress.global_step, report)
            if warning := self._progress.warning_of(report):
                self._warn(warning)

    def _warn(self, text: str) -> None:
        """Logs a warning, which `local` repeats at its end."""
        logging.warning("%s", text)
        self._writer.state(f"warning: {text}")

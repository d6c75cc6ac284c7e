"""A worker's job from start to end; the chief is the worker that also sets up, saves and closes the run."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.checkpoints.worker_file import SavedWorkerState
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.groups import group_of, members_of_groups
from ps_trainer.config import TrainConfig
from ps_trainer.disturbances import worker_faults
from ps_trainer.errors import (
    Interrupted,
    PeerFailedError,
    PsTrainerError,
    StalledError,
    StartTimeoutError,
)
from ps_trainer.metrics.traffic import SocketTraffic
from ps_trainer.runtime import preflight, run_setup, stages, task_info
from ps_trainer.runtime.lost import reason_to_stop
from ps_trainer.runtime.run_record import INITIALISED, RunStart, RunStatus, Status, StatusMessage, WorkerEntry
from ps_trainer.runtime.server import session_config
from ps_trainer.runtime.supervise import StopRequest
from ps_trainer.training import background_services, chief, graph
from ps_trainer.training.components import Components
from ps_trainer.training.evaluation import evaluate
from ps_trainer.training.loop import LoopCalls, StepLoop, explained
from ps_trainer.training.peer_tracker import PeerTracker
from ps_trainer.training.progress import WorkerProgress
from ps_trainer.training.step_log import progress_for
from ps_trainer.training.target_watch import TargetWatch
from ps_trainer.training.worker_state import WorkerState
from ps_trainer.training.worker_task import WorkerTask
from ps_trainer.updates.base import ChiefService


class Worker(WorkerTask):
    """A worker that trains.

    Args:
        cluster: with this task's place in it.
        config: the run.
        components: what the run names, loaded.
        server: this task's server.
        create_progress: makes the counter of this worker's steps; None = as the config says.

    Attributes:
        final_values: of a chief whose run is done: model variables, slots and global_step by name.
        summary: of a chief whose run is done: what summary.json holds.
    """

    def __init__(
        self,
        cluster: ClusterConfig,
        config: TrainConfig,
        components: Components,
        server: tf.train.Server,
        *,
        create_progress: Callable[[int], WorkerProgress] | None = None,
    ):
        super().__init__(cluster, config)
        self._components = components
        self._group = group_of(cluster, components.num_stages)
        self._target = server.target
        self._peer_devices = ("/job:ps", *self._group.devices)
        self._session_config = session_config(cluster.device, self._peer_devices)
        self._on_ps: tuple[str, graph.TrainGraph] | None = None  # of a chief: the run id and graph of what is there
        self._drill = worker_faults.create(cluster.task_name, self._writer)
        self._create_progress = create_progress or progress_for(cluster, config)
        self._progress = self._create_progress(config.batch_size)
        self._traffic = SocketTraffic(cluster.own_port, cluster.peer_ports)
        self._is_stepping = False
        self._target_watch: TargetWatch | None = None  # of a chief whose run has one
        self._kept_state: tuple[SavedWorkerState, ...] = ()  # what this worker alone knew when its last steps failed
        self.final_values: dict[str, np.ndarray] = {}
        self.summary: dict[str, Any] = {}

    def _figures(self) -> dict[str, Any]:
        return self._progress.summary()

    def _close(self) -> None:
        self._progress.close()

    def _take_part(self, stop: StopRequest) -> None:
        limit = self._recovery.limit_secs
        stages.wait_for_stages(self._cluster, self._group, self._config, stop, limit_secs=limit)
        if self._cluster.is_chief:
            self._train_as_chief(stop)
        elif self._join(stop):
            run_start = self._current_run.start
            step = run_start.step if run_start is not None else 0
            start = self._recovery.start_name(step, is_first=self._joining == 1)
            with self._heartbeat():
                self._train(stop, self._build_graph(start), None)

    def _train_as_chief(self, stop: StopRequest) -> None:
        before = self._run
        found = run_setup.begin_run(self._controls, self._cluster, self._config)
        run_id = found.run.run_id
        done = run_setup.last_reports_of_done(self._controls, before.run_id if before is not None else "")
        was_ready = before is not None and before.start is not None
        self._run = found.run
        self._say_joined()
        # These processes have ended, so they cannot report themselves to the run that replaces theirs.
        for index, entry in done.items():
            preflight.say_everywhere(self._controls, StatusMessage(run_id=run_id, worker=index, entry=entry))
        try:
            with self._heartbeat():
                start_name = self._recovery.start_name(chief.newest_step(self._config), is_first=not found.is_alive)
                train = self._build_graph(start_name)
                start = chief.Start(is_alive=found.is_alive, was_lost=was_ready or found.was_lost or found.is_alive)
                self._train(stop, train, start)
        except BaseException as error:
            if not self._recovery.may_follow(error):
                status = "interrupted" if isinstance(error, Interrupted) else "failed"
                chief.write_summary(self._config, {"status": status, "reason": str(error), "workers": {}})
                chief.end_run(self._controls[0], self._current_run, error)
            raise

    def _build_graph(self, start: str) -> graph.TrainGraph:
        self._writer.state("building the graph")
        train = graph.build(
            self._components,
            self._cluster,
            self._config,
            self._current_run.run_id,
            start=start,
            joining=self._joining,
            shards=self._current_run.shards,
        )
        self._recovery.is_possible = train.step.exchange is None
        return train

    def _train(self, stop: StopRequest, train: graph.TrainGraph, start: chief.Start | None) -> None:
        """Trains in one run.

        Args:
            stop: asked to stop.
            train: the run's graph.
            start: where the run's state comes from; for the chief.
        """
        model = task_info.of_model(train.model_trace)
        self._facts = dataclasses.replace(self._facts, variables=model.variables, graph=model.graph)
        if self._cluster.is_chief:
            self._run = self._current_run.replace(model=model)
        else:
            preflight.check_model(self._controls[0], self._facts, self._cluster)
        service = train.step.service
        with contextlib.ExitStack() as stack:
            peers = self._peers = PeerTracker(
                self._group,
                self._config,
                self._controls,
                self._current_run,
                rule=self._components.rule,
                service=service,
                needs_all=train.step.exchange is not None,
                stop=stop,
                writer=self._writer,
                on_poll=lambda: self._check_progress(service),
                start_limit_secs=self._recovery.limit_secs,
            )
            stack.callback(peers.close)  # last: closing a session waits for a ps task that is frozen
            session = stack.enter_context(self._bare_session(train))
            if self._cluster.is_chief and self._config.target_metric is not None:
                self._target_watch = TargetWatch(self._config, self._components, self._writer)
                stack.callback(self._target_watch.close)
            try:
                if start is not None:
                    self._set_up(train, session, start)
                stack.enter_context(self._beside(train, stop))
                peers.start()
                checkpointer = chief.Checkpointer(train, self._config) if self._cluster.is_chief else None
                self._run_steps(train, stop, checkpointer, peers)
                if checkpointer is None:
                    return
                counts = self._wait_for_others(train, session, peers)
                values = checkpointer.save(session)
            except BaseException as raised:  # noqa: BLE001 - raised again below, explained
                self._is_stepping = False  # what lies between two rounds is no step that takes long
                error = explained(raised, stop, self._has_state)
                if self._cluster.is_chief:
                    self._rescue(train, session, error)
                raise error from (None if error is raised else raised)
        stop.renew()  # all is saved: from here on no ps task is needed
        self._close_run(train, values, counts, peers.roster)

    def _partners(self, train: graph.TrainGraph) -> tuple[tuple[int, ...], ...]:
        """Worker indices of those who send tensors to each other, a tuple for each circle of them."""
        if train.step.exchange is not None:
            return (tuple(range(self._cluster.num_workers)),)
        return tuple(members_of_groups(self._cluster.num_workers, self._components.num_stages))

    def _beside(self, train: graph.TrainGraph, stop: StopRequest) -> contextlib.AbstractContextManager[None]:
        return background_services.running(
            train,
            stop,
            new_session=lambda: self._bounded_session(train),
            target=self._target,
            own_config=session_config(self._cluster.device, peers=()),
            ps_0=self._controls[0],
            run_id=self._current_run.run_id,
            worker_index=self._cluster.worker_index,
            on_wait=lambda: self._progress.wait_for_data(),
            num_steps=lambda: self._progress.local_steps,
            pause_secs=self._config.heartbeat_timeout_secs / 2,  # less than the silence after which it counts as lost
        )

    def _bare_session(self, train: graph.TrainGraph) -> tf.Session:
        return tf.Session(self._target, graph=train.graph, config=self._session_config)

    def _bounded_session(self, train: graph.TrainGraph) -> tf.Session:
        """A session each call of which has a deadline, for a thread beside the steps."""
        config = session_config(self._cluster.device, self._peer_devices, self._config.heartbeat_timeout_secs)
        # By loopback, as the task's own address may be one that only the others can reach.
        return tf.Session(f"grpc://localhost:{self._cluster.own_port}", graph=train.graph, config=config)

    def _set_up(self, train: graph.TrainGraph, session: tf.Session, start: chief.Start) -> None:
        chief.write_config(self._cluster, self._config)
        self._writer.state("setting up the parameters")
        step, how = chief.prepare_state(train, session, self._config, self._cluster.num_ps, start)
        self._writer.state(f"{how}, at step {step}")
        if self._recovery.loss is not None:
            reached = max(step, self._recovery.reached)
            self._writer.event("recovered", self._cluster.task_name, step, reached=reached, rolled_back=reached - step)
        if self._target_watch is not None and how != INITIALISED:
            self._target_watch.look(train.state.snapshot(session))
            self._run = self._current_run.replace(reached=self._target_watch.reached())
        self._run = self._current_run.replace(
            status=RunStatus.READY,
            start=RunStart(step=step, how=how),
            partners=self._partners(train),
            shards=train.shard_reader.shards(self._components.rule) if train.shard_reader is not None else None,
        )
        self._controls[0].write_run(self._run)
        self._free_old_run()
        self._on_ps = (self._run.run_id, train)

    def _free_old_run(self) -> None:
        """Frees what a run that this one was begun in place of has left on the ps tasks that live."""
        if self._on_ps is not None and self._on_ps[0] != self._current_run.run_id:
            old = self._on_ps[1]
            with self._bare_session(old) as session:
                session.run(old.free_op)

    def _run_steps(
        self,
        train: graph.TrainGraph,
        stop: StopRequest,
        checkpointer: chief.Checkpointer | None,
        peers: PeerTracker,
    ) -> None:
        peers.wait_for_stages()
        own_state = WorkerState(
            train.worker_state,
            train.push_counts,
            train.after_pushes,
            self._config,
            self._cluster.worker_index,
            knows_first=not train.step.worker_state,
            kept=self._kept_state,
        )
        with self._keeping(own_state), train.graph.as_default(), self._monitored_session(train) as session:
            self._say(Status.TRAINING)
            if not peers.wait_for_start():
                return
            self._writer.state("training")
            self._begin_progress(train)
            self._is_stepping = True
            loop = StepLoop(
                train,
                self._progress,
                stop,
                self._loop_calls(train, own_state, checkpointer, peers),
                max_steps=self._config.max_steps,
                has_hooks=bool(self._components.hooks),
            )
            reason = loop.run(session)
            self._is_stepping = False
            self._report()
        logging.info("training ended at step %d by %s", self._progress.global_step, reason.value)

    def _monitored_session(self, train: graph.TrainGraph) -> tf.train.MonitoredSession:
        """The session of the steps: it initialises, restores and saves nothing."""
        return tf.train.MonitoredTrainingSession(
            master=self._target,
            is_chief=self._cluster.is_chief,
            checkpoint_dir=None,
            scaffold=train.scaffold,
            hooks=[hook() for hook in self._components.hooks],
            save_summaries_steps=None,
            save_summaries_secs=None,
            log_step_count_steps=None,
            config=self._session_config,
            max_wait_secs=int(self._config.start_timeout_secs) + 31,
            stop_grace_period_secs=5,
        )

    def _begin_progress(self, train: graph.TrainGraph) -> None:
        """Counts from here: a step's time has nothing of the wait for the start."""
        self._progress.close()
        self._progress = self._create_progress(self._config.batch_size)
        if train.shard_reader is not None:
            self._progress.count_examples(train.shard_reader.num_examples)
        if train.straggler is not None:
            self._progress.count_delays(lambda: train.straggler.last_delay)

    def _loop_calls(
        self,
        train: graph.TrainGraph,
        own_state: WorkerState,
        checkpointer: chief.Checkpointer | None,
        peers: PeerTracker,
    ) -> LoopCalls:
        def after_join(raw: tf.Session, global_step: int) -> None:
            own_state.restore(raw, global_step)
            sent_bytes = raw.make_callable(train.sent_bytes)
            # The graph has gone to the ps tasks by now.
            self._progress.watch(self._traffic.sample, lambda: int(sent_bytes()))

        def after_step(raw: tf.Session, counts: Sequence[np.ndarray]) -> None:
            self._recovery.note_step(self._progress.global_step)
            if self._drill is not None:
                self._drill.after_step(self._progress.global_step)
            if self._progress.secs_since_report() >= self._config.report_secs:
                self._report()
            own_state.after_step(raw, self._progress.global_step, counts)
            saved = checkpointer.save_if_due(raw, self._progress.global_step) if checkpointer is not None else None
            if saved is not None:
                own_state.save(raw, self._progress.global_step)
                if self._target_watch is not None:
                    self._target_watch.offer(saved)

        return LoopCalls(after_join, after_step, own_state.save, lambda: self._is_enough(peers))

    @contextlib.contextmanager
    def _keeping(self, own_state: WorkerState) -> Iterator[None]:
        """Keeps what this worker alone knows when its steps fail, for its next join or its next process."""
        try:
            yield
        except BaseException:
            self._kept_state = own_state.keep(
                self._target,
                session_config(self._cluster.device, peers=()),
                num_sent=self._progress.sent_steps,
                global_step=self._progress.global_step,
                in_flight=self._progress.is_in_step,
            )
            raise
        self._kept_state = ()

    def _is_enough(self, peers: PeerTracker) -> bool:
        """Whether the target metric is reached; the chief finds that, and tells the others."""
        if self._target_watch is None:
            return peers.is_target_reached
        if not self._current_run.reached and (reached := self._target_watch.reached()):
            self._run = self._current_run.replace(reached=reached)
            self._controls[0].write_run(self._run)
            self._writer.state(reached)
        return bool(self._current_run.reached)

    def _check_progress(self, service: ChiefService | None) -> None:
        """Raises what keeps this worker from going on, while its step loop may be blocked."""
        error = service.error() if service is not None else None
        if error is not None:
            raise reason_to_stop(error) from error
        idle = time.monotonic() - max(self._progress.last_step_at, self._peers.waited_at)
        if self._is_stepping and idle > self._config.stall_timeout_secs:
            raise StalledError(
                f"{self._cluster.task_name} has made no step for {idle:.0f} s, at global step"
                f" {self._progress.global_step}: a worker or ps task that it waits for is slow or stuck;"
                " look at their logs, or raise --stall_timeout_secs"
            )

    def _report(self) -> None:
        figures = self._progress.report()
        if figures:
            self._writer.train(self._progress.global_step, figures)

    def _wait_for_others(self, train: graph.TrainGraph, session: tf.Session, peers: PeerTracker) -> dict[str, Any]:
        """Waits until no other worker trains any more; returns the counts of the rule's service."""
        service = train.step.service
        if service is not None:
            service.worker_left(self._cluster.worker_index, self._joining)
        peers.wait_for_end(lambda: int(session.run(train.current_step)))
        return service.summary() if service is not None else {}

    def _close_run(
        self,
        train: graph.TrainGraph,
        values: dict[str, np.ndarray],
        counts: dict[str, Any],
        roster: dict[int, WorkerEntry],
    ) -> None:
        """Evaluates, writes the summary, and frees what the ps tasks hold of the run."""
        self._writer.state("evaluating")
        metrics = evaluate(self._components, values)
        step = int(values["global_step"])
        self._writer.eval(step, metrics)
        self.final_values = {name: value for name, value in values.items() if name not in train.state.count_names}
        self.summary = chief.summarize(step, metrics, counts, self._progress.summary(), roster)
        if self._target_watch is not None:
            self.summary["target_metric"] = self._target_watch.summary(step, metrics)
        if train.shard_reader is not None:
            self.summary["coverage"] = train.shard_reader.coverage(values)
        chief.write_summary(self._config, self.summary)
        chief.end_run(self._controls[0], self._current_run)
        with contextlib.suppress(tf.errors.OpError), self._bounded_session(train) as session:  # a ps task may be gone
            session.run(train.free_op)

    def _rescue(self, train: graph.TrainGraph, session: tf.Session, error: BaseException) -> None:
        """Saves what there is before the run is given up or begun anew, and lets waiting workers go."""
        was_waited_for = isinstance(error, StartTimeoutError) and self._recovery.loss is not None
        if was_waited_for or isinstance(error, Interrupted | PeerFailedError | StalledError):
            try:
                chief.check_losses(self._controls[0])
                chief.Checkpointer(train, self._config).save(session)
            except (tf.errors.OpError, PsTrainerError) as failure:
                logging.warning("no checkpoint was saved: %s", failure)
        if train.step.service is not None:
            try:
                train.step.service.release()
            except tf.errors.OpError as failure:
                logging.warning("waiting workers could not be let go: %s", failure)

"""`Chief`: the worker that also sets up the run, saves its checkpoints and closes it.

    _enter_run        finds out whether the run continues, writes its record; reports a failure
      _train          trains as every worker does; then evaluates, and closes the run
        _set_up       sets up the state on the ps tasks, and declares the run ready
        _run_steps    as in every worker; saves after a step when it is time to
        _end_run      waits for the other workers, and saves the final checkpoint
        _rescue       saves a checkpoint, if a failure of the run leaves a sound state; releases waiting workers

`worker.Worker` calls these methods; its outline says what they do on every other worker.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.checkpoints.save_tally import SaveTally
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.worker_groups import members_of_groups
from ps_trainer.config import TrainConfig
from ps_trainer.errors import (
    Interrupted,
    NanLossError,
    PeerFailedError,
    PsTrainerError,
    StalledError,
    StartTimeoutError,
    UsageError,
)
from ps_trainer.runtime import lost_task_errors, preflight, run_setup
from ps_trainer.runtime.control import PsClient, PsControl
from ps_trainer.runtime.job_runner import StopRequest, call_until_final, call_until_stopped
from ps_trainer.runtime.run_record import (
    INITIALISED,
    EvaluationCall,
    RunStatus,
    Status,
    StatusMessage,
    TaskFingerprint,
)
from ps_trainer.training import data_changes, initial_state, run_files, run_summary, target_watch
from ps_trainer.training.checkpointer import Checkpointer, check_checkpoints, newest_step
from ps_trainer.training.components import Components
from ps_trainer.training.evaluation import evaluate
from ps_trainer.training.evaluation_helper import can_help
from ps_trainer.training.evaluation_pace import MIN_LIMIT_SECS, EvaluationLimits
from ps_trainer.training.graph_parts.worker_state_saver import WorkerStateSaver
from ps_trainer.training.initial_state import PriorState
from ps_trainer.training.peer_tracker import PeerTracker
from ps_trainer.training.run_summary import RunFailure, RunSummary
from ps_trainer.training.shared_evaluation import SharedEvaluation
from ps_trainer.training.state_reader import read_now
from ps_trainer.training.target_watch import TargetWatch
from ps_trainer.training.train_graph import TrainGraph
from ps_trainer.training.worker import ActiveRun, GraphStart, Worker
from ps_trainer.training.worker_progress import StepObserver, WorkerProgress
from ps_trainer.updates.chief_service import GradientCounts


class _Results(NamedTuple):
    """Results of a run whose steps are over.

    Attributes:
        values: Final values of the state, by name.
        counts: Gradients of each worker, from `ChiefService.gradient_counts`.
        peers: The other workers, with their last reports.
    """

    values: dict[str, np.ndarray]
    counts: GradientCounts | None
    peers: PeerTracker


class _SetUpRun(NamedTuple):
    """The last run that this chief has set up on the ps tasks."""

    run_id: str
    train: TrainGraph


class Chief(Worker):
    """The worker with index 0, which also trains.

    Args:
        cluster: Cluster, with this task's place in it.
        config: Settings of the run.
        components: Components of the run.
        server: Server of this task; None in a process that trains alone.
        create_progress: Factory for the counter of this worker's steps; None = as the config says.
        observer: Object that follows the steps and may ask for the end of the run; None = no object.

    Attributes:
        final_values: Model variables, slots and global_step by name, once the run is done.
        summary: Result of the run, once it is done.
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
        super().__init__(cluster, config, components, server, create_progress=create_progress, observer=observer)
        self._prior_state = PriorState()
        self._set_up_run: _SetUpRun | None = None
        self._checkpointer: Checkpointer | None = None  # of the run that is set up
        self._save_tally = SaveTally()
        self._target_watch: TargetWatch | None = None  # of a run with a target metric
        self._results: _Results | None = None
        self.final_values: dict[str, np.ndarray] = {}
        self.summary: RunSummary | None = None
        if components.note:
            self._writer.state(f"note: {components.note}")
        if advice := getattr(components.dataset, "advice", ""):
            self._warn(advice)

    def _enter_run(self, stop: StopRequest) -> None:
        """Begins a run, or takes up the run that continues, and trains in it."""
        before = self._run
        may_attach = self._components.rule.is_crash_safe
        num_holders = self._components.count_holders(self._group.trainers, spans_hosts=self._cluster.spans_hosts)
        found = run_setup.begin_run(
            self._controls, self._cluster, self._config, may_attach=may_attach, num_holders=num_holders
        )
        # Asked before the chief joins: then the ps tasks forget the reports of the run before.
        done = run_setup.last_reports_of_done(
            self._controls,
            before.run_id if before is not None else "",
            is_colocated=self._cluster.is_colocated,
        )
        self._run = found.run
        self._say_joined()
        # The processes of these workers have ended, so they cannot report to the new run that they are done.
        for index, entry in done.items():
            message = StatusMessage(run_id=found.run.run_id, worker=index, entry=entry)
            preflight.send_to_all(self._controls, message)
        was_ready = before is not None and before.start is not None
        self._prior_state = PriorState(found.is_alive, was_there=was_ready or found.was_lost or found.is_alive)
        try:
            with self._heartbeat():
                name = self._recovery.start_name(newest_step(self._config), is_first=not found.is_alive)
                run = found.run
                start = GraphStart(run.run_id, name, self._join_number, run.shards, run.spans_hosts)
                self._train(self._build_graph(start, stop), stop)
        except BaseException as error:
            if not self._recovery.may_follow(error):
                status = Status.INTERRUPTED if isinstance(error, Interrupted) else Status.FAILED
                # A run that is refused before it is set up leaves the result of the run before in the folder.
                is_refused = isinstance(error, UsageError) and self._set_up_run is None
                if not (is_refused and run_files.has_summary(self._config)):
                    run_files.write_summary(self._config, RunFailure(status=status, reason=str(error)))
                self._note_end(f"worker 0 {status}: {lost_task_errors.reason(error)}")
            raise

    def _train(self, train: TrainGraph, stop: StopRequest) -> None:
        started = time.monotonic()
        super()._train(train, stop)
        stop.renew()  # everything is saved, so the loss of a ps task does no harm any more
        limits = EvaluationLimits(
            num_examples=self._config.eval_examples,
            max_secs=max(MIN_LIMIT_SECS, time.monotonic() - started),
            check=stop.check,
            report=self._writer.state,
        )
        self._close_run(train, limits, stop)

    def _agree_on_model(self, model: TaskFingerprint) -> None:
        """Notes the model in the run record, by which the other workers compare theirs."""
        self._run = self._current_run.replace(model=model)

    def _set_up(self, run: ActiveRun, stack: contextlib.ExitStack) -> None:
        self._writer.state("setting up the parameters")
        self._checkpointer = None
        set_up = functools.partial(initial_state.set_up, run.train, run.session, self._config, self._prior_state)
        # Large parameters take many seconds to make, and to send. A state that is alive is saved before the end.
        start = set_up() if self._prior_state.is_alive else call_until_final(set_up, run.stop)
        # After the comparison with the checkpoint: a run that is refused must not replace what belongs to it.
        resolved = dataclasses.replace(self._config, model_option=self._components.model_option)
        run_files.write_config(self._cluster, resolved)
        if start.how != INITIALISED and (warning := data_changes.warning(self._config, self._components.dataset)):
            self._warn(warning)
        run_files.write_dataset(self._config, self._components.dataset)
        run_files.write_vocabulary(self._config, self._components.dataset)
        self._writer.state(f"{start.how}, at step {start.step}")
        if self._recovery.loss is not None:
            self._report_rollback(start.step)
        if self._config.target_metric is not None:
            watch = self._target_watch = TargetWatch(self._config, self._components, self._writer)
            stack.callback(watch.close)
            # The chief before this one may have been lost when the target was reached already.
            if start.how != INITIALISED:
                values = read_now(run.train, run.session, self._config)
                call_until_final(lambda: watch.evaluate_now(values), run.stop)
                self._run = self._current_run.replace(reached=watch.poll())
        reader = run.train.shard_reader
        self._run = self._current_run.replace(
            status=RunStatus.READY,
            start=start,
            partners=self._partners(run.train),
            shards=reader.shards(self._components.rule) if reader is not None else None,
        )
        self._controls[0].write_run(self._run)
        # After the record: a worker whose step then meets a freed variable finds the reason in the record.
        self._free_old_run()
        self._set_up_run = _SetUpRun(self._run.run_id, run.train)
        self._checkpointer = Checkpointer(run.train, self._config, run.session, self._save_tally)
        # The session with which it reads ends later.
        stack.callback(self._checkpointer.abandon)

    def _partners(self, train: TrainGraph) -> tuple[tuple[int, ...], ...]:
        """Returns the groups of worker indices that send tensors to each other."""
        if train.step.exchange is not None:
            return (tuple(range(self._cluster.num_workers)),)
        return tuple(members_of_groups(self._cluster.num_workers, self._components.num_stages))

    def _free_old_run(self) -> None:
        """Frees the state of a run that this one replaces, on the ps tasks that were not restarted."""
        old = self._set_up_run
        if old is not None and old.run_id != self._current_run.run_id:
            with self._sessions.open_plain(old.train) as session:
                session.run(old.train.free_op)

    def _save_if_due(self, raw: tf.Session, state_saver: WorkerStateSaver) -> None:
        if self._checkpointer is None:
            return
        values = self._checkpointer.take_saved()
        if values is not None and self._target_watch is not None:
            self._target_watch.offer(values)
        step = self._progress.global_step
        if self._checkpointer.begin_if_due(raw, step):
            state_saver.save(raw, step)

    def _is_save_due(self, global_step: int) -> bool:
        return self._checkpointer is not None and self._checkpointer.is_due(global_step)

    def _is_target_reached(self, peers: PeerTracker) -> bool:
        if self._target_watch is None and self._observer is None:
            return peers.is_target_reached
        if not self._current_run.reached and (reached := self._find_end()):
            self._run = self._current_run.replace(reached=reached)
            self._controls[0].write_run(self._run)
            self._writer.state(reached)
        return bool(self._current_run.reached)

    def _find_end(self) -> str:
        """Returns why the run ends before its last step, by the target metric or the observer; empty if it does not."""
        return (self._target_watch.poll() if self._target_watch is not None else "") or self._reason_to_end()

    def _end_run(self, run: ActiveRun) -> None:
        """Waits until no other worker trains any more, and saves."""
        service = run.train.step.service
        if service is not None:
            # The chief pushes nothing more, so no update of the other workers may wait for it.
            service.worker_left(self._cluster.worker_index, self._join_number)
        run.peers.wait_for_end(lambda: int(run.session.run(run.train.current_step)))
        # After the wait, when no worker pushes any more.
        counts = service.gradient_counts() if service is not None else None
        if self._checkpointer is None:
            raise RuntimeError("the run was not set up")
        self._results = _Results(dict(self._checkpointer.save(run.session)), counts, run.peers)

    def _close_run(self, train: TrainGraph, limits: EvaluationLimits, stop: StopRequest) -> None:
        """Evaluates, writes the summary, and frees the state of the run on the ps tasks."""
        if self._results is None:
            raise RuntimeError("the steps of the run are not over yet")
        values, counts, peers = self._results
        self._writer.state("evaluating")
        shared = self._shared_evaluation(peers)
        metrics = call_until_stopped(lambda: evaluate(self._components, values, limits, shared), stop)
        step = int(values["global_step"])
        self._writer.eval(step, metrics)
        if warning := self._progress.warning_of_metrics(metrics):
            self._warn(warning)
        self.final_values = {name: value for name, value in values.items() if name not in train.state.count_names}
        watch, reader = self._target_watch, train.shard_reader
        self.summary = RunSummary(
            global_step=step,
            metrics=metrics,
            workers=run_summary.of_workers(self._progress.summary(), peers.roster, counts),
            target=watch.outcome(step, metrics) if watch is not None else None,
            coverage=reader.coverage(values) if reader is not None else None,
            saves=self._save_tally if self._config.checkpoint_dir is not None else None,
        )
        # Before the end is noted: the evaluator takes this file as the sign that a silent ps 0 has ended with the run.
        run_files.write_summary(self._config, self.summary)
        self._note_end(failure="")
        # A ps task may be gone.
        with contextlib.suppress(tf.errors.OpError), self._sessions.open_bounded(train) as session:
            session.run(train.free_op)

    def _shared_evaluation(self, peers: PeerTracker) -> SharedEvaluation | None:
        """Returns the evaluation with the help of the other workers; None without any that could help."""
        ps_0, others = self._controls[0], {index: entry for index, entry in peers.roster.items() if index}
        if not others or not isinstance(ps_0, PsClient) or not can_help(self._components, self._config.eval_examples):
            return None

        def write_call(call: EvaluationCall) -> None:
            self._run = self._current_run.replace(evaluation=call)
            ps_0.write_run(self._run)

        return SharedEvaluation(
            ps_0,
            write_call=write_call,
            workers=others,
            host=self._fingerprint.host,
            num_test_examples=self._components.dataset.num_test_examples,
        )

    def _after_done(self, stop: StopRequest) -> None:
        """Does nothing: the evaluation is over."""

    def _rescue(self, run: ActiveRun, error: BaseException) -> None:
        """Saves a checkpoint, unless the state is lost or not finite, and releases workers that wait in a step."""
        if self._checkpointer is not None:
            self._checkpointer.abandon()  # the state is saved once more below, if it is sound
        # If the chief gives up the wait for a lost task, the parameters are still sound. After a NaN, they are not.
        was_waited_for = isinstance(error, StartTimeoutError) and self._recovery.loss is not None
        if was_waited_for or isinstance(error, Interrupted | PeerFailedError | StalledError):
            try:
                _check_losses(self._controls[0])
                if self._has_progressed(run):
                    # Not `self._checkpointer`: the failure may have come before that was created.
                    Checkpointer(run.train, self._config, run.session, self._save_tally).save(run.session)
            except (tf.errors.OpError, PsTrainerError) as failure:
                logging.warning("no checkpoint was saved: %s", failure)
        if run.train.step.service is not None:
            try:
                run.train.step.service.release()
            except tf.errors.OpError as failure:
                logging.warning("waiting workers could not be released: %s", failure)

    def _has_progressed(self, run: ActiveRun) -> bool:
        """Returns whether the ps tasks may hold a state that no checkpoint has and the seed does not give again."""
        if self._prior_state.is_alive:
            return True
        if self._checkpointer is None or (start := self._current_run.start) is None:
            return False  # the set-up is not over
        return self._progress.local_steps > 0 or int(run.session.run(run.train.current_step)) != start.step


def check_as_chief(config: TrainConfig, components: Components) -> None:
    """Checks what only the chief uses: the target metric, and the folder of the checkpoints, which it repairs.

    Raises:
        UsageError: The target metric does not exist, or the run cannot continue from the checkpoints with these data.
    """
    target_watch.check(config, components)
    check_checkpoints(config)
    data_changes.check(config, components.dataset)


def _check_losses(ps_0: PsControl) -> None:
    """Raises NanLossError if a worker has reported a NaN loss, since the parameters are NaN then, too.

    Asks ps 0 again instead of the watcher, because a launcher ends the chief right after that worker.
    """
    roster = ps_0.read().roster
    workers = roster.workers if roster is not None else {}
    diverged = [str(index) for index, entry in workers.items() if entry.error == NanLossError.__name__]
    if diverged:
        raise NanLossError(f"worker {', '.join(diverged)} reported a NaN loss; the last checkpoint is unchanged")

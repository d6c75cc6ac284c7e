"""`MonitoredTrainingSession`: the session of a script, with deadlines, named causes, and an end for every job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

import tensorflow.compat.v1 as tf
from absl import logging
from tensorflow.python.training.monitored_session import USE_DEFAULT

from ps_trainer.errors import OptionError
from ps_trainer.tf1 import exit_codes, packing, saving, sync_replicas, tasks
from ps_trainer.tf1.saving import CheckpointSaverHook
from ps_trainer.tf1.script_job import ScriptJob, check_is_chief
from ps_trainer.tf1.session_creators import JobSessionCreator
from ps_trainer.tf1.staleness import StalenessHook
from ps_trainer.tf1.sync_replicas import SyncReplicasHook

_DEFAULT_MAX_WAIT_SECS = 7200
_DEFAULT_SAVE_SECS = 600
_DEFAULT_SUMMARY_STEPS = 100


def MonitoredTrainingSession(  # noqa: N802 - TensorFlow's name
    master: str = "",
    is_chief: bool = True,
    checkpoint_dir: str | None = None,
    scaffold: tf.train.Scaffold | None = None,
    hooks: Sequence[tf.train.SessionRunHook] | None = None,
    chief_only_hooks: Sequence[tf.train.SessionRunHook] | None = None,
    save_checkpoint_secs: Any = USE_DEFAULT,
    save_summaries_steps: Any = USE_DEFAULT,
    save_summaries_secs: Any = USE_DEFAULT,
    config: tf.ConfigProto | None = None,
    stop_grace_period_secs: int = 120,
    log_step_count_steps: int = 100,
    max_wait_secs: int = _DEFAULT_MAX_WAIT_SECS,
    save_checkpoint_steps: Any = USE_DEFAULT,
    summary_dir: str | None = None,
    save_graph_def: bool = True,
) -> tf.train.MonitoredSession:
    """Creates a session as `tf.train.MonitoredTrainingSession` does, with the same arguments.

    With the target of a `Server` of this process as `master`, the session takes part in the job's failure contract
    (`docs/explanation/failure-model.md`). With "", for training in one process, it is TensorFlow's own.

    Args:
        master: Target of the task's server.
        is_chief: Whether this worker is the chief of the cluster; it must agree with the cluster.
        checkpoint_dir: Folder of the checkpoints; only the chief uses it.
        scaffold: Ops that initialise the model.
        hooks: Hooks of this worker.
        chief_only_hooks: Hooks of the chief.
        save_checkpoint_secs: Seconds between two checkpoints; 600 by default.
        save_summaries_steps: Steps between two summaries; 100 by default.
        save_summaries_secs: Seconds between two summaries.
        config: Configuration of the session. Device filters are added unless it has some.
        stop_grace_period_secs: Longest wait for the threads of queue runners at the end.
        log_step_count_steps: Steps between two reports of the steps per second.
        max_wait_secs: Longest wait of a worker for the chief, if it is not the default. Without it,
            PS_TRAINER_START_TIMEOUT_SECS.
        save_checkpoint_steps: Steps between two checkpoints.
        summary_dir: Folder of the summaries; by default `checkpoint_dir`.
        save_graph_def: Whether to save the graph beside the checkpoints.

    Raises:
        OptionError: `is_chief` contradicts the cluster, or no variable lies on a ps task. The hook of the
            `SyncReplicasOptimizer` is missing, or `master` is the target of another server.
        PsTrainerError: The job cannot begin.
    """
    steps_of_summaries, secs_of_summaries = _intervals(
        save_summaries_steps, save_summaries_secs, (_DEFAULT_SUMMARY_STEPS, None)
    )
    steps, secs = _intervals(save_checkpoint_steps, save_checkpoint_secs, (None, _DEFAULT_SAVE_SECS))
    task = tasks.task_at(master)
    if task is None:
        return tf.train.MonitoredTrainingSession(
            master,
            is_chief,
            checkpoint_dir,
            scaffold,
            hooks,
            chief_only_hooks,
            secs,
            steps_of_summaries,
            secs_of_summaries,
            config,
            stop_grace_period_secs,
            log_step_count_steps,
            max_wait_secs,
            steps,
            summary_dir,
            save_graph_def,
        )
    check_is_chief(task, is_chief)
    scaffold = scaffold or tf.train.Scaffold()
    all_hooks = [*_staleness_hooks(), *(hooks or ())]
    if is_chief:
        all_hooks = [
            *(chief_only_hooks or ()),
            *_summary_hooks(
                summary_dir or checkpoint_dir, scaffold, log_step_count_steps, steps_of_summaries, secs_of_summaries
            ),
            *_saver_hooks(checkpoint_dir, scaffold, steps, secs, save_graph_def=save_graph_def),
            *all_hooks,
        ]
    waits = None if max_wait_secs == _DEFAULT_MAX_WAIT_SECS else float(max_wait_secs)
    creator = JobSessionCreator(task, scaffold, checkpoint_dir, config, waits)
    return MonitoredSession(creator, all_hooks, stop_grace_period_secs)


def _intervals(steps: Any, secs: Any, default: tuple[int | None, int | None]) -> tuple[Any, Any]:
    """Returns (steps, seconds) between two saves: `default` if the script gives neither."""
    if steps == USE_DEFAULT and secs == USE_DEFAULT:
        return default
    return (None if steps == USE_DEFAULT else steps), (None if secs == USE_DEFAULT else secs)


def _summary_hooks(
    directory: str | None, scaffold: tf.train.Scaffold, log_steps: int | None, steps: int | None, secs: float | None
) -> list[tf.train.SessionRunHook]:
    hooks: list[tf.train.SessionRunHook] = []
    if directory and log_steps and log_steps > 0:
        hooks.append(tf.train.StepCounterHook(output_dir=directory, every_n_steps=log_steps))
    if directory and ((steps and steps > 0) or (secs and secs > 0)):
        saver = tf.train.SummarySaverHook(scaffold=scaffold, save_steps=steps, save_secs=secs, output_dir=directory)
        hooks.append(saver)
    return hooks


def _saver_hooks(
    directory: str | None,
    scaffold: tf.train.Scaffold,
    steps: int | None,
    secs: float | None,
    *,
    save_graph_def: bool,
) -> list[tf.train.SessionRunHook]:
    if not directory or not ((secs and secs > 0) or (steps and steps > 0)):
        return []
    saving.make_folder(directory)
    hook = CheckpointSaverHook(
        directory, save_steps=steps, save_secs=secs, scaffold=scaffold, save_graph_def=save_graph_def
    )
    return [hook]


def _staleness_hooks() -> list[tf.train.SessionRunHook]:
    """Returns a hook where staleness can be measured; without packed variables the reads have no common moment."""
    graph = tf.get_default_graph()
    layout = packing.of_graph(graph)
    # A synchronous update has no stale gradients, and its train op belongs to the chief.
    return [StalenessHook(layout)] if layout is not None and sync_replicas.of_graph(graph) is None else []


def _check_hooks(hooks: Iterable[tf.train.SessionRunHook]) -> None:
    has_hook = any(isinstance(hook, SyncReplicasHook) for hook in hooks)
    if sync_replicas.of_graph(tf.get_default_graph()) is not None and not has_hook:
        raise OptionError(
            "hooks lacks the one of SyncReplicasOptimizer.make_session_run_hook(is_chief); add it on every worker"
        )


class _WaitForOthers(tf.train.SessionRunHook):
    """Lets the chief wait for the other workers before the other hooks end, of which one saves."""

    def __init__(self, creator: JobSessionCreator):
        self._creator = creator

    def end(self, session: tf.Session) -> None:
        if self._creator.job is not None:
            self._creator.job.wait_for_others(session)


class MonitoredSession(tf.train.MonitoredSession):
    """`tf.train.MonitoredSession`, with the same arguments; it reports its end to the job.

    Args:
        session_creator: `ChiefSessionCreator` or `WorkerSessionCreator` of this module; with TensorFlow's own, the
            session is TensorFlow's own.
        hooks: Hooks of this worker.
        stop_grace_period_secs: Longest wait for the threads of queue runners at the end.

    Raises:
        OptionError: The hook of the `SyncReplicasOptimizer` is missing.
        PsTrainerError: The job cannot begin.
    """

    def __init__(
        self,
        session_creator: tf.train.SessionCreator | None = None,
        hooks: Iterable[tf.train.SessionRunHook] | None = None,
        stop_grace_period_secs: int = 120,
    ):
        creator = session_creator if isinstance(session_creator, JobSessionCreator) else None
        self._creator = creator
        self._user_hooks = list(hooks or ())
        self._is_over = False
        if creator is None:
            super().__init__(session_creator, self._user_hooks, stop_grace_period_secs)
            return
        _check_hooks(self._user_hooks)
        try:
            super().__init__(creator, [_WaitForOthers(creator), *self._user_hooks], stop_grace_period_secs)
        except BaseException as error:
            if creator.job is not None:
                creator.job.leave(error)
            raise
        savers = [hook.save_now for hook in self._user_hooks if isinstance(hook, CheckpointSaverHook)]
        self._job.save = savers[0] if savers and self._job.is_chief else None

    def should_stop(self) -> bool:
        """Returns whether to leave the loop: a hook asks to stop, or the run had ended before this worker joined."""
        return self._has_ended or super().should_stop()

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Runs as in TensorFlow; raises OutOfRangeError when the run had ended before this worker joined."""
        self._check_has_begun()
        return super().run(fetches, feed_dict, options, run_metadata)

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        """Runs as in TensorFlow; raises OutOfRangeError when the run had ended before this worker joined."""
        self._check_has_begun()
        return super().run_step_fn(step_fn)

    def close(self) -> None:
        """Ends this worker's part in the job."""
        if self._creator is None:
            super().close()
        else:
            self._leave(None, None)

    def __exit__(
        self, exception_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if self._creator is None:
            return bool(super().__exit__(exception_type, error, traceback))
        is_end_of_data = isinstance(error, tf.errors.OutOfRangeError | StopIteration)
        if error is not None and (is_end_of_data or exit_codes.is_good_end(error)):
            self._leave(None, None)
        else:
            self._leave(exception_type, error)
        return is_end_of_data

    @property
    def _job(self) -> ScriptJob:
        if self._creator is None or self._creator.job is None:
            raise RuntimeError("the session was not created")
        return self._creator.job

    @property
    def _has_ended(self) -> bool:
        """Whether the run had ended before this worker joined."""
        return self._creator is not None and self._job.has_ended

    def _check_has_begun(self) -> None:
        if self._has_ended:
            raise tf.errors.OutOfRangeError(None, None, "the run ended before this worker joined")

    def _leave(self, exception_type: type[BaseException] | None, error: BaseException | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        if error is None and self._job.has_ended:
            self._user_hooks = []
            error_type: type[BaseException] | None = tf.errors.OutOfRangeError  # no hook has anything to end
        else:
            error_type = exception_type
        if error is not None:
            self._job.save_last(error)
        try:
            self._close_internal(error_type)
        except BaseException as failure:
            if error is None:
                self._job.save_last(failure)
                self._job.leave(failure)
                raise
            logging.warning("while the session was closed: %s", failure)
        self._job.leave(error)

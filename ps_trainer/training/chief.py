"""What only the chief does: sets up the run's state, saves it, and closes the run."""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

import ps_trainer
from ps_trainer.checkpoints import durable_files, folder_listing, writer
from ps_trainer.checkpoints import reader as checkpoint_lib
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.errors import CheckpointError, Interrupted, NanLossError, SaveError
from ps_trainer.runtime.control import PsControl
from ps_trainer.runtime.run_record import INITIALISED, RunRecord, RunStatus, Status, WorkerEntry
from ps_trainer.store.placement_report import placement_report
from ps_trainer.training import warm_start
from ps_trainer.training.graph import TrainGraph


class Start(NamedTuple):
    """What a chief knows of the run's state before it sets it up.

    Attributes:
        is_alive: the ps tasks may hold it.
        was_lost: there was state; where the ps tasks do not hold it, it is lost.
    """

    is_alive: bool = False
    was_lost: bool = False


def prepare_state(
    train: TrainGraph, session: tf.Session, config: TrainConfig, num_ps: int, start: Start
) -> tuple[int, str]:
    """Brings the run's state on the ps tasks to where training goes on; returns global_step and how.

    State that is alive on the ps tasks (after the chief alone was restarted) is attached to; else the newest loadable
    checkpoint is restored; else the model's initial values, or those of `init_from`, are set, and saved.

    Raises:
        CheckpointError: the checkpoints cannot be continued from, or state of a living run was lost and
            there is no checkpoint.
        SaveError: the initial values could not be saved.
    """
    logging.info("placement of the parameters:\n%s", placement_report(train.store.pieces, num_ps))
    if start.is_alive and train.step.exchange is None and not train.state.lost(session):
        return _begin(train, session, "attached to the run on the ps tasks")
    session.run(train.init_state_op)
    checkpoint = checkpoint_lib.latest(config.checkpoint_dir) if config.checkpoint_dir else None
    if checkpoint is not None:
        train.state.restore(session, checkpoint)
        return _begin(train, session, f"restored {checkpoint.prefix}")
    if start.was_lost:
        raise CheckpointError(
            "the run's state on the ps tasks is lost and there is no checkpoint; to start from step 0, restart the"
            " ps tasks, and give a --logdir so that the next loss can be recovered from"
        )
    initial_values = train.model_trace.initial_values()
    if config.init_from is not None:
        initial_values |= warm_start.values(config.init_from, train.model_trace.specs)
    train.state.initialize(session, initial_values)
    if config.checkpoint_dir is not None:  # so that there always is one to go back to
        writer.write(config.checkpoint_dir, 0, train.state.snapshot(session), config.keep_checkpoints)
    return _begin(train, session, INITIALISED)


def _begin(train: TrainGraph, session: tf.Session, how: str) -> tuple[int, str]:
    if train.step.prepare_op is not None:
        session.run(train.step.prepare_op)
    if train.push_counts is not None:
        train.push_counts.begin(session)
    if train.step.exchange is not None:
        train.step.exchange.prepare(session)
    return int(session.run(train.current_step)), how


class Checkpointer:
    """Saves the state every so many seconds or steps.

    Args:
        train: the chief's graph.
        config: where, how often, how many.
        clock: seconds, monotonic.
    """

    def __init__(self, train: TrainGraph, config: TrainConfig, clock: Callable[[], float] = time.monotonic):
        self._state = train.state
        self._exchange = train.step.exchange
        self._publish_counts_op = train.publish_counts_op
        self._config = config
        self._clock = clock
        self._saved_at = clock()
        self._saved_step: int | None = None
        self._tried_step = 0
        self._failed_saves = 0

    def save_if_due(self, session: tf.Session, global_step: int) -> dict[str, np.ndarray] | None:
        """Saves when the time or the number of steps since the last save is up; warns where that fails.

        Returns the values that were saved, None where nothing was.

        Raises:
            SaveError: `max_failed_saves` saves in a row have failed.
            NanLossError: a value is not finite.
        """
        secs, steps = self._config.save_checkpoint_secs, self._config.save_checkpoint_steps
        if self._config.checkpoint_dir is None:
            return None
        if (secs and self._clock() - self._saved_at >= secs) or (
            steps and global_step // steps > self._tried_step // steps
        ):
            return self._try(session, global_step)
        return None

    def save(self, session: tf.Session) -> dict[str, np.ndarray]:
        """Saves now, unless this step is saved already; returns the values.

        Raises:
            SaveError: the files could not be written.
            NanLossError: a value is not finite.
        """
        if self._exchange is not None:
            self._exchange.publish(session)
        if self._publish_counts_op is not None:
            session.run(self._publish_counts_op)
        values = self._state.snapshot(session)
        if names := spoiled(values):
            raise NanLossError(
                f"{names[0]} holds values that are no numbers at step {values['global_step']}; nothing was saved."
                " Lower --learning_rate or check the data; the last checkpoint is untouched"
            )
        step = int(values["global_step"])
        if self._config.checkpoint_dir is not None and step != self._saved_step:
            prefix = writer.write(self._config.checkpoint_dir, step, values, self._config.keep_checkpoints)
            logging.info("saved %s", prefix)
            self._saved_step = self._tried_step = step
        self._saved_at = self._clock()
        return values

    def _try(self, session: tf.Session, global_step: int) -> dict[str, np.ndarray] | None:
        try:
            values = self.save(session)
        except SaveError as error:
            self._failed_saves += 1
            self._saved_at, self._tried_step = self._clock(), global_step
            if self._failed_saves >= self._config.max_failed_saves:
                raise SaveError(
                    f"{self._failed_saves} saves in a row have failed (--max_failed_saves): {error}; {self._newest()}"
                ) from error
            logging.warning(
                "%s. Training goes on; of --max_failed_saves=%d in a row this was number %d",
                error,
                self._config.max_failed_saves,
                self._failed_saves,
            )
            return None
        self._failed_saves = 0
        return values

    def _newest(self) -> str:
        try:
            prefixes = checkpoint_lib.list_prefixes(self._config.checkpoint_dir)
        except CheckpointError as error:
            return str(error)
        return f"the newest checkpoint is {prefixes[-1]}" if prefixes else "there is no checkpoint yet"


def spoiled(values: Mapping[str, np.ndarray]) -> list[str]:
    """Names of those that hold something that is no number."""
    return [name for name, value in values.items() if not np.all(np.isfinite(value))]


def check_checkpoints(config: TrainConfig) -> None:
    """Puts the logdir's checkpoints in order, before anything starts.

    Raises:
        CheckpointError: there are some and none loads, or none could be saved there; or `init_from` is none.
    """
    if config.init_from is not None:
        warm_start.find(config.init_from)
    if config.checkpoint_dir is not None:
        writer.repair(config.checkpoint_dir)


def newest_step(config: TrainConfig) -> int:
    """The step of the newest checkpoint in the logdir, by name; 0 where there is none."""
    steps = folder_listing.look(config.checkpoint_dir).steps if config.checkpoint_dir is not None else []
    return steps[-1] if steps else 0


def check_losses(ps_0: PsControl) -> None:
    """Raises NanLossError if a worker ended with one, as the parameters are spoiled then.

    Asks ps 0 anew: a launcher ends the chief right after that worker.
    """
    roster = ps_0.read().roster
    workers = roster.workers if roster is not None else {}
    diverged = [str(index) for index, entry in workers.items() if entry.error == NanLossError.__name__]
    if diverged:
        raise NanLossError(f"worker {', '.join(diverged)} reported a NaN loss; the last checkpoint is unchanged")


def summarize(
    step: int,
    metrics: Mapping[str, float],
    counts: Mapping[str, Any],
    own: Mapping[str, Any],
    roster: Mapping[int, WorkerEntry],
) -> dict[str, Any]:
    """What summary.json holds of a run that is done.

    Args:
        step: global_step at the end.
        metrics: on the test examples.
        counts: see `ChiefService.summary`.
        own: figures of the chief's steps.
        roster: what each worker said last.
    """
    workers: dict[int, dict[str, Any]] = {0: {"status": Status.DONE.value, **own}}
    workers |= {i: {"status": entry.status.value, **entry.summary} for i, entry in roster.items() if i}
    used, pushed = counts.get("gradients_used"), counts.get("gradients_pushed")
    for index, figures in workers.items():
        if pushed is not None:  # also what a process has pushed that was killed before it could count
            figures["pushes"] = pushed[index]
        if used is not None and "pushes" in figures:
            figures["gradients_used"] = used[index]
            figures["gradients_dropped"] = figures["pushes"] - used[index]
    return {
        "status": "done",
        "global_step": step,
        "examples_per_sec": sum(figures.get("examples_per_sec", 0.0) for figures in workers.values()),
        "metrics": metrics,
        "workers": {str(index): workers[index] for index in sorted(workers)},
    }


def end_run(ps_0: PsControl, run: RunRecord, failure: BaseException | None = None) -> None:
    """Notes in the run's record that it is over, and how it has failed; None = it is done."""
    how = Status.INTERRUPTED if isinstance(failure, Interrupted) else Status.FAILED
    text = f"worker 0 {how}: {failure}" if failure else ""
    try:
        ps_0.write_run(run.replace(status=RunStatus.ENDED, failure=text))
    except tf.errors.OpError as error:
        logging.warning("ps 0 is gone before the end of the run was noted: %s", type(error).__name__)


def write_config(cluster: ClusterConfig, config: TrainConfig) -> None:
    """Writes `<logdir>/config.json`, the cluster and the run as resolved; removes an earlier run's summary."""
    write_json(
        config.logdir,
        "config.json",
        {
            "version": ps_trainer.__version__,
            "tensorflow": tf.__version__,
            "cluster": cluster.as_dict(),
            "train": config.to_json(),
        },
    )
    if config.logdir is not None:
        (pathlib.Path(config.logdir) / "summary.json").unlink(missing_ok=True)


def write_summary(config: TrainConfig, summary: Mapping[str, Any]) -> None:
    """Writes `<logdir>/summary.json`.

    Raises:
        SaveError: a run that is done cannot be said to be; of one that failed, its own error counts more.
    """
    try:
        write_json(config.logdir, "summary.json", summary)
    except CheckpointError as error:
        if summary["status"] == "done":
            raise SaveError(str(error)) from error
        logging.warning("%s", error)


def write_json(logdir: str | None, name: str, content: Mapping[str, Any]) -> None:
    """Writes a JSON file into the logdir in one piece; without a logdir, nothing.

    Raises:
        CheckpointError: the logdir is not writable.
    """
    if logdir is None:
        return
    path = pathlib.Path(logdir) / name
    try:
        durable_files.make_folder(path.parent)
        durable_files.replace_text(path, json.dumps(content, indent=2) + "\n", path.with_suffix(".tmp"))
    except OSError as error:
        raise CheckpointError(f"--logdir={logdir}: {name} cannot be written: {error}") from error

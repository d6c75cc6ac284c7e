"""`Checkpointer`: saves the run's state on the ps tasks, from the chief."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.checkpoints import file_arrays, folder_listing, warm_start, writer
from ps_trainer.checkpoints import reader as checkpoint_lib
from ps_trainer.checkpoints.held_state import HeldSnapshot
from ps_trainer.checkpoints.save_tally import SaveTally
from ps_trainer.checkpoints.save_thread import SaveThread, Values
from ps_trainer.config import TrainConfig
from ps_trainer.errors import CheckpointError, NanLossError, SaveError
from ps_trainer.runtime import lost_task_errors
from ps_trainer.training.state_reader import held_state_of, read_held
from ps_trainer.training.train_graph import TrainGraph

_WRITE_SECS = 30.0
_MIN_RATE = 2**20  # bytes per second; a slower disk or network counts as one that does not answer
_SLICE = 2**20  # elements of an array that is checked for NaN, so that the check needs little memory


class Checkpointer:
    """Saves the state at intervals of seconds or of steps, beside the steps: one save at a time.

    Args:
        train: Graph of the chief.
        config: Settings of the run: folder, frequency and number of the checkpoints.
        session: Session with which a save reads the held state, while the session of the steps is in use.
        tally: Counts the saves.
        time_fn: Monotonic time in seconds.
    """

    def __init__(
        self,
        train: TrainGraph,
        config: TrainConfig,
        session: tf.Session,
        tally: SaveTally,
        time_fn: Callable[[], float] = time.monotonic,
    ):
        self._held_state = held_state_of(train)
        self._exchange = train.step.exchange
        self._publish_counts_op = train.publish_counts_op
        self._config = config
        self._session = session
        self._tally = tally
        self._time_fn = time_fn
        self._running: SaveThread | None = None
        self._running_step = 0
        self._has_noted_overlap = self._has_noted_disk = False
        self._saved_values: Values | None = None
        self._saved_at = time_fn()
        self._saved_step: int | None = None
        self._tried_step = 0
        self._failed_saves = 0
        tally.held_bytes = self._held_state.num_bytes

    def begin_if_due(self, session: tf.Session, global_step: int) -> bool:
        """Begins a save when the last one is long enough ago; returns whether it has begun one.

        Args:
            session: Session of the chief's steps.
            global_step: Current value of global_step.

        Raises:
            SaveError, NanLossError: As `take_saved`, for the save before.
        """
        if not self._begins(global_step):
            return False
        began_at = self._time_fn()
        self.wait()
        self._publish(session)
        snapshot = self._held_state.hold(session)
        self._tried_step = max(global_step, snapshot.step)
        self._running_step = snapshot.step
        self._has_noted_overlap = self._has_noted_disk = False
        self._running = SaveThread(
            lambda after_slice: self._read(snapshot, after_slice),
            self._check_and_write,
        )
        self._tally.count_hold_up(self._time_fn() - began_at)
        return True

    def is_due(self, global_step: int) -> bool:
        """Returns whether `begin_if_due` would begin a save at this step, or `take_saved` return something."""
        return (
            self._saved_values is not None
            or (self._running is not None and self._running.is_done)
            or self._begins(global_step)
        )

    def take_saved(self) -> Values | None:
        """Returns the values of a save that has ended since the last call; None if there is none.

        Raises:
            SaveError: `max_failed_saves` consecutive saves have failed. An earlier failure is a warning.
            NanLossError: A value is not finite.
        """
        if self._running is not None and self._running.is_done:
            self._note_end(self._running)
        elif self._running is not None:
            self._note_slow_disk(self._running)
        values, self._saved_values = self._saved_values, None
        return values

    def wait(self) -> None:
        """Waits for the end of the save that is in progress, if there is one.

        Raises:
            SaveError, NanLossError: As `take_saved`.
        """
        if self._running is not None:
            self._wait_for(self._running, self._running_step)
            self._note_end(self._running)

    def abandon(self) -> None:
        """Ends the save that is in progress, because the steps have failed; one that already writes is completed."""
        running, self._running = self._running, None
        if running is None:
            return
        # In this time each call ends, and a disk writes a checkpoint.
        if not running.abandon(self._config.heartbeat_timeout_secs + _WRITE_SECS):
            logging.warning("the save of step %d did not end in time; it is given up", self._running_step)
        elif running.error is not None:
            logging.warning("the save of step %d was given up: %s", self._running_step, running.error)

    def save(self, session: tf.Session) -> Values:
        """Saves now, unless this step is saved already; returns the values.

        Raises:
            SaveError: The files could not be written.
            NanLossError: A value is not finite.
            PsLostError: A ps task has not answered in time.
            tf.errors.OpError: A ps task is lost.
        """
        self.wait()
        began_at = self._time_fn()
        self._publish(session)
        snapshot = self._held_state.hold(session)
        # In a thread, because a disk that does not answer must not keep the chief from ending.
        saving = SaveThread(
            lambda after_slice: read_held(self._held_state, session, snapshot, self._config, after_slice),
            self._check_and_write,
        )
        self._wait_for(saving, snapshot.step)
        if isinstance(saving.error, tf.errors.DeadlineExceededError):
            raise lost_task_errors.reason_to_stop(saving.error) from saving.error
        if saving.values is None:
            raise saving.error or RuntimeError("the save ended without a result")
        self._note_saved(saving.values, self._time_fn() - began_at)
        return saving.values

    def _begins(self, global_step: int) -> bool:
        secs, steps = self._config.save_checkpoint_secs, self._config.save_checkpoint_steps
        # Compares multiples of `steps`: other workers' updates make `global_step` skip the multiple itself.
        is_due_by_step = steps and global_step // steps > self._tried_step // steps
        is_due_by_time = secs and self._running is None and self._time_fn() - self._saved_at >= secs
        if self._config.checkpoint_dir is None or not (is_due_by_step or is_due_by_time):
            return False
        if self._running is not None and not self._running.is_done and self._held_state.is_large:
            # To wait for it would hold up the steps for seconds. A small save takes milliseconds, and then every
            # multiple of the steps has its checkpoint.
            self._note_overlap(global_step)
            return False
        return True

    @property
    def _write_secs(self) -> float:
        """Deadline in seconds of the writing of a save."""
        return _WRITE_SECS + self._held_state.total_bytes / _MIN_RATE

    def _wait_for(self, saving: SaveThread, step: int) -> None:
        read_secs = self._config.heartbeat_timeout_secs + self._held_state.total_bytes / _MIN_RATE
        if saving.wait(read_secs, self._write_secs):
            return
        if not saving.has_read:
            raise SaveError(
                f"the chief has waited {read_secs:.0f} s for the save of step {step} to read the rest of its values"
                " from the ps tasks; check the network between them and the chief"
            )
        raise SaveError(
            f"the save of step {step} has not ended {self._write_secs:.0f} s after its values were read, because the"
            f" disk of {self._config.checkpoint_dir} does not answer; check that disk, or use a --logdir on another one"
        )

    def _note_slow_disk(self, saving: SaveThread) -> None:
        if not self._has_noted_disk and saving.writing_secs > self._write_secs:
            self._has_noted_disk = True
            logging.warning(
                "the save of step %d has been writing for %.0f s: the disk of %s does not answer. Training continues,"
                " and saves nothing until that save ends",
                self._running_step,
                saving.writing_secs,
                self._config.checkpoint_dir,
            )

    def _note_overlap(self, global_step: int) -> None:
        if not self._has_noted_overlap:
            self._has_noted_overlap = True
            logging.info(
                "the save of step %d is still in progress, so the one that is due at step %d begins after it",
                self._running_step,
                global_step,
            )

    def _publish(self, session: tf.Session) -> None:
        """Gives the ps tasks what only the workers hold under a collective rule, so that the state includes it."""
        if self._exchange is not None:
            self._exchange.publish(session)
        if self._publish_counts_op is not None:
            session.run(self._publish_counts_op)

    def _read(self, snapshot: HeldSnapshot, after_slice: Callable[[], None]) -> Values:
        try:
            return read_held(self._held_state, self._session, snapshot, self._config, after_slice)
        # RuntimeError: the session was closed at the end of the steps.
        except (tf.errors.OpError, RuntimeError) as error:
            # TensorFlow's message continues with the stack trace of the op.
            reason = (getattr(error, "message", None) or str(error)).partition("\n")[0]
            raise SaveError(
                f"the state of step {snapshot.step} could not be read from the ps tasks: {reason}"
            ) from error

    def _check_and_write(self, values: Values, pause: Callable[[], None]) -> None:
        # Before anything is written: a run that continues from such a checkpoint would never recover.
        if names := not_finite(values):
            raise NanLossError(
                f"{names[0]} contains NaN or infinity at step {values['global_step']}; nothing was saved."
                " Lower --learning_rate or check the data; the last checkpoint is unchanged"
            )
        step = int(values["global_step"])
        if self._config.checkpoint_dir is not None and step != self._saved_step:
            prefix = writer.write(self._config.checkpoint_dir, step, values, self._config.keep_checkpoints, pause)
            logging.info("saved %s", prefix)

    def _note_saved(self, values: Values, secs: float) -> None:
        step = int(values["global_step"])
        if self._config.checkpoint_dir is not None and step != self._saved_step:
            self._tally.count_save(sum(value.nbytes for value in values.values()), secs)
            self._saved_step = self._tried_step = step
        # From the end of the save, so that steps are made in between even if a save takes longer than the interval.
        self._saved_at = self._time_fn()

    def _note_end(self, ended: SaveThread) -> None:
        self._running = None
        if ended.values is not None:
            self._failed_saves = 0
            self._tally.count_logged_bytes(self._held_state.logged_bytes)
            self._note_saved(ended.values, ended.secs)
            self._saved_values = ended.values
            return
        error = ended.error
        if not isinstance(error, SaveError):
            raise error or RuntimeError("the save ended without a result")
        self._tally.failed += 1
        self._failed_saves += 1
        # The next try comes after a whole interval, not after the next step.
        self._saved_at = self._time_fn()
        if self._failed_saves >= self._config.max_failed_saves:
            raise SaveError(
                f"{self._failed_saves} consecutive saves have failed (--max_failed_saves): {error};"
                f" {_describe_newest(self._config)}"
            ) from error
        logging.warning(
            "%s. Training continues after failed save %d of --max_failed_saves=%d",
            error,
            self._failed_saves,
            self._config.max_failed_saves,
        )


def not_finite(values: Values) -> list[str]:
    """Returns the names of the values that contain NaN or infinity."""
    return [name for name, value in values.items() if not _is_finite(np.reshape(value, [-1]))]


def check_checkpoints(config: TrainConfig) -> None:
    """Repairs the logdir's folder of checkpoints, before anything starts.

    Raises:
        CheckpointError: The folder has checkpoints, and none can be loaded; or it is not writable; or `init_from` does
            not name a checkpoint.
    """
    if config.init_from is not None:
        warm_start.find(config.init_from)
    if config.checkpoint_dir is not None:
        writer.repair(config.checkpoint_dir)


def newest_step(config: TrainConfig) -> int:
    """Returns the step of the newest checkpoint in the logdir, by its file name; 0 if there is none."""
    steps = folder_listing.read_folder(config.checkpoint_dir).steps if config.checkpoint_dir is not None else []
    return steps[-1] if steps else 0


def _is_finite(flat: np.ndarray) -> bool:
    # In parts, because the answer for each element takes a byte of memory.
    for start in range(0, flat.size, _SLICE):
        if not np.isfinite(flat[start : start + _SLICE]).all():
            return False
        file_arrays.release(flat)
    return True


def _describe_newest(config: TrainConfig) -> str:
    try:
        prefixes = checkpoint_lib.list_prefixes(config.checkpoint_dir) if config.checkpoint_dir is not None else []
    except CheckpointError as error:
        return str(error)
    return f"the newest checkpoint is {prefixes[-1]}" if prefixes else "there is no checkpoint yet"

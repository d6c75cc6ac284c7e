"""`Checkpointer`: saves the run's state on the ps tasks, from the chief."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.checkpoints import folder_listing, writer
from ps_trainer.checkpoints import reader as checkpoint_lib
from ps_trainer.config import TrainConfig
from ps_trainer.errors import CheckpointError, NanLossError, SaveError
from ps_trainer.training import warm_start
from ps_trainer.training.graph import TrainGraph


class Checkpointer:
    """Saves the state at intervals of seconds or of steps.

    Args:
        train: Graph of the chief.
        config: Settings of the run: folder, frequency and number of the checkpoints.
        clock: Monotonic time in seconds.
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
        """Saves when the last save is long enough ago; warns if that fails.

        Returns:
            The saved values; None if nothing was saved.

        Raises:
            SaveError: `max_failed_saves` consecutive saves have failed.
            NanLossError: A value is not finite.
        """
        directory = self._config.checkpoint_dir
        secs, steps = self._config.save_checkpoint_secs, self._config.save_checkpoint_steps
        if directory is None:
            return None
        # Compares multiples of `steps`: other workers' updates make `global_step` skip the multiple itself.
        if (secs and self._clock() - self._saved_at >= secs) or (
            steps and global_step // steps > self._tried_step // steps
        ):
            return self._try(session, global_step, directory)
        return None

    def save(self, session: tf.Session) -> dict[str, np.ndarray]:
        """Saves now, unless this step is saved already; returns the values.

        Raises:
            SaveError: The files could not be written.
            NanLossError: A value is not finite.
        """
        # The ps tasks get what only the workers hold under a collective rule, so that the snapshot includes it.
        if self._exchange is not None:
            self._exchange.publish(session)
        if self._publish_counts_op is not None:
            session.run(self._publish_counts_op)
        values = self._state.snapshot(session)
        # Before anything is written: a run that continues from such a checkpoint would never recover.
        if names := not_finite(values):
            raise NanLossError(
                f"{names[0]} contains NaN or infinity at step {values['global_step']}; nothing was saved."
                " Lower --learning_rate or check the data; the last checkpoint is unchanged"
            )
        step = int(values["global_step"])
        if self._config.checkpoint_dir is not None and step != self._saved_step:
            prefix = writer.write(self._config.checkpoint_dir, step, values, self._config.keep_checkpoints)
            logging.info("saved %s", prefix)
            self._saved_step = self._tried_step = step
        # From the end of the save, so that steps are made in between even if a save takes longer than the interval.
        self._saved_at = self._clock()
        return values

    def _try(self, session: tf.Session, global_step: int, directory: pathlib.Path) -> dict[str, np.ndarray] | None:
        try:
            values = self.save(session)
        except SaveError as error:
            self._failed_saves += 1
            # The next try comes after a whole interval, not after the next step.
            self._saved_at, self._tried_step = self._clock(), global_step
            if self._failed_saves >= self._config.max_failed_saves:
                raise SaveError(
                    f"{self._failed_saves} consecutive saves have failed (--max_failed_saves): {error};"
                    f" {_describe_newest(directory)}"
                ) from error
            logging.warning(
                "%s. Training continues after failed save %d of --max_failed_saves=%d",
                error,
                self._failed_saves,
                self._config.max_failed_saves,
            )
            return None
        self._failed_saves = 0
        return values


def not_finite(values: Mapping[str, np.ndarray]) -> list[str]:
    """Names of the values that contain NaN or infinity."""
    return [name for name, value in values.items() if not np.all(np.isfinite(value))]


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
    """The step of the newest checkpoint in the logdir, by its file name; 0 if there is none."""
    steps = folder_listing.look(config.checkpoint_dir).steps if config.checkpoint_dir is not None else []
    return steps[-1] if steps else 0


def _describe_newest(directory: pathlib.Path) -> str:
    try:
        prefixes = checkpoint_lib.list_prefixes(directory)
    except CheckpointError as error:
        return str(error)
    return f"the newest checkpoint is {prefixes[-1]}" if prefixes else "there is no checkpoint yet"

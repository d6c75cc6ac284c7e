"""What one worker alone knows (residuals of gradient transforms, its replica …), kept beside the checkpoints.

Each worker writes its own file on its own disk, so no shared file system is needed:

    <logdir>/checkpoints/worker-<index>.npz      the variables by name, and "global_step"

It is written as often as checkpoints are, and when the worker ends. A worker that starts again takes it up
if it is not newer than the run; without it (another machine, a run from the start) it begins with nothing.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.config import TrainConfig
from ps_trainer.errors import CheckpointError
from ps_trainer.store import durable, worker_file


class WorkerState:
    """Saves and restores variables of one worker.

    Args:
        variables: on this worker.
        config: where and how often.
        worker_index: of this worker.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        variables: Sequence[tf.Variable],
        config: TrainConfig,
        worker_index: int,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._variables = {variable.op.name: variable for variable in variables}
        self._config = config
        self._clock = clock
        self._saved_at = clock()
        self._saved_step = 0
        self._path: pathlib.Path | None = None
        if variables and config.checkpoint_dir is not None:
            self._path = config.checkpoint_dir / f"worker-{worker_index}.npz"
            self._reads = {name: variable.read_value() for name, variable in self._variables.items()}

    def restore(self, session: tf.Session, global_step: int) -> None:
        """Sets the variables from the file, where there is one that belongs to this run."""
        self._saved_step = global_step
        if self._path is None or not global_step:
            return
        try:
            values = worker_file.read(self._path)
        except FileNotFoundError:
            logging.warning("%s is not there: this worker starts without its state of step %d", self._path, global_step)
            return
        except CheckpointError as error:
            logging.warning("%s", error)
            return
        fault = self._fault(values, global_step)
        if fault:
            logging.warning("%s is not used: %s", self._path, fault)
            return
        for name, variable in self._variables.items():
            session.run(variable.initializer, {variable.initializer.inputs[1]: values[name]})
        logging.info("restored this worker's state of step %d from %s", values[worker_file.STEP], self._path)

    def save_if_due(self, session: tf.Session, global_step: int) -> None:
        """Saves when the time or the number of steps since the last save is up."""
        if self._path is None:
            return
        secs, steps = self._config.save_checkpoint_secs, self._config.save_checkpoint_steps
        if (secs and self._clock() - self._saved_at >= secs) or (steps and global_step - self._saved_step >= steps):
            self.save(session, global_step)

    def save(self, session: tf.Session, global_step: int) -> None:
        """Saves now; a failure is logged, as training can go on without."""
        if self._path is None:
            return
        self._saved_at, self._saved_step = self._clock(), global_step
        values = session.run(self._reads)
        temporary = self._path.with_suffix(".tmp")
        try:
            durable.make_folder(self._path.parent)
            durable.replace(
                self._path,
                lambda file: np.savez(file, **values, **{worker_file.STEP: np.int64(global_step)}),
                temporary,
            )
        except OSError as error:
            logging.warning("%s could not be written: %s", self._path, error)

    def _fault(self, values: dict[str, np.ndarray], global_step: int) -> str:
        """Why the values are not this worker's, in words; empty if they are."""
        if int(values[worker_file.STEP]) > global_step:
            return f"it is of another run, which is at step {global_step}"
        for name, variable in self._variables.items():
            if name not in values or not variable.shape.is_compatible_with(values[name].shape):
                return f"{name} is missing or has another shape; the run was started with other flags"
        return ""

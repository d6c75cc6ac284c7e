"""Reads the run's state from the ps tasks, for the chief; large values lie on the disk of the checkpoints."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints import durable_files, writer
from ps_trainer.checkpoints.held_state import HeldSnapshot, HeldState
from ps_trainer.config import TrainConfig
from ps_trainer.errors import SaveError
from ps_trainer.runtime.lost_task_errors import reason_to_stop
from ps_trainer.training.train_graph import TrainGraph


def read_now(train: TrainGraph, session: tf.Session, config: TrainConfig) -> dict[str, np.ndarray]:
    """Reads the current values by name, while other workers continue training.

    Raises:
        SaveError: The disk is full.
        PsLostError: A ps task has not answered in time.
        tf.errors.OpError: A ps task is lost.
    """
    held_state = held_state_of(train)
    try:
        return read_held(held_state, session, held_state.hold(session), config)
    except tf.errors.DeadlineExceededError as error:
        raise reason_to_stop(error) from error


def read_held(
    held_state: HeldState,
    session: tf.Session,
    snapshot: HeldSnapshot,
    config: TrainConfig,
    after_slice: Callable[[], None] = lambda: None,
) -> dict[str, np.ndarray]:
    """Reads the values of a held moment by name, as `HeldState.read` does.

    Raises:
        SaveError: The disk is full.
        tf.errors.OpError: A ps task is lost, or has not answered in time.
    """
    folder = config.checkpoint_dir
    try:
        return held_state.read(session, snapshot, after_slice, _create_folder(folder))
    except OSError as error:
        reason = writer.describe_failure(error, folder or pathlib.Path(), held_state.total_bytes)
        raise SaveError(f"the state could not be read from the ps tasks: {reason}") from error


def held_state_of(train: TrainGraph) -> HeldState:
    """Returns what holds the state for a save.

    Raises:
        ValueError: The graph is not that of the chief.
    """
    if train.held_state is None:
        raise ValueError("only the graph of the chief holds a state for a save")
    return train.held_state


def _create_folder(folder: pathlib.Path | None) -> pathlib.Path | None:
    """Creates the folder and returns it; None if there is none."""
    with contextlib.suppress(OSError):  # `writer` says why, when it writes there
        if folder is not None:
            durable_files.make_folder(folder)
            return folder
    return None

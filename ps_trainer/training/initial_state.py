"""The state that a run begins with: still on the ps tasks, from a checkpoint, or the model's initial values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.checkpoints import reader as checkpoint_lib
from ps_trainer.checkpoints import start_mark, warm_start, writer
from ps_trainer.checkpoints.reader import Checkpoint
from ps_trainer.config import TrainConfig
from ps_trainer.errors import CheckpointError
from ps_trainer.runtime.run_record import INITIALISED, INITIALISED_AGAIN, RunStart
from ps_trainer.store.placement_report import placement_report
from ps_trainer.training.state_reader import read_now
from ps_trainer.training.train_graph import TrainGraph


class PriorState(NamedTuple):
    """Knowledge of a chief about the run's state, before it has asked the ps tasks for it.

    Attributes:
        is_alive: Whether the ps tasks may still hold the state.
        was_there: Whether there was state, so that it is lost if the ps tasks do not hold it.
    """

    is_alive: bool = False
    was_there: bool = False


def set_up(train: TrainGraph, session: tf.Session, config: TrainConfig, prior_state: PriorState) -> RunStart:
    """Brings the run's state on the ps tasks to the point where training continues.

    1. If the state is alive there, because only the chief was restarted, attaches to it.
    2. Otherwise restores the newest checkpoint that can be loaded.
    3. Otherwise sets the model's initial values, or those of `init_from`. It saves them if the seed alone would not
       give them again.

    Raises:
        CheckpointError: The run cannot continue from the checkpoints, or state was lost and there is no checkpoint.
        SaveError: The folder of the checkpoints is not writable.
    """
    logging.info("placement of the parameters:\n%s", placement_report(train.store.pieces, train.store.num_ps))
    # Under a collective rule the workers hold the newest state, so the state on the ps tasks is not enough.
    if prior_state.is_alive and train.step.exchange is None and not train.state.lost_variables(session):
        if train.held_state is not None:
            session.run(train.held_state.release_op)  # the chief before this one may have died in a save
        return _begin(train, session, "attached to the run on the ps tasks")
    # No checkpoint holds the rule's own state, so it starts from its initial values, with or without a checkpoint.
    session.run(train.init_state_op)
    checkpoint = checkpoint_lib.latest(config.checkpoint_dir) if config.checkpoint_dir else None
    if checkpoint is not None:
        train.state.restore(session, checkpoint)
        return _begin(train, session, f"restored {checkpoint.prefix}")
    directory = config.checkpoint_dir
    is_again = directory is not None and start_mark.is_left(directory)
    if prior_state.was_there and not is_again:
        raise CheckpointError(
            "the run's state on the ps tasks is lost and there is no checkpoint; to start from step 0, restart the"
            " ps tasks, and give a --logdir so that the next loss can be recovered from"
        )
    values: dict[str, np.ndarray | Checkpoint] = {**train.model_trace.initial_values(without=train.state.self_made)}
    if config.init_from is not None:
        values |= warm_start.values(config.init_from, train.model_trace.specs, train.state.large_tables)
    train.state.initialize(session, values)
    # From now on a loss of a ps task can always be recovered from.
    if directory is not None and (config.init_from is not None or not train.model_trace.is_repeatable):
        writer.write(directory, 0, read_now(train, session, config), config.keep_checkpoints)
    elif directory is not None:
        start_mark.leave(directory, config.seed)
    return _begin(train, session, INITIALISED_AGAIN if is_again else INITIALISED)


def _begin(train: TrainGraph, session: tf.Session, how: str) -> RunStart:
    """Sets up what depends on the state: the rule's variables, the counts of pushes, the workers' exchange."""
    if train.step.prepare_op is not None:
        session.run(train.step.prepare_op)
    if train.own_variables is not None:
        train.own_variables.push_counts.begin(session)
    if train.step.exchange is not None:
        train.step.exchange.prepare(session)
    return RunStart(step=int(session.run(train.current_step)), how=how)

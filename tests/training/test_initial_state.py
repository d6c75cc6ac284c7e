"""A run begins from its seed without a checkpoint of step 0, and begins so again only if nothing was saved."""

from __future__ import annotations

import types

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.config import TrainConfig
from ps_trainer.errors import CheckpointError
from ps_trainer.runtime.run_record import INITIALISED, INITIALISED_AGAIN, RunStart
from ps_trainer.store.pieces import Piece
from ps_trainer.training import initial_state
from ps_trainer.training.initial_state import PriorState
from tests.checkpoints.checkpoint_files import names, values_of, write

FRESH, LOST = PriorState(), PriorState(was_there=True)


class ChiefRun:
    """A chief's run that has only the values of its state.

    Attributes:
        values: The values after the last start.
    """

    def __init__(self, logdir, *, is_repeatable=True, **fields):
        self.folder = logdir / "checkpoints"
        self.config = TrainConfig(logdir=str(logdir), **fields)
        self.values = {}
        state = types.SimpleNamespace(
            initialize=lambda session, values: self.values.update(values, global_step=np.int64(0)),
            restore=lambda session, checkpoint: self.values.update(checkpoint),
            self_made=frozenset(),
            large_tables=frozenset(),
        )
        variable = types.SimpleNamespace(
            op=types.SimpleNamespace(name="w"), shape=tf.TensorShape([1]), dtype=tf.float32
        )
        piece = Piece(variable, 0, (), None)  # only for the report on the placement
        self.train = types.SimpleNamespace(
            state=state,
            held_state=types.SimpleNamespace(
                release_op="release", hold=lambda session: None, read=lambda *_: self.values, total_bytes=0
            ),
            store=types.SimpleNamespace(pieces=[piece], num_ps=1),
            model_trace=types.SimpleNamespace(
                initial_values=lambda without: values_of(0), is_repeatable=is_repeatable, specs=[]
            ),
            step=types.SimpleNamespace(exchange=None, prepare_op=None),
            own_variables=None,
            init_state_op="init",
            current_step="step",
        )

    def begin(self, prior_state=FRESH):
        self.values = {}
        session = types.SimpleNamespace(run=lambda fetch: self.values["global_step"] if fetch == "step" else None)
        return initial_state.set_up(self.train, session, self.config, prior_state)


def test_a_run_begins_without_a_checkpoint_of_step_0(tmp_path):
    run = ChiefRun(tmp_path)
    assert run.begin() == RunStart(step=0, how=INITIALISED)
    assert names(run.folder) == ["start.json"]


def test_a_lost_state_is_made_again_from_the_seed_while_nothing_is_saved(tmp_path):
    run = ChiefRun(tmp_path)
    run.begin()
    first = run.values
    # Not `INITIALISED`: the other workers have seen later steps, and would take the run for one that lost them.
    assert run.begin(LOST).how == INITIALISED_AGAIN
    assert run.values.keys() == first.keys()
    for name in first:
        np.testing.assert_array_equal(run.values[name], first[name])


def test_a_chief_that_was_lost_with_the_state_begins_again_too(tmp_path):
    ChiefRun(tmp_path).begin()
    assert ChiefRun(tmp_path).begin(FRESH).how == INITIALISED_AGAIN


def test_after_the_first_checkpoint_a_lost_state_comes_from_a_checkpoint_or_ends_the_run(tmp_path):
    run = ChiefRun(tmp_path)
    run.begin()
    write(run.folder, 4)
    assert "start.json" not in names(run.folder)
    assert run.begin(LOST).step == 4
    for path in run.folder.iterdir():
        path.unlink()
    with pytest.raises(CheckpointError, match="is lost and there is no checkpoint"):
        run.begin(LOST)


def test_a_lost_state_on_another_disk_ends_the_run(tmp_path):
    with pytest.raises(CheckpointError, match="is lost and there is no checkpoint"):
        ChiefRun(tmp_path).begin(LOST)


def test_values_that_the_seed_does_not_give_again_are_saved_at_step_0(tmp_path, monkeypatch):
    run = ChiefRun(tmp_path / "python", is_repeatable=False)
    run.begin()
    assert "model.ckpt-0.index" in names(run.folder)
    monkeypatch.setattr(initial_state.warm_start, "values", lambda *_: {})
    run = ChiefRun(tmp_path / "warm", init_from="elsewhere")
    run.begin()
    assert "model.ckpt-0.index" in names(run.folder)

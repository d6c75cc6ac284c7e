"""Saves while training continues: a checkpoint of a synchronous run has the state of exactly its step."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.checkpoints import held_state
from ps_trainer.checkpoints import reader as checkpoint_lib
from tests.testing import components as small
from tests.testing.cluster import InProcessCluster, config_of, wait_until

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

STEPS = 8


@pytest.fixture(scope="module")
def two_workers():
    with InProcessCluster(num_ps=2, num_workers=2) as cluster:
        yield cluster


@pytest.fixture
def late_reads(monkeypatch):
    """Holds and slices even small variables, and reads them two steps after their moment; returns the steps."""
    monkeypatch.setattr(held_state, "_SMALL_BYTES", 0)
    monkeypatch.setattr(held_state, "_SLICE_BYTES", 16)
    read, passed = held_state.HeldState.read, []

    def read_late(self, session, moment, after_slice):
        clock = lambda: int(session.run(current))  # noqa: E731
        current = session.graph.get_tensor_by_name(self._step_read.name)
        wait_until(lambda: clock() >= min(moment.step + 2, STEPS))
        passed.append(clock() - moment.step)
        return read(self, session, moment, after_slice)

    monkeypatch.setattr(held_state.HeldState, "read", read_late)
    return passed


@pytest.mark.parametrize("layout", ["packed", "per_variable"])
@pytest.mark.parametrize(
    ("model", "optimizer", "create"),
    [
        ("Dense", "adam", lambda: tf.train.AdamOptimizer(0.1)),
        ("Embedded", "momentum", lambda: tf.train.MomentumOptimizer(0.1, 0.9)),
    ],
)
def test_a_checkpoint_has_the_parameters_and_slots_of_its_step(
    two_workers, late_reads, tmp_path, layout, model, optimizer, create
):
    config = config_of(
        model, "Rows", layout=layout, update="sync", optimizer=optimizer, batch_size=4, max_steps=STEPS,
        logdir=str(tmp_path), save_checkpoint_secs=0.0, save_checkpoint_steps=3,
    )  # fmt: skip
    two_workers.run(config)
    assert max(late_reads) >= 2
    for step in (3, 6):
        saved = checkpoint_lib.Checkpoint(tmp_path / "checkpoints" / f"model.ckpt-{step}")
        _, values = small.plain_loop(getattr(small, model)(), small.global_batches(4, step, 2), create)
        assert int(saved["global_step"]) == step
        for name in saved:
            if name in values:
                np.testing.assert_allclose(saved[name], values[name], rtol=0, atol=1e-5)
        assert any("/" in name and name.split("/")[-1] in ("Adam", "Momentum") for name in saved)

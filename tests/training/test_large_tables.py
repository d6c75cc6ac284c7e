"""A large table passes the chief in pieces: when a run begins, saves, restores, evaluates, or takes other values."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.checkpoints import file_arrays, large_table, logged_rows, parts
from ps_trainer.checkpoints import reader as checkpoint_lib
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.store import undo_log
from ps_trainer.store.trace import placeholders, trace
from tests.testing import components as small
from tests.testing.cluster import InProcessCluster, config_of

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

LIMIT = 2**18
"""The table and its two slots have 4 times as many bytes, each."""
SEED = 3


@pytest.fixture
def largest(monkeypatch):
    """For each call of a session, and each tensor that is read as a whole, the size in bytes of the largest array."""
    for module, name in ((parts, "PART_BYTES"), (file_arrays, "LARGE_BYTES"), (large_table, "_MESSAGE_BYTES")):
        monkeypatch.setattr(module, name, LIMIT)
    monkeypatch.setattr(undo_log, "LARGE_BYTES", LIMIT)
    monkeypatch.setattr(logged_rows, "_SLICE_BYTES", LIMIT)
    run, sizes = tf.Session.run, [0]

    def counted(self, fetches, feed_dict=None, *args, **options):
        found = run(self, fetches, feed_dict, *args, **options)
        arrays = [*(feed_dict or {}).values(), *tf.nest.flatten(found)]
        sizes.append(max((np.asarray(array).nbytes for array in arrays), default=0))
        return found

    def counted_read(self, name):
        sizes.append(read(self, name).nbytes)
        return read(self, name)

    read = checkpoint_lib.Checkpoint.__getitem__
    monkeypatch.setattr(tf.Session, "run", counted)
    monkeypatch.setattr(checkpoint_lib.Checkpoint, "__getitem__", counted_read)
    return sizes


def config(logdir, max_steps, learning_rate=1e-37, **fields):
    return config_of(
        "LargelyEmbedded", "Rows", ["has_test=true"], update="async", optimizer="lazy_adam", seed=SEED,
        learning_rate=learning_rate, batch_size=4, max_steps=max_steps, logdir=str(logdir),
        save_checkpoint_secs=0.0, save_checkpoint_steps=2, **fields,
    )  # fmt: skip


def initial_table():
    dataset = small.Rows(small.RowOptions())
    spec = dataset.train(shard=Shard(0, 1), batch_size=4, seed=0, num_epochs=1).element_spec
    found = trace(lambda: small.LargelyEmbedded().build(placeholders(spec), training=True), SEED)
    return found.initial_values()["table"]


def table_of(logdir, step):
    return checkpoint_lib.Checkpoint(logdir / "checkpoints" / f"model.ckpt-{step}")["table"]


@pytest.mark.parametrize("num_ps", [1, 3])
def test_no_call_moves_more_than_a_piece_of_a_large_table(tmp_path, largest, num_ps):
    wanted = initial_table()  # with so small a learning rate the table keeps its bits
    assert wanted.nbytes == 4 * LIMIT
    largest[:] = [0]
    with InProcessCluster(num_ps, 1) as cluster:
        cluster.run(config(tmp_path / "run", 3))
        begun = max(largest)
        cluster.run(config(tmp_path / "run", 5))
        restored = max(largest)
        cluster.run(config(tmp_path / "next", 3, init_from=str(tmp_path / "run")))
    assert 0 < begun <= restored <= max(largest) <= LIMIT
    for logdir, step in (("run", 2), ("run", 3), ("run", 5), ("next", 0), ("next", 3)):
        assert table_of(tmp_path / logdir, step).tobytes() == wanted.tobytes()


def test_pieces_give_the_bits_that_whole_values_give(tmp_path, monkeypatch):
    for logdir, large in (("pieces", LIMIT), ("whole", 2**40)):
        monkeypatch.setattr(undo_log, "LARGE_BYTES", large)
        for num_ps, last in ((1, 2), (3, 4)):
            with InProcessCluster(num_ps, 1) as cluster:
                cluster.run(config(tmp_path / logdir, last, learning_rate=0.1))
    folders = [tmp_path / name / "checkpoints" for name in ("pieces", "whole")]
    found, wanted = (checkpoint_lib.Checkpoint(folder / "model.ckpt-4") for folder in folders)
    assert {"table", "table/Adam", "table/Adam_1"} <= set(found) == set(wanted)
    for name in found:
        assert found[name].tobytes() == wanted[name].tobytes(), name
    assert np.any(found["table"] != initial_table())

"""The models of the null step: the values that one of their steps reads, changes and sends."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.experiments.toolkit.sized_models import AlternatingIds, Dense, RandomIds, Sparse
from ps_trainer.experiments.toolkit.sized_settings import DIM, TABLE_RATIO
from tests.testing import plain_loop

MODULE = "ps_trainer.experiments.toolkit.sized_models"
RATE = 0.25


def losses(model, option, batch_size, num_steps, **data):
    config = plain_loop.config_of(
        {
            "model": f"{MODULE}:{model}",
            "model_option": [option],
            "dataset": f"{MODULE}:RandomIds",
            "batch_size": batch_size,
            "learning_rate": RATE,
            "max_steps": num_steps,
            **data,
        }
    )
    return [step["loss"] for step in plain_loop.train(config)]


def batches(shard, batch_size, num_batches, source=None):
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        tf.set_random_seed(0)
        source = source or RandomIds(RandomIds.Options())
        examples = source.train(shard=shard, batch_size=batch_size, seed=0, num_epochs=None)
        iterator = tf.data.make_initializable_iterator(examples)
        batch = iterator.get_next()
        session.run(iterator.initializer)
        return [session.run(batch)["id"] for _ in range(num_batches)]


def test_every_step_of_a_dense_model_shrinks_every_value():
    expected = [0.5 * 40 * (1 - RATE) ** (2 * step) for step in range(4)]
    assert losses("Dense", "num_values=40", 2, 4) == pytest.approx(expected, rel=1e-6)


def test_a_step_of_a_table_shrinks_the_rows_of_its_batch_only():
    table = np.ones([7, DIM])
    expected = []
    for ids in batches(Shard(0, 1), 3, 5):
        rows = np.unique(ids % 7)
        expected.append(0.5 * np.sum(table[rows] ** 2))
        table[rows] *= 1 - RATE
    assert len(set(expected)) > 1
    assert losses("Sparse", "num_rows=7", 3, 5) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("model", "kind"),
    [(Dense(Dense.Options(num_values=5)), tf.Tensor), (Sparse(Sparse.Options(num_rows=9)), tf.IndexedSlices)],
)
def test_the_gradient_depends_on_the_pulled_values_and_a_tables_stays_sparse(model, kind):
    with tf.Graph().as_default() as graph, tf.variable_scope("", use_resource=True):
        loss = model.build({"id": tf.constant([3, 4, 12, 3], tf.int64)}, training=True).loss
        (variable,) = tf.trainable_variables()
        (gradient,) = tf.gradients(loss, variable)
        value = gradient.values if kind is tf.IndexedSlices else gradient
        with tf.Session(graph=graph) as session:
            session.run(variable.initializer)
            session.run(variable.assign(tf.fill(variable.shape, 3.0)))
            value_v = session.run(value)
    assert isinstance(gradient, kind)
    assert np.array_equal(value_v, np.full([2, DIM] if kind is tf.IndexedSlices else [5], 3.0, np.float32))


def test_two_tables_are_read_by_turns_and_shrink_like_one():
    tables, expected = [np.ones([3, DIM]), np.ones([3 * TABLE_RATIO, DIM])], []
    blocks = AlternatingIds(AlternatingIds.Options(num_blocks=4, block_examples=4)).arrays["train"]["id"].reshape(-1, 2)
    for ids in [*blocks, *blocks[:2]]:
        (which,) = set(ids % 2)
        rows = np.unique(ids // 2 % len(tables[which]))
        expected.append(0.5 * np.sum(tables[which][rows] ** 2))
        tables[which][rows] *= 1 - RATE
    assert list(blocks[:, 0] % 2) == [0, 0, 1, 1, 0, 0, 1, 1]  # two batches of a block, then the other table
    data = {"dataset": f"{MODULE}:AlternatingIds", "dataset_option": ["num_blocks=4", "block_examples=4"]}
    assert losses("TwoTables", "num_rows=3", 2, 10, **data) == pytest.approx(expected, rel=1e-6)


def test_workers_read_the_same_table_at_the_same_time_with_rows_of_their_own():
    source = AlternatingIds(AlternatingIds.Options(num_blocks=2, block_examples=6, num_workers=3))
    drawn = [batches(Shard(worker, 3), 3, 5, source) for worker in range(3)]
    assert [[{*(ids % 2)} for ids in own] for own in drawn] == [[{0}, {0}, {1}, {1}, {0}]] * 3
    assert not set(drawn[0][0].tolist()) & set(drawn[1][0].tolist())


def test_workers_draw_different_ids():
    drawn = [np.concatenate(batches(Shard(worker, 2), 32, 3)) for worker in range(2)]
    assert not set(drawn[0].tolist()) & set(drawn[1].tolist())
    assert all(len(set(ids.tolist())) == 3 * 32 for ids in drawn)

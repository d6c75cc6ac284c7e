"""The workloads that peers run as well: batches, initial values, sizes, and the arithmetic in TensorFlow."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from benchmarks import peer_models, peer_workloads
from benchmarks.peer_workloads import LEARNING_RATE, PEER_WORKLOADS
from benchmarks.peers import check
from models import layers
from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.shard import Shard
from tests.testing.repetitions import representatives

# The others' tables would take too long in a light test; `python -m benchmarks.peers.check` computes all of them.
SMALL = ("deep", "scalar", "mlp", "factorization")


def build(workload: str) -> tuple[tf.Tensor, list[tf.Variable], list[tf.Variable]]:
    """Loss, dense variables and tables of a workload, for worker 0."""
    batch = {name: tf.constant(value) for name, value in peer_workloads.batch(workload, 0).items()}
    options = peer_models.WorkloadOptions(workload=workload)
    with tf.variable_scope("", use_resource=True):
        loss = peer_models.PeerModel(options).build(batch, training=True).loss
    return loss, tf.trainable_variables(), tf.get_collection(layers.EMBEDDING_TABLES)


@pytest.mark.parametrize("workload", PEER_WORKLOADS)
def test_the_declared_sizes_are_those_of_the_model(workload):
    with tf.Graph().as_default(), tf.Session() as session:
        loss, variables, tables = build(workload)
        dense = [variable for variable in variables if all(variable is not table for table in tables)]
        assert sum(variable.shape.num_elements() for variable in dense) == PEER_WORKLOADS[workload].num_dense
        lookups = [op for op in tf.get_default_graph().get_operations() if op.type == "Unique"]
        rows = session.run([tf.size(op.outputs[0]) for op in lookups])
        sizes = [int(table.shape[1]) for table in tables]
        assert list(zip(rows, sizes, strict=True)) == list(PEER_WORKLOADS[workload].row_sizes)
        assert all(gradient is not None for gradient in tf.gradients(loss, variables))


@pytest.mark.parametrize(("shape", "scale"), [([], 0.5), ([7], 1.0), ([5, 3], 0.1), ([3, 3, 2, 4], 2.0)])
def test_tensorflow_and_numpy_begin_with_the_same_bits(shape, scale):
    with tf.Graph().as_default(), tf.Session() as session:
        got = session.run(peer_models.Initial("name", scale)(tf.TensorShape(shape)))
    wanted = peer_workloads.initial("name", shape, scale)
    assert wanted.dtype == np.float32
    np.testing.assert_array_equal(got, wanted)


def test_initial_values_are_spread_and_differ_by_name():
    values = peer_workloads.initial("a", [200, 50], 1.0)
    assert -1 <= values.min() < -0.99 < 0.99 < values.max() <= 1
    assert abs(values.mean()) < 0.02
    # The rank is full: the sum of a number for the row and one for the column would make layers explode.
    assert np.linalg.matrix_rank(values) == 50
    assert not np.array_equal(values, peer_workloads.initial("b", [200, 50], 1.0))


def test_each_worker_has_a_batch_of_its_own_and_always_the_same():
    for workload in PEER_WORKLOADS:
        first, again, other = (peer_workloads.batch(workload, worker) for worker in (0, 0, 1))
        assert all(np.array_equal(first[name], again[name]) for name in first)
        assert any(not np.array_equal(first[name], other[name]) for name in first)


def test_bytes_of_a_step():
    table = PEER_WORKLOADS["table"]
    assert (table.pull_bytes, table.push_bytes) == (32 * 64 * 4, 32 * (64 * 4 + 8 + 8))


def test_a_step_of_factorization_is_the_one_of_numpy():
    batch = peer_workloads.batch("factorization", 0)
    users, items = (peer_workloads.initial(name, [100_000, 32], 0.5) for name in ("user", "item"))
    wanted = []
    for _ in range(3):
        user, item = users[batch["user"]], items[batch["item"]]
        error = (user * item).sum(1) - batch["label"]
        wanted.append(np.mean(error**2))
        slope = (LEARNING_RATE * 2 * error / len(error))[:, np.newaxis]
        np.subtract.at(users, batch["user"], slope * item)
        np.subtract.at(items, batch["item"], slope * user)
    np.testing.assert_allclose(check.reference("factorization", 1)[:3], wanted, rtol=1e-5)


# `test_workloads.py` trains another model of many layers.
@pytest.mark.parametrize("workload", representatives(SMALL, SMALL[1:]))
def test_the_loss_goes_down(workload):
    losses = check.reference(workload, 2)
    assert len(losses) == check.NUM_STEPS
    assert losses[-1] < losses[0]


def test_differences_are_relative_and_gaps_are_different():
    assert check.largest_difference([1.0, 2.2], [1.0, 2.0]) == pytest.approx(0.1)
    assert check.largest_difference([1.0], [1.0, 2.0]) == float("inf")
    assert check.largest_difference([1.0, float("nan")], [1.0, 2.0]) == float("inf")


def test_input_takes_the_arguments_that_a_worker_gives_to_a_dataset():
    for method in ("train", "test"):
        given, base = (inspect.signature(getattr(c, method)).parameters for c in (peer_models.PeerInput, DataSource))
        assert list(given) == list(base)
    with tf.Graph().as_default(), tf.Session() as session:
        data = peer_models.PeerInput(peer_models.WorkloadOptions(workload="table"))
        batch = tf.data.make_one_shot_iterator(data.train(shard=Shard(1, 2), batch_size=32, seed=0)).get_next()
        np.testing.assert_array_equal(session.run(batch)["ids"], peer_workloads.batch("table", 1)["ids"])

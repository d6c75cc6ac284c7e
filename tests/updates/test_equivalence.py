"""A cluster computes the result of one process, with async and sync, both layouts and several optimizers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.testing.cluster import InProcessCluster, config_of
from tests.testing.components import Dense, Embedded, RowOptions, Rows, global_batches, plain_loop
from tests.testing.repetitions import repetitions, representatives

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

LAYOUTS = ("packed", "per_variable")

OPTIMIZERS = {
    "sgd": (0.1, lambda: tf.train.GradientDescentOptimizer(0.1)),
    "momentum": (0.05, lambda: tf.train.MomentumOptimizer(0.05, 0.9)),
    "adam": (0.01, lambda: tf.train.AdamOptimizer(0.01)),
}


# The conformance suite has the other optimizers, and one worker under each rule.
@pytest.mark.parametrize("optimizer", representatives(OPTIMIZERS, ["adam"]))
@pytest.mark.parametrize("update", repetitions(["async", "sync"]))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_worker_equals_one_process(one_worker, layout, update, optimizer):
    learning_rate, create_optimizer = OPTIMIZERS[optimizer]
    config = config_of(
        "Dense", "Rows", layout=layout, update=update, optimizer=optimizer, learning_rate=learning_rate,
        batch_size=8, max_steps=20, seed=3,
    )  # fmt: skip
    (outcome,) = one_worker.run(config)
    losses, values = plain_loop(Dense(), global_batches(8, 20), create_optimizer, seed=3)
    np.testing.assert_allclose(outcome.losses, losses, rtol=0, atol=1e-6)
    _assert_same_values(outcome.worker.final_values, values, atol=1e-6)


@pytest.mark.parametrize("layout", repetitions(LAYOUTS))  # the next test has the other one
@pytest.mark.parametrize(("num_ps", "num_workers"), repetitions([(1, 3), (1, 2), (2, 2), (2, 3)], every=4))
def test_sync_workers_equal_one_process_with_all_their_examples(num_ps, num_workers, layout):
    with InProcessCluster(num_ps, num_workers) as cluster:
        config = config_of(
            "Dense", "Rows", layout=layout, update="sync", optimizer="momentum", learning_rate=0.05,
            batch_size=4, max_steps=20,
        )  # fmt: skip
        outcomes = cluster.run(config)
    losses, values = plain_loop(
        Dense(), global_batches(4, 20, num_workers), lambda: tf.train.MomentumOptimizer(0.05, 0.9)
    )
    mean_losses = np.mean([outcome.losses for outcome in outcomes], axis=0)
    np.testing.assert_allclose(mean_losses, losses, rtol=0, atol=1e-5)
    _assert_same_values(outcomes[0].worker.final_values, values, atol=1e-5)


# `test_synchronous.py` compares a table under SGD with NumPy.
@pytest.mark.parametrize("optimizer", repetitions(["sgd", "adam"], first=1))
@pytest.mark.parametrize("layout", repetitions(LAYOUTS, first=1))
@pytest.mark.parametrize(("num_ps", "num_workers"), repetitions([(1, 1), (2, 2)], first=1))
def test_embedding_in_sync_equals_one_process(num_ps, num_workers, layout, optimizer):
    learning_rate, create_optimizer = OPTIMIZERS[optimizer]
    with InProcessCluster(num_ps, num_workers) as cluster:
        config = config_of(
            "Embedded", "Rows", layout=layout, layout_option=("table_partitions=3",), update="sync",
            optimizer=optimizer, learning_rate=learning_rate, batch_size=4, max_steps=12,
        )  # fmt: skip
        outcomes = cluster.run(config)
    _, values = plain_loop(Embedded(), global_batches(4, 12, num_workers), create_optimizer)
    _assert_same_values(outcomes[0].worker.final_values, values, atol=1e-5)


def test_lazy_adam_touches_only_the_rows_of_the_batches(one_worker):
    config = config_of(
        "Embedded", "Rows", layout_option=("table_partitions=2",), optimizer="lazy_adam", learning_rate=0.01,
        batch_size=2, max_steps=2,
    )  # fmt: skip
    (outcome,) = one_worker.run(config)
    _, initial = plain_loop(Embedded(), global_batches(2, 2), lambda: tf.train.GradientDescentOptimizer(0.0))
    touched = np.unique(Rows(RowOptions()).arrays["ids"][: 2 * 2])
    changed = np.flatnonzero(np.any(outcome.worker.final_values["table"] != initial["table"], axis=1))
    np.testing.assert_array_equal(changed, touched)
    for slot in ("table/Adam", "table/Adam_1"):
        rows = outcome.worker.final_values[slot]
        np.testing.assert_array_equal(np.flatnonzero(np.any(rows != 0, axis=1)), touched)


def _assert_same_values(got, wanted, atol):
    wanted = {name: value for name, value in wanted.items() if not name.endswith("_power")}
    assert set(got) == set(wanted) | {"global_step"}
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=0, atol=atol, err_msg=name)

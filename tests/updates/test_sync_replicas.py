"""`sync_replicas` against its equation, and without the traps of TensorFlow's `SyncReplicasOptimizer`."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.errors import OptionError
from ps_trainer.updates.base import RunPlan
from ps_trainer.updates.options import SyncReplicasOptions
from tests.testing import oracles
from tests.testing.cluster import InProcessCluster, config_of
from tests.testing.gradient_groups import BATCH_SIZE, LEARNING_RATE, MODELS, AccumulatorScript, check_script
from tests.testing.repetitions import repetitions
from tests.testing.script import Linear, initial_values, worker_batch

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from ps_trainer.updates.sync_replicas import SyncReplicas  # isort: skip
from ps_trainer.updates.sync_replicas_accumulators import PsVariables  # isort: skip
from ps_trainer.updates.sync_replicas_optimizer import SyncReplicasOptimizer  # isort: skip

NUM_WORKERS = 3


# The sparse model has dense parts, and the conformance suite has the other layout.
@pytest.mark.parametrize(
    ("model", "layout"),
    repetitions([("dense", "per_variable"), ("sparse", "packed"), ("sparse", "per_variable")], every=3, first=1),
)
def test_an_update_is_the_average_of_the_first_gradients_of_its_step(cluster, model, layout):
    # Worker 1 is late for step 1, worker 0 for steps 2 and 3; the late workers continue with the newest parameters.
    wanted = check_script(
        cluster, model, [0, 2, 1, 2, 1, 0, 2, 1, 0, 0, 2], required=lambda clock: 2, is_fresh_only=True, waits=True,
        script_class=AccumulatorScript, update="sync_replicas", update_option=("replicas_to_aggregate=2",),
        layout=layout,
    )  # fmt: skip
    assert wanted.staleness == [[0, -1, -1, 0], [-1, 0, 0], [0, 0, 0, 0]]


@pytest.mark.full  # the conformance suite counts a third of each worker's gradient in each update
def test_by_default_an_update_is_the_average_of_all(cluster):
    wanted = check_script(
        cluster, "sparse", [0, 2, 1, 2, 1, 0], required=lambda clock: 3, is_fresh_only=True, waits=True,
        script_class=AccumulatorScript, update="sync_replicas", layout="per_variable",
    )  # fmt: skip
    assert wanted.staleness == [[0, 0]] * 3


@pytest.mark.parametrize(
    ("num_ps", "layout", "model"),
    repetitions([(2, "per_variable", "sparse"), (1, "packed", "dense"), (1, "per_variable", "dense")], every=3),
)
def test_when_a_workers_data_end_the_average_is_over_the_other(num_ps, layout, model):
    name, loss_and_gradient = MODELS[model]
    config = config_of(
        name, "Rows", ["lengths=15,5"], update="sync_replicas", layout=layout, batch_size=BATCH_SIZE,
        learning_rate=LEARNING_RATE, max_steps=None, num_epochs=100,
    )  # fmt: skip
    with InProcessCluster(num_ps, 2) as cluster:
        outcomes = cluster.run(config)
    wanted = initial_values(Linear()) if model == "dense" else initial_values(_embedded())
    for step in range(15):
        there = (0, 1) if step < 5 else (0,)
        gradients = [loss_and_gradient(wanted, worker_batch(worker, 2, BATCH_SIZE, step))[1] for worker in there]
        wanted = oracles.sgd(wanted, oracles.mean(gradients), LEARNING_RATE)
    for name, value in wanted.items():
        np.testing.assert_allclose(outcomes[0].worker.final_values[name], value, rtol=0, atol=1e-6, err_msg=name)
    workers = outcomes[0].worker.summary.workers
    assert [(workers[index].pushes, workers[index].gradients_dropped) for index in (0, 1)] == [(15, 0), (5, 0)]


def test_no_worker_counts_twice_in_an_update_although_one_is_slow():
    """With TensorFlow's class, worker 0 makes most of both gradients of an update."""
    config = config_of(
        "Credits", "Rows", update="sync_replicas", layout="per_variable", batch_size=4, max_steps=30,
        straggler=("det:mean_ms=20,worker=1",),
    )  # fmt: skip
    with InProcessCluster(1, 2) as cluster:
        outcomes = cluster.run(config)
    for name in ("left", "right"):
        moved = -outcomes[0].worker.final_values[name].ravel()[:2] / 0.1
        np.testing.assert_allclose(moved, [15, 15], rtol=0, atol=1e-3)
    assert [outcome.progress.global_steps for outcome in outcomes] == [list(range(1, 31))] * 2


# Each part of a table has its own accumulator, and so its own workers: with one ps task the table is whole.
# The script above has two ps tasks.
@pytest.mark.parametrize(("model", "num_ps"), repetitions([("CreditRows", 1), ("Credits", 2)]))
def test_with_backup_workers_each_update_is_an_average_of_whole_gradients(model, num_ps):
    """Also where a late gradient comes between the takes of two accumulators."""
    config = config_of(
        model, "Rows", update="sync_replicas", update_option=("replicas_to_aggregate=2",), layout="per_variable",
        batch_size=4, max_steps=60,
    )  # fmt: skip
    with InProcessCluster(num_ps, 3) as cluster:
        outcomes = cluster.run(config)
    values = {name: value for name, value in outcomes[0].worker.final_values.items() if name != "global_step"}
    for name, value in values.items():
        assert np.sum(-value / 0.1) == pytest.approx(60, abs=1e-2), name


def test_it_is_tensorflows_class():
    assert issubclass(SyncReplicasOptimizer, tf.train.SyncReplicasOptimizer)


def test_there_are_no_tokens_before_the_first_update_and_no_queue_runner():
    with tf.Graph().as_default():
        variable = tf.get_variable("w", [2], use_resource=True)
        step = tf.get_variable("step", [], tf.int64, initializer=tf.zeros_initializer(), use_resource=True)
        place = PsVariables("/cpu:0", [variable], step, tf.constant(0, tf.int64))
        inner = tf.train.GradientDescentOptimizer(1.0)
        optimizer = SyncReplicasOptimizer(inner, 2, 2, ps_tasks=[place], worker_index=0)
        optimizer.apply_gradients([(tf.ones([2]), variable)], global_step=step)
        for forbidden in (optimizer.get_init_tokens_op, optimizer.get_chief_queue_runner):
            with pytest.raises(NotImplementedError):
                forbidden()
        with pytest.raises(ValueError, match="Global step is required"):
            optimizer.apply_gradients([(tf.ones([2]), variable)])
        queues = [op.get_attr("shared_name").decode() for op in tf.get_default_graph().get_operations()
                  if op.type == "FIFOQueueV2"]  # fmt: skip
    assert queues == ["sync_replicas/sync_token_q_0", "sync_replicas/sync_token_q_1"]


def test_limits():
    rule = SyncReplicas(SyncReplicasOptions(replicas_to_aggregate=3))
    rule.check(RunPlan(num_workers=3))
    assert (rule.min_workers(4), SyncReplicas(SyncReplicasOptions()).min_workers(4)) == (3, 4)
    with pytest.raises(OptionError, match="replicas_to_aggregate=3 exceeds num_workers=2"):
        rule.check(RunPlan(num_workers=2))


def _embedded():
    from tests.testing.script import EmbeddedLinear

    return EmbeddedLinear()

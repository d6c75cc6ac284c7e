"""Rule `hybrid`: tables on the ps tasks and the other variables around a ring, both updated in the same step."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.errors import Interrupted, OptionError, PeerFailedError
from ps_trainer.runtime.server import session_config
from tests.testing.cluster import InProcessCluster, config_of, wait_until
from tests.testing.components import Embedded, global_batches, plain_loop
from tests.testing.repetitions import repetitions, representatives

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from ps_trainer.training import components as components_lib
from ps_trainer.training import graph as graph_lib

LAYOUTS = ("packed", "per_variable")
OPTIMIZERS = {
    "sgd": (0.1, lambda: tf.train.GradientDescentOptimizer(0.1)),
    "adagrad": (0.1, lambda: tf.train.AdagradOptimizer(0.1)),
    "adam": (0.01, lambda: tf.train.AdamOptimizer(0.01)),
}
BATCH, STEPS = 4, 12


@pytest.fixture(scope="module")
def two_workers():
    with InProcessCluster(num_ps=2, num_workers=2) as cluster:
        yield cluster


def config(options=(), **fields):
    fields = {"update": "hybrid", "batch_size": BATCH, "max_steps": STEPS} | fields
    return config_of("Embedded", "Rows", options, layout_option=("table_partitions=3",), **fields)


def assert_same_values(got, wanted, global_step):
    wanted = {name: value for name, value in wanted.items() if not name.endswith("_power")}
    assert set(got) == set(wanted) | {"global_step"}
    assert got["global_step"] == global_step
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-5, err_msg=name)


# The other tests of this file train by SGD and Adagrad, and the conformance suite has packed parameters.
@pytest.mark.parametrize("layout", repetitions(LAYOUTS, first=1))
@pytest.mark.parametrize("optimizer", representatives(OPTIMIZERS, ["adam"]))
def test_two_workers_equal_one_process_with_their_examples(two_workers, optimizer, layout):
    learning_rate, create_optimizer = OPTIMIZERS[optimizer]
    outcomes = two_workers.run(config(layout=layout, optimizer=optimizer, learning_rate=learning_rate))
    losses, values = plain_loop(Embedded(), global_batches(BATCH, STEPS, 2), create_optimizer)
    np.testing.assert_allclose(np.mean([o.losses for o in outcomes], axis=0), losses, rtol=0, atol=1e-5)
    assert_same_values(outcomes[0].worker.final_values, values, STEPS)


@pytest.mark.parametrize("num_workers", repetitions([1, 3], first=1))  # the conformance suite has one worker
def test_any_number_of_workers(num_workers):
    with InProcessCluster(1, num_workers) as cluster:
        outcomes = cluster.run(config(learning_rate=0.1))
    _, values = plain_loop(Embedded(), global_batches(BATCH, STEPS, num_workers), OPTIMIZERS["sgd"][1])
    assert_same_values(outcomes[0].worker.final_values, values, STEPS)


def test_batches_may_look_up_no_row_of_a_part_of_the_table(two_workers):
    # One example has three of 23 ids, so most steps use only two of the table's three parts.
    outcomes = two_workers.run(config(batch_size=1, learning_rate=0.1))
    _, values = plain_loop(Embedded(), global_batches(1, STEPS, 2), OPTIMIZERS["sgd"][1])
    assert_same_values(outcomes[0].worker.final_values, values, STEPS)


@pytest.mark.parametrize("lengths", [(5, 12), (12, 5)])
def test_the_mean_is_over_the_workers_that_have_data(two_workers, lengths):
    outcomes = two_workers.run(
        config([f"lengths={lengths[0]},{lengths[1]}"], max_steps=None, num_epochs=100, learning_rate=0.1)
    )
    last = int(np.argmax(lengths))
    batches = global_batches(BATCH, max(lengths), 2)
    for step in range(min(lengths), max(lengths)):
        own = {name: array[last * BATCH : (last + 1) * BATCH] for name, array in batches[step].items()}
        # The same batch twice has the same mean gradient; `plain_loop` takes one size.
        batches[step] = {name: np.concatenate([array, array]) for name, array in own.items()}
    _, values = plain_loop(Embedded(), batches, OPTIMIZERS["sgd"][1])
    assert [outcome.code for outcome in outcomes] == [0, 0]
    assert tuple(len(outcome.losses) for outcome in outcomes) == lengths
    assert_same_values(outcomes[0].worker.final_values, values, max(lengths))


@pytest.mark.full  # the resumed run below is a second run on the same servers, and equals one process
def test_a_second_run_on_the_same_servers_equals_the_first(two_workers):
    first, second = (two_workers.run(config(optimizer="adagrad")) for _ in range(2))
    np.testing.assert_allclose(first[0].losses, second[0].losses, rtol=0, atol=1e-6)


def test_a_resumed_run_equals_an_uninterrupted_one(two_workers, tmp_path):
    fields = {"optimizer": "adagrad", "learning_rate": 0.1, "logdir": str(tmp_path)}
    two_workers.run(config(**fields, max_steps=STEPS // 2))
    outcomes = two_workers.run(config(**fields))
    whole_batches = global_batches(BATCH, STEPS, 2)
    _, values = plain_loop(Embedded(), whole_batches, OPTIMIZERS["adagrad"][1])
    assert_same_values(outcomes[0].worker.final_values, values, STEPS)


def test_rows_left_by_an_earlier_start_of_the_run_are_cleared(two_workers):
    """The first update after a start must not contain gradients that a killed run pushed and did not apply."""
    task = two_workers.task("worker", 0)
    train = graph_lib.build(components_lib.load(config(), 2), task, config(), "run-of-the-test")
    with train.graph.as_default():
        rows = [v.read_value() for v in train.step.state if v.op.name.endswith("/indices")]
    target = f"grpc://{task.own_address}"
    with tf.Session(target, graph=train.graph, config=session_config(task.device)) as session:
        train.state.initialize(session, train.model_trace.initial_values())
        session.run([train.scaffold.local_init_op, train.init_state_op])
        for op in train.join_ops:
            session.run(op)
        for op in train.begin_data_ops:
            session.run(op)
        session.run(train.fetches[0])
        assert sum(map(len, session.run(rows))) == len(np.unique(global_batches(BATCH, 1, 2)[0]["ids"][:BATCH]))
        session.run(train.init_state_op)
        assert sum(map(len, session.run(rows))) == 0


def test_an_interrupted_worker_ends_the_other_and_is_named():
    with InProcessCluster(1, 2) as cluster:
        calls = [cluster.start(config(max_steps=10**9), index) for index in range(2)]
        wait_until(lambda: all(call.made and len(call.made[-1].losses) > 5 for call in calls))
        calls[1].stop.request(Interrupted(15))
        # In a real task its supervisor does this after a moment.
        wait_until(lambda: calls[0].stop.is_requested)
        calls[0].stop.call("release")
        outcomes = [cluster.finish(call) for call in calls]
    assert isinstance(outcomes[1].error, Interrupted)
    assert isinstance(outcomes[0].error, PeerFailedError)
    assert "worker 1 interrupted" in str(outcomes[0].error)


def test_models_without_tables_are_rejected_and_all_reduce_is_named():
    with pytest.raises(OptionError, match=r"hybrid is for models with embedding tables.*--update=all_reduce"):
        components_lib.load(config_of("Dense", "Rows", update="hybrid"), 2)


def test_packed_gradients_are_rejected():
    with pytest.raises(OptionError, match=r"--gradient_transform top_k.*clip_norm.*--update"):
        components_lib.load(config(gradient_transform=("top_k:ratio=0.1",)), 2)

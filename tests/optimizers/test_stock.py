"""Stock optimizers against NumPy: dense and sparse, slots, options."""

from __future__ import annotations

import functools
import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer import component_tables
from ps_trainer.errors import OptionError
from ps_trainer.optimizers import adam, stock
from tests.optimizers import cases, oracle

RMSPROP = {"decay": 0.8, "momentum": 0.5, "epsilon": 1e-3}
FTRL = {"l1": 0.3, "l2": 0.1, "initial_accumulator_value": 0.2}
COMPONENTS = {
    "sgd": (stock.Sgd, {}, oracle.sgd),
    "momentum": (stock.Momentum, {"momentum": 0.8}, functools.partial(oracle.momentum, mu=0.8)),
    "nesterov": (stock.Momentum, {"nesterov": True}, functools.partial(oracle.momentum, nesterov=True)),
    "adagrad": (stock.Adagrad, {"initial_accumulator_value": 0.3}, oracle.adagrad),
    "rmsprop": (stock.RmsProp, RMSPROP, functools.partial(oracle.rmsprop, decay=0.8, mu=0.5, eps=1e-3)),
    "centered": (
        stock.RmsProp,
        RMSPROP | {"centered": True},
        functools.partial(oracle.rmsprop, decay=0.8, mu=0.5, eps=1e-3),
    ),
    "ftrl": (stock.Ftrl, FTRL, functools.partial(oracle.ftrl, l1=0.3, l2=0.1)),
    "ftrl_power": (
        stock.Ftrl,
        FTRL | {"learning_rate_power": -0.7},
        functools.partial(oracle.ftrl, l1=0.3, l2=0.1, power=-0.7),
    ),
}


@pytest.mark.parametrize("name", COMPONENTS)
def test_dense_updates_follow_the_formula(name):
    cls, options, update = COMPONENTS[name]
    trace = oracle.run(cls(cls.Options(**options)), cases.INITIAL, cases.DENSE)
    oracle.assert_follows(trace, update, cases.DENSE)


@pytest.mark.parametrize("name", COMPONENTS)
def test_sparse_updates_follow_the_formula_on_their_rows_and_leave_the_others(name):
    cls, options, update = COMPONENTS[name]
    trace = oracle.run(cls(cls.Options(**options)), cases.INITIAL, cases.SPARSE)
    oracle.assert_follows(trace, functools.partial(oracle.by_rows, update), cases.SPARSE)
    cases.assert_untouched_rows_are_identical(trace.states)


@pytest.mark.parametrize(
    ("name", "slots", "first_values"),
    [
        ("sgd", [], {}),
        ("momentum", ["w/Momentum"], {"momentum": 0.0}),
        ("adagrad", ["w/Adagrad"], {"accumulator": 0.3}),
        ("rmsprop", ["w/RMSProp", "w/RMSProp_1"], {"rms": 1.0, "momentum": 0.0}),
        ("centered", ["w/RMSProp", "w/RMSProp_1", "w/RMSProp_2"], {"rms": 1.0, "mg": 0.0, "momentum": 0.0}),
        ("ftrl", ["w/Ftrl", "w/Ftrl_1"], {"accum": 0.2, "linear": 0.0}),
    ],
)
def test_slots_have_the_documented_names_and_first_values(name, slots, first_values):
    cls, options, _ = COMPONENTS[name]
    trace = oracle.run(cls(cls.Options(**options)), cases.INITIAL, cases.DENSE[:1])
    assert trace.names == ["w", *slots]
    for slot, value in first_values.items():
        np.testing.assert_array_equal(trace.states[0][slot], np.full_like(cases.INITIAL, value))


@pytest.mark.parametrize(
    "component",
    [
        stock.Sgd(stock.Sgd.Options()),
        stock.Momentum(stock.Momentum.Options(momentum=0.0)),
        adam.Adam(adam.AdamOptions(beta1=0.0, beta2=0.0, epsilon=1e-30)),
        adam.LazyAdam(adam.AdamOptions(beta1=0.0, beta2=0.0, epsilon=1e-30)),
    ],
    ids=["sgd", "momentum", "adam", "lazy_adam"],
)
def test_concurrent_sparse_updates_of_the_same_rows_lose_nothing(component):
    # Each update moves every element by exactly 1; with wide rows and many threads a shared lock would lose some.
    shape, num_threads, num_updates = (16, 4096), 8, 50
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(inter_op_parallelism_threads=8)) as session:
        w = tf.get_variable("w", shape, initializer=tf.zeros_initializer(), use_resource=True)
        indices = tf.placeholder(tf.int64, [None])
        gradient = tf.IndexedSlices(tf.ones([tf.size(indices), shape[1]]), indices, shape)
        apply_op = component.create(1.0, tf.constant(0, tf.int64)).apply_gradients([(gradient, w)])
        session.run(tf.global_variables_initializer())

        def push():
            for _ in range(num_updates):
                session.run(apply_op, {indices: np.arange(shape[0])})

        threads = [threading.Thread(target=push) for _ in range(num_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(np.unique(session.run(w))) == {-num_threads * num_updates}


@pytest.mark.parametrize("name", component_tables.OPTIMIZERS.names())
def test_all_variables_of_an_update_lie_on_the_ps(name):
    component = component_tables.OPTIMIZERS.create(name)
    schedule = component_tables.SCHEDULES.create("cosine", ["warmup_steps=9"])
    with tf.Graph().as_default() as graph:
        with tf.device("/job:worker/task:1"):
            dense = tf.placeholder(tf.float32, [4, 2])
            sparse = tf.IndexedSlices(tf.placeholder(tf.float32, [3, 2]), tf.placeholder(tf.int64, [3]), [6, 2])
        with tf.device("/job:ps/task:0"):
            clock = tf.get_variable("clock", [], tf.int64, use_resource=True, trainable=False)
            weights = tf.get_variable("weights", [4, 2], use_resource=True)
            table = tf.get_variable("table", [6, 2], use_resource=True)
        before = set(graph.get_operations())
        with tf.device("/job:worker/task:1"), tf.device("/job:ps/task:0"):
            rate = schedule.build(0.1, clock.read_value())
            component.create(rate, clock.read_value()).apply_gradients([(dense, weights), (sparse, table)])
        made = [op for op in graph.get_operations() if op not in before]
    assert any("Apply" in op.type or "Scatter" in op.type for op in made)
    assert {op.device for op in made} == {"/job:ps/task:0"}


@pytest.mark.parametrize("name", component_tables.OPTIMIZERS.names())
def test_walks_whole_table_is_true_if_a_sparse_update_makes_a_tensor_of_the_tables_size(name):
    component = component_tables.OPTIMIZERS.create(name)
    with tf.Graph().as_default() as graph:
        table = tf.get_variable("table", [1000, 2], use_resource=True)
        sparse = tf.IndexedSlices(tf.placeholder(tf.float32, [3, 2]), tf.placeholder(tf.int64, [3]), [1000, 2])
        step = tf.placeholder(tf.int64, [])
        component.create(0.1, step).apply_gradients([(sparse, table)], name="apply")
        outputs = [out for op in graph.get_operations() if op.name.startswith("apply/") for out in op.outputs]
    assert outputs
    assert any(out.shape.rank == 2 and out.shape[0] == 1000 for out in outputs) == component.walks_whole_table


def test_an_option_of_another_optimizer_is_unknown():
    with pytest.raises(OptionError, match="--optimizer_option.*unknown key 'momentum'"):
        component_tables.OPTIMIZERS.create("sgd", ["momentum=0.9"])

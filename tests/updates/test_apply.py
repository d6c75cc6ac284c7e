"""`Applier`: updates in a branch, factors of the learning rate, slots made in advance, and late reads of clocks."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from ps_trainer import component_tables
from ps_trainer.optimizers.assignment import OptimizerAssignment, VariableOptimizer
from ps_trainer.store.extents import Extent
from ps_trainer.store.pieces import Piece
from ps_trainer.updates.apply import Applier, count_update
from tests.optimizers import cases, oracle

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

RATE = oracle.LEARNING_RATE
UPDATES = {
    "sgd": oracle.sgd,
    "momentum": oracle.momentum,
    "adagrad": oracle.adagrad,
    "rmsprop": functools.partial(oracle.rmsprop, decay=0.9, mu=0.0, eps=1e-10),
    "ftrl": functools.partial(oracle.ftrl, l1=0.0, l2=0.0),
    "adam": oracle.adam,
    "lazy_adam": oracle.adam,
}


class OnePs:
    """The part of a store that an applier needs: one piece on one ps task, which is this process."""

    def __init__(self, shape, is_table=False):
        self.clocks = [tf.get_variable("global_step", [], tf.int64, tf.zeros_initializer(), use_resource=True)]
        variable = tf.get_variable("w", initializer=tf.constant(cases.INITIAL, tf.float32), use_resource=True)
        self.pieces = [Piece(variable, 0, (Extent("w", 0, cases.INITIAL.size, 0),), None, True, is_table)]
        assert variable.shape == shape

    def ps_device(self, ps: int) -> str:
        return ""


class Case:
    """An applier with its store and a placeholder for the gradient, in the default graph."""

    def __init__(self, optimizer, schedule="constant", schedule_options=(), is_sparse=False):
        self.store = OnePs(cases.INITIAL.shape, is_sparse)
        (self.piece,) = self.store.pieces
        self.applier = Applier(
            self.store,
            OptimizerAssignment(VariableOptimizer(component_tables.OPTIMIZERS.create(optimizer), RATE)),
            component_tables.SCHEDULES.create(schedule, schedule_options),
        )
        self.values = tf.placeholder(tf.float32, [None, *cases.INITIAL.shape[1:]] if is_sparse else cases.INITIAL.shape)
        self.indices = tf.placeholder(tf.int64, [None])
        self.gradient = tf.IndexedSlices(self.values, self.indices, cases.INITIAL.shape) if is_sparse else self.values

    def feed(self, gradient):
        if isinstance(gradient, tuple):
            return {self.values: gradient[0], self.indices: gradient[1]}
        return {self.values: gradient}

    def states(self):
        """The variable and its slots, by the names that the oracle uses."""
        optimizer = self.applier._slotted[0, 0]
        slots = {name: optimizer.get_slot(self.piece.variable, name) for name in optimizer.get_slot_names()}
        return {"w": self.piece.variable.read_value()} | {n: slot.read_value() for n, slot in slots.items()}


def run_in_branch(case, gradients, allowed):
    """Applies the gradients one after the other if `allowed` permits; returns the states before and after each."""
    is_allowed = tf.placeholder(tf.bool, [])
    case.applier.create_slots(0, [case.piece])

    def apply():
        with tf.control_dependencies([case.applier.apply(0, [(case.piece, case.gradient)])]):
            return count_update(case.store.clocks[0]) + 1

    clock = tf.cond(is_allowed, apply, lambda: case.store.clocks[0].read_value())
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        reads = case.states()
        states, clocks = [session.run(reads)], []
        for gradient, flag in zip(gradients, allowed, strict=True):
            clocks.append(session.run(clock, {is_allowed: flag, **case.feed(gradient)}))
            states.append(session.run(reads))
    return states, clocks


@pytest.mark.parametrize("is_sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("optimizer", component_tables.OPTIMIZERS.names())
def test_an_update_in_a_branch_follows_the_formula_and_an_untaken_one_changes_nothing(optimizer, is_sparse):
    # The second gradient is not applied; the sparse gradients are the ones with rows.
    gradients = [(cases.SPARSE if is_sparse else cases.DENSE)[number] for number in (0, 1, 3)]
    update = UPDATES[optimizer]
    if is_sparse and optimizer == "adam":  # Adam updates the whole table
        update = lambda s, g, t, lr: oracle.adam(s, oracle.as_dense(g, s["w"].shape), t, lr)  # noqa: E731
    elif is_sparse:
        update = functools.partial(oracle.by_rows, update)
    with tf.Graph().as_default():
        states, clocks = run_in_branch(Case(optimizer, is_sparse=is_sparse), gradients, [True, False, True])
    assert clocks == [1, 1, 2]
    for name, value in states[1].items():
        np.testing.assert_array_equal(states[2][name], value, err_msg=name)
    expected = {name: value.astype(np.float64) for name, value in states[0].items()}
    for t, (gradient, got) in enumerate([(gradients[0], states[1]), (gradients[2], states[3])], start=1):
        expected = update(expected, gradient, t, RATE)
        for name, value in expected.items():
            np.testing.assert_allclose(got[name], value, rtol=1e-6, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("optimizer", component_tables.OPTIMIZERS.names())
def test_slots_made_in_advance_equal_those_that_an_update_makes(optimizer):
    def names_of(make_slots_before):
        with tf.Graph().as_default():
            case = Case(optimizer)
            if make_slots_before:
                case.applier.create_slots(0, [case.piece])
            case.applier.apply(0, [(case.piece, case.gradient)])
            made = sorted(variable.op.name for variable in tf.global_variables())
            initial = [slot.initializer.inputs[1] for _, slot in case.applier.slots]
            with tf.Session() as session:
                return [slot.op.name for _, slot in case.applier.slots], made, session.run(initial)

    before, itself = names_of(True), names_of(False)
    assert before[:2] == itself[:2]
    for one, other in zip(before[2], itself[2], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("factor", [1.0, 0.25, 0.0])
def test_the_learning_rate_is_multiplied_by_the_factor(factor):
    with tf.Graph().as_default():
        case = Case("sgd", "exponential", ["decay_steps=1", "decay_rate=0.5"])
        apply_op = case.applier.apply(0, [(case.piece, case.gradient)], rate_factor=tf.constant(factor, tf.float64))
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(case.store.clocks[0].assign(3))
            session.run(apply_op, case.feed(cases.DENSE[0]))
            got = session.run(case.piece.variable)
    rate = RATE * 0.5**3 * factor
    np.testing.assert_allclose(got, cases.INITIAL - rate * cases.DENSE[0], rtol=0, atol=1e-6)


def test_the_clock_is_read_when_the_gradient_has_arrived():
    with tf.Graph().as_default() as graph:
        with tf.device("/job:worker/task:0"):
            gradient = tf.placeholder(tf.float32, cases.INITIAL.shape)
        case = Case("sgd", "exponential")
        before = set(graph.get_operations())
        case.store.ps_device = lambda ps: "/job:ps/task:0"
        case.applier.apply(0, [(case.piece, gradient)])
        made = [op for op in graph.get_operations() if op not in before]
    (read,) = [op for op in made if op.type == "ReadVariableOp" and op.inputs[0] is case.store.clocks[0].handle]
    (arrival,) = read.control_inputs
    assert (arrival.type, arrival.device, arrival.inputs[0]) == ("Identity", "/job:ps/task:0", gradient)


def test_a_ps_task_without_gradients_has_nothing_to_apply():
    with tf.Graph().as_default() as graph:
        case = Case("adam")
        before = len(graph.get_operations())
        assert case.applier.apply(0, []).type == "NoOp"
        assert len(graph.get_operations()) == before + 1
        assert case.applier.slots == []


class TestPrivateMembersOfOptimizers:
    """The members of TensorFlow's optimizers that `create_slots` uses."""

    def test_create_slots_takes_variables_and_fills_the_dictionary_of_slots(self):
        with tf.Graph().as_default():
            w = tf.get_variable("w", [2], use_resource=True)
            optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
            assert optimizer._slots == {}
            optimizer._create_slots([w])
            assert list(optimizer._slots) == ["momentum"]
            (slot,) = optimizer._slots["momentum"].values()
            assert slot is optimizer.get_slot(w, "momentum")

    def test_an_optimizer_takes_over_the_slots_of_another(self):
        with tf.Graph().as_default():
            w = tf.get_variable("w", [2], use_resource=True)
            first, second = (tf.train.MomentumOptimizer(rate, 0.9) for rate in (0.1, 0.2))
            first._create_slots([w])
            second._slots = first._slots
            second.apply_gradients([(tf.ones([2]), w)])
            assert second.get_slot(w, "momentum") is first.get_slot(w, "momentum")
            assert len(tf.global_variables()) == 2  # w and one slot

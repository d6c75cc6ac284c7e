"""A held state keeps the values of one moment, whatever is updated while it is read, and then frees its memory."""

from __future__ import annotations

import types

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints import held_state
from ps_trainer.checkpoints.stored_state import SavedVariable
from ps_trainer.store.extents import Extent, VariableSpec
from ps_trainer.store.variables import create_variable

TABLE, PACKED, SMALL = np.arange(35.0, dtype=np.float32).reshape(7, 5), np.arange(23.0), np.arange(3.0)


class SmallRun:
    """A table, a variable that holds two of the model's, a small one, a clock and a count.

    Attributes:
        wanted: Values by name that the state has before any update.
    """

    def __init__(self):
        self.wanted = {"table": TABLE, "a": PACKED[:11], "b": PACKED[11:], "small": SMALL}
        with tf.Graph().as_default() as graph, graph.container("run"):
            values = {"table": TABLE, "packed": PACKED, "small": SMALL}
            made = {name: create_variable(name, value.shape, value.dtype) for name, value in values.items()}
            clock, count = create_variable("global_step", [], tf.int64), create_variable("count", [2], tf.int64)
            specs = [VariableSpec(name, value.shape, value.dtype, True, False) for name, value in self.wanted.items()]
            whole = {name: (Extent(name, 0, made[name].shape.num_elements(), 0),) for name in ("table", "small")}
            extents = whole | {"packed": (Extent("a", 0, 11, 0), Extent("b", 0, 12, 11))}
            self.held = held_state.HeldState(
                types.SimpleNamespace(
                    saved_variables=[SavedVariable(made[name], extents[name], is_slot=False) for name in made],
                    count_reads={"count": count.read_value()},
                    clock=clock,
                    specs=specs,
                ),
                {},
                call_secs=60.0,
            )
            copies = [one.copy for one in self.held._large]
            self.num_held = tf.add_n([tf.constant(0), *(tf.size(copy.read_value()) for copy in copies)])
            load_ops = [made[name].assign(value) for name, value in values.items()]
            optimizer = tf.train.AdamOptimizer(0.1)
            rows = tf.nn.embedding_lookup(made["table"], [1, 4, 6])
            others = tf.reduce_sum(made["packed"]) + tf.reduce_sum(made["small"])
            loss = tf.reduce_sum(rows) + tf.cast(others, tf.float32)
            with tf.control_dependencies([optimizer.minimize(loss, var_list=list(made.values()))]):
                self.update_op = tf.group(clock.assign_add(1), count.assign_add([1, 2]))
            init_op = tf.global_variables_initializer()
        self.session = tf.Session(graph=graph)
        self.session.run([init_op, self.held.release_op])
        self.session.run(load_ops)

    def read(self, moment, after_slice=lambda: None):
        return self.held.read(self.session, moment, after_slice)


@pytest.fixture(params=[True, False], ids=["all_large", "all_small"])
def run(request, monkeypatch):
    monkeypatch.setattr(held_state, "_SMALL_BYTES", 0 if request.param else 2**20)
    monkeypatch.setattr(held_state, "_SLICE_BYTES", 32)
    made = SmallRun()
    with made.session:
        yield made


def test_has_the_values_of_its_moment_although_updates_happen_between_the_slices(run):
    moment = run.held.hold(run.session)
    run.session.run(run.update_op)
    values = run.read(moment, lambda: run.session.run(run.update_op))
    assert set(values) == {*run.wanted, "global_step", "count"}
    for name, value in run.wanted.items():
        assert values[name].dtype == value.dtype
        np.testing.assert_array_equal(values[name], value)
    assert (int(values["global_step"]), values["count"].tolist()) == (0, [0, 0])


def test_a_later_moment_has_the_values_after_the_updates(run):
    run.read(run.held.hold(run.session))
    run.session.run(run.update_op)
    moment = run.held.hold(run.session)
    run.session.run(run.update_op)
    values = run.read(moment)
    assert (int(values["global_step"]), values["count"].tolist()) == (1, [1, 2])
    changed = np.zeros([7, 1], bool)
    changed[[1, 4, 6]] = True
    # Adam's first step is the learning rate, for every element with a gradient.
    np.testing.assert_allclose(values["table"], TABLE - 0.1 * changed, atol=1e-5)
    np.testing.assert_allclose(values["b"], PACKED[11:] - 0.1, atol=1e-5)
    np.testing.assert_allclose(values["small"], SMALL - 0.1, atol=1e-5)


def test_the_memory_is_free_after_the_reading_and_after_its_failure(run):
    run.read(run.held.hold(run.session))
    assert run.session.run(run.num_held) == 0
    moment = run.held.hold(run.session)
    is_held = run.held.num_bytes > 0
    assert (run.session.run(run.num_held) > 0) == is_held

    def fail():
        raise ValueError("enough")

    if is_held:
        with pytest.raises(ValueError, match="enough"):
            run.read(moment, fail)
    assert run.session.run(run.num_held) == 0


def test_the_largest_variables_are_held_and_the_others_are_read_at_once(monkeypatch):
    monkeypatch.setattr(held_state, "_SMALL_BYTES", SMALL.nbytes + TABLE.nbytes)
    run = SmallRun()
    assert run.held.num_bytes == PACKED.nbytes
    run.session.close()

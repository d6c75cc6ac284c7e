"""Calls with fed values give what `Session.run` gives, and do not call it."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.store import fed_call


@pytest.fixture
def session():
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def test_values_of_all_types_are_those_of_run(session):
    feeds = [tf.placeholder(dtype, shape) for dtype, shape in ((tf.string, []), (tf.int64, [2]), (tf.float32, []))]
    variable = tf.get_variable("total", [], initializer=tf.zeros_initializer(), use_resource=True)
    fetches = [feeds[0] + "!", feeds[1] * 2, variable.assign_add(feeds[2]).op, feeds[2], feeds[2] + 0.5]
    values = (b"text", [3, 2**40], 1.25)
    session.run(variable.initializer)
    got = fed_call.make(session, fetches, feeds)(*values)
    wanted = [value for value in session.run(fetches, dict(zip(feeds, values, strict=True))) if value is not None]
    assert got[0] == wanted[0] == b"text!"
    for one, other in zip(got[1:], wanted[1:], strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    assert fed_call.make(session, [variable], [])() == [2 * 1.25]


def test_run_is_not_called(session, monkeypatch):
    feed = tf.placeholder(tf.float32, [])
    call = fed_call.make(session, [feed + 1], [feed])
    monkeypatch.setattr(tf.Session, "run", None)
    assert [call(2), call(3)] == [[3], [4]]


def test_a_failing_op_raises_the_error_of_run_with_its_message(session):
    feed = tf.placeholder(tf.int64, [1])
    table = tf.constant([1, 2, 3])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[0\] = 7 is not in \[0, 3\)"):
        fed_call.make(session, [tf.gather(table, feed)], [feed])([7])
    examples = tf.data.make_initializable_iterator(tf.data.Dataset.range(1))
    session.run(examples.initializer)
    call = fed_call.make(session, [examples.get_next() + feed], [feed])
    assert call([5]) == [[5]]
    with pytest.raises(tf.errors.OutOfRangeError):
        call([5])

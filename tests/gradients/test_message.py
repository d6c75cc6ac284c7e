"""Several vectors in one message of bytes."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.gradients import message as message_lib

PARTS = {
    "float32": np.float32([1.5, -2, np.inf]),
    "uint8": np.uint8([1, 255, 3]),
    "int32": np.int32([-7, 2**31 - 1]),
    "bfloat16": np.array([1.0, -0.5, 3.0], tf.bfloat16.as_numpy_dtype),
    "int64": np.int64([2**62]),
    "empty": np.float32([]),
}


@pytest.mark.parametrize(
    ("dynamic", "num_counts"),
    [((), 0), (("uint8",), 0), (("uint8", "bfloat16"), 1), (tuple(PARTS), len(PARTS) - 1)],
)
def test_returns_every_vector_and_adds_only_the_sizes_that_the_graph_does_not_know(dynamic, num_counts):
    with tf.Graph().as_default(), tf.Session() as session:
        fed = {
            name: tf.placeholder(part.dtype, [None if name in dynamic else part.size]) for name, part in PARTS.items()
        }
        message, unpack = message_lib.pack(list(fed.values()))
        feed = {fed[name]: part for name, part in PARTS.items()}
        num_bytes = tf.convert_to_tensor(message_lib.num_bytes(message))
        message_v, unpacked_v, num_bytes_v = session.run([message, unpack(message), num_bytes], feed)
    assert message_v.dtype == np.uint8
    assert message_v.size == num_bytes_v == sum(part.nbytes for part in PARTS.values()) + 4 * num_counts
    for got, want in zip(unpacked_v, PARTS.values(), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def test_a_single_vector_travels_as_it_is():
    with tf.Graph().as_default():
        part = tf.zeros([5], tf.bfloat16)
        message, unpack = message_lib.pack([part])
        assert message is part
        assert unpack(message) == [part]
        assert message_lib.num_bytes(message) == 2 * 5

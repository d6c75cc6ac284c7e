"""Booleans in bytes, against NumPy's packbits."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.gradients import bits as bits_lib


@pytest.mark.parametrize("is_static", [True, False])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1000])
def test_packs_eight_to_a_byte_and_unpacks_them(size, is_static):
    bits = np.random.RandomState(size).rand(size) < 0.5
    with tf.Graph().as_default(), tf.Session() as session:
        fed = tf.placeholder(tf.bool, [size if is_static else None])
        packed = bits_lib.pack(fed)
        packed_v, unpacked_v = session.run([packed, bits_lib.unpack(packed, size)], {fed: bits})
    assert packed.dtype == tf.uint8
    np.testing.assert_array_equal(packed_v, np.packbits(bits, bitorder="little"))
    np.testing.assert_array_equal(unpacked_v, bits)

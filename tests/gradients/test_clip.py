"""`clip_norm` and `clip_value` against NumPy, tables included."""

from __future__ import annotations

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.gradients import transform_list
from ps_trainer.gradients.base import SiteGradient
from ps_trainer.gradients.wire import Wire
from tests.gradients import lane as lane_lib
from tests.gradients.lane import TABLE, Lane, TableRows, dense, table_of
from tests.testing import oracles_gradients as oracles

STEPS = 3


def test_norm_covers_all_gradients_that_a_worker_sends():
    sites = dense(40, name="a"), dense(7, name="b"), TABLE
    firsts, seconds, rows = lane_lib.gradients(40), lane_lib.gradients(7, seed=1), lane_lib.rows(5)
    firsts[2] = firsts[2] * np.float32(0.01)  # the last step stays below the norm
    seconds[2], rows[2] = seconds[2] * np.float32(0.01), TableRows(rows[2].values * np.float32(0.01), rows[2].indices)
    with Lane("clip_norm:norm=1.5", *sites) as lane:
        for first, second, row in zip(firsts, seconds, rows, strict=True):
            arrived = lane.send(first, second, row)
            wanted = oracles.clip_norm([first, second, table_of(row)], 1.5)
            for got, want in zip(arrived.values, wanted, strict=True):
                np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(wanted[0], firsts[2])


def test_norm_is_of_rows_summed_over_their_occurrences():
    twice = TableRows(np.float32([[3, 0, 0], [1, 1, 1], [-3, 4, 0]]), np.array([2, 6, 2]))
    with Lane("clip_norm:norm=1", TABLE) as lane:
        (got,) = lane.send(twice).values
    length = np.sqrt(3 + 4**2)
    wanted = np.zeros(TABLE.shape)
    wanted[6], wanted[2, 1] = 1 / length, 4 / length
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6)


def test_value_bounds_each_element():
    (gradient, *_), (row, *_) = lane_lib.gradients(50), lane_lib.rows(4)
    with Lane("clip_value:value=0.5", dense(50), TABLE) as lane:
        for scale in (1, -2, 0.1):
            factor = np.float32(scale)
            arrived = lane.send(gradient * factor, TableRows(row.values * factor, row.indices))
            np.testing.assert_array_equal(arrived.values[0], np.clip(gradient * factor, -0.5, 0.5))
            np.testing.assert_array_equal(arrived.values[1], np.clip(table_of(row) * factor, -0.5, 0.5))


def test_several_act_in_order():
    (gradient,) = lane_lib.gradients(30, num_steps=1)
    with Lane("clip_value:value=0.5 clip_norm:norm=1", dense(30)) as lane:
        (got,) = lane.send(gradient).values
    (wanted,) = oracles.clip_norm([np.clip(gradient, -0.5, 0.5)], 1)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6)


def test_reduce_gives_on_the_worker_the_values_that_send_gives_on_the_ps():
    (gradient,) = lane_lib.gradients(30, num_steps=1)
    with Lane("clip_norm:norm=1", dense(30)) as lane:
        (sent,) = lane.send(gradient).values
    with tf.Graph().as_default(), tf.Session() as session:
        wire = Wire(
            transform_list.load(["clip_norm:norm=1"]),
            num_workers=1,
            worker_index=0,
            worker_device="/cpu:0",
            ps_device=lambda ps: "/job:ps/task:0",
            seed=0,
        )
        (reduced,) = wire.reduce([SiteGradient(dense(30), tf.constant(gradient))])
        assert "ps" not in reduced.value.device
        np.testing.assert_array_equal(session.run(reduced.value), sent)
        assert wire.payload_bytes == 0

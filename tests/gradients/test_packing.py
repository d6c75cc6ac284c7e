"""`one_bit`, `sign`, `terngrad` and `qsgd` against NumPy: values, bytes, bias."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.gradients.base import Segment
from tests.gradients import lane as lane_lib
from tests.gradients.lane import ROW_SIZE, TABLE, Lane, TableRows, dense, table_of, variables
from tests.testing import oracles_gradients as oracles

SEGMENTS = variables((7, 9), (9,), (61,))  # sizes that are not multiples of 8
SIZE = 7 * 9 + 9 + 61
PARTS = [slice(0, 63), slice(63, 72), slice(72, SIZE)]
NUM_BYTES = -(-SIZE // 8)  # a bit per element
NUM_ROWS = 5
NUM_ROW_BYTES = 4 * NUM_ROWS  # the indices
HEADER, COUNT = 4, 4  # for rows: the number of bytes of their values, and the number of values


def check(transforms, dense_oracle, row_oracle, num_dense_bytes, num_value_bytes):
    """Makes three steps; the oracles receive the step, the values and the parts."""
    site = dense(SIZE, SEGMENTS)
    with Lane(transforms, site, TABLE) as lane:
        steps = zip(lane_lib.gradients(SIZE), lane_lib.rows(NUM_ROWS), strict=True)
        for step, (gradient, row) in enumerate(steps):
            gradient[:63] *= 100  # so that the variables differ in scale
            arrived = lane.send(gradient, row)
            wanted = dense_oracle(step, gradient, PARTS)
            np.testing.assert_allclose(arrived.values[0], wanted, rtol=1e-6, atol=1e-6)
            flat = np.reshape(row.values, [-1])
            coded = np.reshape(row_oracle(step, flat, [slice(0, flat.size)]), [-1, ROW_SIZE])
            np.testing.assert_allclose(arrived.values[1], table_of(TableRows(coded, row.indices)), rtol=1e-6, atol=1e-6)
            assert arrived.payload_bytes == num_dense_bytes + HEADER + NUM_ROW_BYTES + num_value_bytes + COUNT


def test_one_bit_sends_a_bit_per_element_and_two_means_per_variable():
    def oracle(step, values, parts):
        return oracles.one_bit(values, parts)

    check("one_bit", oracle, oracle, NUM_BYTES + 3 * 8, -(-NUM_ROWS * ROW_SIZE // 8) + 8)


def test_one_bit_keeps_the_sum_and_takes_values_of_one_sign_only():
    with Lane("one_bit", dense(4)) as lane:
        np.testing.assert_array_equal(lane.send(np.float32([1, 3, -5, 0])).values[0], np.float32([4, 4, -15, 4]) / 3)
        np.testing.assert_array_equal(lane.send(np.float32([1, 3, 5, 7])).values[0], np.float32([4] * 4))
        np.testing.assert_array_equal(lane.send(-np.float32([1, 3, 5, 7])).values[0], np.float32([-4] * 4))


@pytest.mark.parametrize("scaled", [True, False])
def test_sign_sends_a_bit_per_element_and_a_mean_per_variable(scaled):
    def oracle(step, values, parts):
        return oracles.sign(values, parts, scaled)

    means = 4 if scaled else 0
    check(f"sign:scaled={scaled}", oracle, oracle, NUM_BYTES + 3 * means, -(-NUM_ROWS * ROW_SIZE // 8) + means)


@pytest.mark.parametrize("sigma", [None, 2.5, 0.5])
def test_terngrad_sends_two_bits_per_element_and_a_scale_per_variable(sigma):
    def oracle(site):
        def ternary(step, values, parts):
            return oracles.terngrad(values, parts, lane_lib.uniform(f"{site}/terngrad/", step, values.size), sigma)

        return ternary

    num_value_bytes = -(-NUM_ROWS * ROW_SIZE // 4) + 4
    check(f"terngrad:sigma={sigma}", oracle("dense"), oracle("table"), -(-SIZE // 4) + 3 * 4, num_value_bytes)


@pytest.mark.parametrize("norm", ["l2", "max"])
@pytest.mark.parametrize(("levels", "bucket_size"), [(127, 512), (4, 16), (1, 1)])
def test_qsgd_sends_a_byte_per_element_and_a_norm_per_bucket(levels, bucket_size, norm):
    def oracle(site):
        def quantised(step, values, parts):
            random = lane_lib.uniform(f"{site}/qsgd/", step, values.size)
            return oracles.qsgd(values, levels, bucket_size, norm, random)

        return quantised

    buckets, row_buckets = -(-SIZE // bucket_size), -(-NUM_ROWS * ROW_SIZE // bucket_size)
    options = f"levels={levels},bucket_size={bucket_size},norm={norm}"
    num_value_bytes = NUM_ROWS * ROW_SIZE + 4 * row_buckets + COUNT  # the number of norms follows from the rows
    check(f"qsgd:{options}", oracle("dense"), oracle("table"), SIZE + 4 * buckets, num_value_bytes)


@pytest.mark.parametrize("transform", ["one_bit", "sign:scaled=true", "terngrad", "qsgd:levels=2"])
def test_a_gradient_of_zeros_arrives_as_zeros(transform):
    with Lane(transform, dense(9)) as lane:
        np.testing.assert_array_equal(lane.send(np.zeros(9, np.float32)).values[0], np.zeros(9))


@pytest.mark.parametrize("transform", ["one_bit", "sign:scaled=true", "terngrad", "qsgd", "qsgd:norm=max"])
def test_nan_is_not_hidden(transform):
    gradient = np.float32([1, np.nan, -2])
    with Lane(transform, dense(3)) as lane:
        assert np.isnan(lane.send(gradient).values[0]).any()


@pytest.mark.parametrize(
    "transform", ["terngrad", "qsgd:levels=1,bucket_size=7", "qsgd:levels=3,bucket_size=7,norm=max", "qsgd"]
)
def test_random_rounding_is_unbiased(transform):
    """The limit is five standard errors of the quantiser's own spread, so a small bias would show."""
    num_copies, num_steps = 20, 100  # a step draws for each copy of the gradient
    (gradient,) = lane_lib.gradients(20, num_steps=1)
    with Lane(transform, dense(20 * num_copies, variables(*[(8,), (12,)] * num_copies))) as lane:
        arrived = [lane.send(np.tile(gradient, num_copies)).values[0] for _ in range(num_steps)]
    draws = np.reshape(arrived, [-1, 20]).astype(np.float64)
    standard_error = draws.std(axis=0) / np.sqrt(len(draws))
    assert np.all(np.abs(draws.mean(axis=0) - gradient) <= 5 * standard_error + 1e-5)
    assert np.median(standard_error) > 1e-5  # the quantiser rounded at all


def test_clipping_at_sigma_makes_terngrad_biased_and_calmer():
    gradient = np.ones(100, np.float32)
    gradient[0] = 50
    with Lane("terngrad", dense(100)) as plain, Lane("terngrad:sigma=2.5", dense(100)) as clipped:
        spreads = [np.std([lane.send(gradient).values[0] for _ in range(50)]) for lane in (plain, clipped)]
    assert spreads[1] < spreads[0] / 1.5


def test_draws_differ_between_steps_sites_and_workers_and_repeat_with_the_state():
    (gradient,) = lane_lib.gradients(64, num_steps=1)
    sites = dense(64, name="a"), dense(64, name="b")
    with Lane("terngrad", *sites) as lane, Lane("terngrad", *sites, worker_index=3) as other:
        first, other_first = lane.send(gradient, gradient), other.send(gradient, gradient)
        saved = lane.state()
        second = lane.send(gradient, gradient)
        lane.restore(saved)
        again = lane.send(gradient, gradient)
    assert saved == {"step": 1}
    different = [first.values[0], first.values[1], second.values[0], other_first.values[0]]
    assert len({tuple(values) for values in different}) == 4
    np.testing.assert_array_equal(again.values, second.values)


def test_a_part_of_a_variable_is_a_variable():
    cut = [Segment(0, 10, 90, (100,)), Segment(10, 10, 0, (100,))]
    (gradient,) = lane_lib.gradients(20, num_steps=1)
    with Lane("one_bit", dense(20, cut)) as lane:
        (got,) = lane.send(gradient).values
    np.testing.assert_allclose(got, oracles.one_bit(gradient, [slice(0, 10), slice(10, 20)]), rtol=0, atol=1e-6)

"""`top_k`, `random_k` and `threshold`: the elements that arrive, and their bytes."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.gradients.sparsify import num_kept
from tests.gradients import lane as lane_lib
from tests.gradients.lane import TABLE, Lane, dense, table_of
from tests.testing import oracles_gradients as oracles

SIZE = 250


@pytest.mark.parametrize(
    ("ratio", "size", "wanted"), [(0.01, 250, 3), (0.01, 300, 3), (0.3, 10, 3), (1e-9, 50, 1), (1, 7, 7)]
)
def test_number_kept_is_rounded_up(ratio, size, wanted):
    assert num_kept(ratio, size) == wanted


def test_top_k_sends_the_largest_and_leaves_rows_alone():
    k = 25
    with Lane("top_k:ratio=0.1", dense(SIZE), TABLE) as lane:
        for gradient, row in zip(lane_lib.gradients(SIZE), lane_lib.rows(4), strict=True):
            arrived = lane.send(gradient, row)
            np.testing.assert_array_equal(arrived.values[0], oracles.at(gradient, oracles.largest(gradient, k)))
            np.testing.assert_array_equal(arrived.values[1], table_of(row))
            assert arrived.payload_bytes == k * (4 + 4) + lane_lib.num_row_bytes(4)


def test_kept_values_can_be_cast():
    k = 25
    with Lane("top_k:ratio=0.1 cast", dense(SIZE)) as lane:
        for gradient in lane_lib.gradients(SIZE):
            arrived = lane.send(gradient)
            wanted = oracles.cast(oracles.at(gradient, oracles.largest(gradient, k)), "bfloat16")
            np.testing.assert_array_equal(arrived.values[0], wanted)
            assert arrived.payload_bytes == k * (4 + 2)


@pytest.mark.parametrize("scale", [True, False])
def test_random_k_sends_other_elements_in_each_step_and_no_indices(scale):
    k, seen = 25, set()
    with Lane(f"random_k:ratio=0.1,scale={scale}", dense(SIZE), TABLE) as lane:
        for step, (gradient, row) in enumerate(zip(lane_lib.gradients(SIZE), lane_lib.rows(4), strict=True)):
            arrived = lane.send(gradient, row)
            keys = lane_lib.integers("dense/random_k/", step, SIZE, minval=None, maxval=None)
            chosen = np.argsort(-keys.astype(np.int64), kind="stable")[:k]
            wanted = oracles.at(gradient, chosen) * np.float32(SIZE / k if scale else 1)
            np.testing.assert_array_equal(arrived.values[0], wanted)
            np.testing.assert_array_equal(arrived.values[1], table_of(row))
            assert arrived.payload_bytes == 4 * k + 8 + lane_lib.num_row_bytes(4)
            seen.add(tuple(sorted(chosen)))
    assert len(seen) == 3


def test_random_k_is_unbiased():
    size, k, num_copies, num_steps = 20, 5, 20, 100  # a step draws for each copy of the gradient
    num_draws = num_copies * num_steps
    (gradient,) = lane_lib.gradients(size, num_steps=1)
    with Lane("random_k:ratio=0.25", dense(size * num_copies)) as lane:
        arrived = [lane.send(np.tile(gradient, num_copies)).values[0] for _ in range(num_steps)]
    mean = np.mean(np.reshape(arrived, [num_draws, size]), axis=0)
    chance = k / size
    standard_error = np.abs(gradient) * np.sqrt((1 - chance) / chance / num_draws)
    assert np.all(np.abs(mean - gradient) <= 5 * standard_error)


def test_threshold_sends_all_elements_that_reach_it_even_none_or_all():
    with Lane("threshold:value=0.5", dense(SIZE), TABLE) as lane:
        for scale in (1.0, 1e-6, 1e6):
            gradient, row = lane_lib.gradients(SIZE)[0] * np.float32(scale), lane_lib.rows(4)[0]
            arrived = lane.send(gradient, row)
            wanted = np.where(np.abs(gradient) >= 0.5, gradient, 0)
            np.testing.assert_array_equal(arrived.values[0], wanted)
            np.testing.assert_array_equal(arrived.values[1], table_of(row))
            num_sent = np.count_nonzero(wanted)
            assert arrived.payload_bytes == 4 + 8 * num_sent + lane_lib.num_row_bytes(4)
    assert num_sent == SIZE


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_elements_above_the_threshold_can_be_packed(scale):
    gradient = lane_lib.gradients(SIZE)[0] * np.float32(scale)
    with Lane("threshold:value=0.5 one_bit", dense(SIZE)) as lane:
        arrived = lane.send(gradient)
    is_sent = np.abs(gradient) >= 0.5
    wanted = np.zeros(SIZE, np.float32)
    kept = gradient[is_sent]
    wanted[is_sent] = oracles.one_bit(kept, [slice(0, kept.size)])
    np.testing.assert_allclose(arrived.values[0], wanted, rtol=0, atol=1e-6)
    header, means, count = 4, 8, 4
    assert arrived.payload_bytes == header + 4 * kept.size + -(-kept.size // 8) + means + count

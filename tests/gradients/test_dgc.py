"""`dgc` against Algorithm 4 in NumPy, its sampling, warm-up and clipping."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gradients import lane as lane_lib
from tests.gradients.lane import NUM_COUNT_BYTES, NUM_WORKERS, TABLE, Lane, dense, table_of, variables
from tests.testing import oracles_gradients as oracles

SHAPES = (12, 10), (50,)
SIZE = 170
PARTS = [slice(0, 120), slice(120, SIZE)]


@pytest.mark.parametrize("momentum", [0.9, 0.0])
def test_sends_the_largest_of_each_variable_with_momentum_corrected_and_masked(momentum):
    counts = [12, 5]
    oracle = oracles.Dgc(SIZE, momentum)
    with Lane(f"dgc:ratio=0.1,momentum={momentum}", dense(SIZE, variables(*SHAPES)), TABLE) as lane:
        for gradient, row in zip(lane_lib.gradients(SIZE, num_steps=5), lane_lib.rows(4, num_steps=5), strict=True):
            arrived = lane.send(gradient, row)
            wanted = oracle.send(gradient, PARTS, counts)
            np.testing.assert_allclose(arrived.values[0], wanted, rtol=0, atol=1e-6)
            np.testing.assert_array_equal(arrived.values[1], table_of(row))
            assert arrived.payload_bytes == NUM_COUNT_BYTES + 8 * sum(counts) + lane_lib.num_row_bytes(4)
            state = lane.state()
            np.testing.assert_allclose(state["dense/dgc/velocity"], oracle.u, rtol=0, atol=1e-6)
            np.testing.assert_allclose(state["dense/dgc/residual"], oracle.v, rtol=0, atol=1e-6)


def test_without_momentum_nothing_is_lost():
    gradients = lane_lib.gradients(SIZE, num_steps=6)
    with Lane("dgc:ratio=0.05,momentum=0", dense(SIZE, variables(*SHAPES))) as lane:
        sent = [lane.send(gradient).values[0] for gradient in gradients]
        residual = lane.state()["dense/dgc/residual"]
    np.testing.assert_allclose(np.sum(sent, axis=0) + residual, np.sum(gradients, axis=0), rtol=0, atol=1e-5)


def test_sends_more_during_the_warm_up():
    size, stages = 1000, [0.1 ** (i / 5) for i in range(1, 6)]
    with Lane("dgc:ratio=0.1,warmup_steps=8", dense(size)) as lane:
        for step, gradient in enumerate(lane_lib.gradients(size, num_steps=11)):
            wanted = int(np.ceil(size * stages[min(step // 2, 4)]))
            assert lane.send(gradient).payload_bytes == NUM_COUNT_BYTES + 8 * wanted
    assert wanted == size * 0.1


def test_samples_a_large_variable_and_sends_about_its_share():
    size, ratio = 40_000, 0.01
    with Lane(f"dgc:ratio={ratio},momentum=0,sample=0.1", dense(size)) as lane:
        for gradient in lane_lib.gradients(size):
            before = lane.state()["dense/dgc/residual"]
            (sent,) = lane.send(gradient).values
            accumulated = before + gradient
            chosen = sent != 0
            np.testing.assert_array_equal(sent[chosen], accumulated[chosen])
            assert np.abs(accumulated[chosen]).min() >= np.abs(accumulated[~chosen]).max()
            # The threshold is the 40th of 4000 samples: its rank has a relative spread of about 1/√40 = 0.16.
            assert 0.2 * ratio * size < chosen.sum() < 1.8 * ratio * size
            assert chosen.sum() != ratio * size  # a sample of the whole variable would give exactly this count


def test_selects_once_more_where_far_too_many_reach_the_threshold():
    with Lane("dgc:ratio=0.1,momentum=0", dense(100)) as lane:
        arrived = lane.send(np.ones(100, np.float32))
    assert np.count_nonzero(arrived.values[0]) == 10
    assert arrived.payload_bytes == NUM_COUNT_BYTES + 8 * 10


def test_sends_no_zeros():
    gradient = np.zeros(100, np.float32)
    gradient[7] = 2
    with Lane("dgc:ratio=0.1", dense(100)) as lane:
        arrived = lane.send(gradient)
    np.testing.assert_array_equal(arrived.values[0], gradient)
    assert arrived.payload_bytes == NUM_COUNT_BYTES + 8


def test_clips_each_workers_gradient_to_its_share_of_the_norm():
    (gradient,), (row,) = lane_lib.gradients(SIZE, num_steps=1), lane_lib.rows(4, num_steps=1)
    with Lane("dgc:ratio=1,momentum=0,clip_norm=3", dense(SIZE), TABLE) as lane:
        arrived = lane.send(gradient, row)
    wanted = oracles.clip_norm([gradient, table_of(row)], 3 / np.sqrt(NUM_WORKERS))
    for got, want in zip(arrived.values, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)

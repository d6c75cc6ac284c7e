"""`power_sgd` against one subspace iteration in NumPy."""

from __future__ import annotations

import numpy as np

from ps_trainer.gradients import transform_list
from ps_trainer.gradients.base import Segment
from ps_trainer.gradients.power_sgd import MatrixBlock
from tests.gradients import lane as lane_lib
from tests.gradients.lane import TABLE, Lane, dense, table_of, variables
from tests.testing import oracles_gradients as oracles

SHAPES = (12, 10), (10,), (2, 3, 8), (3, 2), (5,)
SIZE = 120 + 10 + 48 + 6 + 5
RANK = 2


def test_sends_two_factors_per_matrix_and_the_rest_unchanged():
    matrices = [(slice(0, 120), (12, 10)), (slice(130, 178), (6, 8))]  # factors of (3, 2) would not be smaller
    with Lane(f"power_sgd:rank={RANK}", dense(SIZE, variables(*SHAPES)), TABLE) as lane:
        state = lane.state()
        factors = [state[name] for name in ("dense/power_sgd/q_0", "dense/power_sgd/q_2")]
        for gradient, row in zip(lane_lib.gradients(SIZE, num_steps=4), lane_lib.rows(4, num_steps=4), strict=True):
            arrived = lane.send(gradient, row)
            wanted = gradient.copy()
            for i, (part, shape) in enumerate(matrices):
                product, factors[i] = oracles.power_sgd(gradient[part].reshape(shape), factors[i])
                wanted[part] = product.reshape(-1)
            np.testing.assert_allclose(arrived.values[0], wanted, rtol=0, atol=1e-5)
            np.testing.assert_array_equal(arrived.values[1], table_of(row))
            num_sent = RANK * (12 + 10) + RANK * (6 + 8) + 10 + 6 + 5
            assert arrived.payload_bytes == 4 * num_sent + lane_lib.num_row_bytes(4)


def test_finds_a_low_rank_matrix_and_keeps_it():
    random = np.random.RandomState(0)
    matrix = (random.randn(30, RANK) @ random.randn(RANK, 20)).astype(np.float32)
    with Lane(f"power_sgd:rank={RANK}", dense(600, variables((30, 20)))) as lane:
        for _ in range(2):
            (got,) = lane.send(matrix.reshape(-1)).values
            np.testing.assert_allclose(got, matrix.reshape(-1), rtol=0, atol=1e-4)


def test_approaches_the_best_approximation_of_a_constant_gradient():
    (gradient,) = lane_lib.gradients(30, 20, num_steps=1)
    u, s, v = np.linalg.svd(gradient)
    best = np.linalg.norm(gradient - (u[:, :RANK] * s[:RANK]) @ v[:RANK])
    with Lane(f"power_sgd:rank={RANK}", dense(600, variables((30, 20)))) as lane:
        errors = [np.linalg.norm(gradient.reshape(-1) - lane.send(gradient.reshape(-1)).values[0]) for _ in range(60)]
    assert errors[0] > 1.02 * best
    assert best <= errors[-1] * (1 + 1e-6) < 1.005 * best


def test_recovers_from_a_gradient_of_zeros():
    (gradient,) = lane_lib.gradients(120, num_steps=1)
    with Lane(f"power_sgd:rank={RANK}", dense(120, variables((12, 10)))) as lane:
        np.testing.assert_array_equal(lane.send(np.zeros(120, np.float32)).values[0], np.zeros(120))
        lane.send(gradient)
        (got,) = lane.send(gradient).values
    assert np.linalg.norm(gradient - got) < 0.95 * np.linalg.norm(gradient)


def test_uses_the_whole_rows_of_a_variable_that_is_divided_between_ps_tasks():
    (transform,) = transform_list.create(["power_sgd:rank=1"])
    # Elements 5 to 47 of an (8, 6) variable: one element of row 0, rows 1 to 6, five elements of row 7.
    cut = [Segment(0, 3, 0, (3,)), Segment(3, 42, 5, (8, 6)), Segment(45, 4, 0, (4,))]
    assert transform.blocks(cut, 49) == [MatrixBlock(3 + 1, 0), MatrixBlock(6, 6), MatrixBlock(5 + 4, 0)]
    assert transform.blocks([Segment(0, 4, 1, (8, 6))], 4) == [MatrixBlock(4, 0)]
    (gradient,) = lane_lib.gradients(49, num_steps=1)
    with Lane("power_sgd:rank=1", dense(49, cut)) as lane:
        (got,) = lane.send(gradient).values
    np.testing.assert_array_equal(got[:4], gradient[:4])
    np.testing.assert_array_equal(got[40:], gradient[40:])
    assert np.linalg.matrix_rank(got[4:40].reshape(6, 6), tol=1e-5) == 1

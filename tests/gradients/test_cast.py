"""`cast` against rounding done on the bits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gradients import lane as lane_lib
from tests.gradients.lane import TABLE, Lane, dense, table_of
from tests.testing import oracles_gradients as oracles


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
class TestCast:
    def test_rounds_to_nearest_on_the_wire_and_gives_float32_back(self, dtype):
        with Lane(f"cast:dtype={dtype}", dense(1001), TABLE) as lane:
            assert [value.name for value in lane.types] == ["float32", "float32"]
            for gradient, row in zip(lane_lib.gradients(1001), lane_lib.rows(6), strict=True):
                arrived = lane.send(gradient, row)
                np.testing.assert_array_equal(arrived.values[0], oracles.cast(gradient, dtype))
                np.testing.assert_array_equal(arrived.values[1], oracles.cast(table_of(row), dtype))
                num_row_bytes = lane_lib.NUM_COUNT_BYTES + 6 * (
                    4 + 2 * lane_lib.ROW_SIZE
                )  # an index, a row of 16-bit values
                assert arrived.payload_bytes == 2 * 1001 + num_row_bytes
            assert lane.state() == {}

    def test_rounds_ties_to_even_and_keeps_nan(self, dtype):
        digits = 8 if dtype == "bfloat16" else 11
        ulp = 2.0 ** (1 - digits)  # of numbers from 1 to 2
        values = np.float32([1 + ulp / 2, 1 + 3 * ulp / 2, 1 + ulp * 0.51, np.nan])
        with Lane(f"cast:dtype={dtype}", dense(4)) as lane:
            (got,) = lane.send(values).values
        np.testing.assert_array_equal(got, np.float32([1, 1 + 2 * ulp, 1 + ulp, np.nan]))

    def test_stochastic_rounding_draws_a_neighbour_as_its_equation(self, dtype):
        num_row_values = 6 * lane_lib.ROW_SIZE
        with Lane(f"cast:dtype={dtype},rounding=stochastic", dense(1001), TABLE) as lane:
            steps = zip(lane_lib.gradients(1001), lane_lib.rows(6), strict=True)
            for step, (gradient, row) in enumerate(steps):
                arrived = lane.send(gradient, row)
                wanted = oracles.cast_at_random(gradient, dtype, halves("dense/cast/", step, 1001))
                np.testing.assert_array_equal(arrived.values[0], wanted)
                random = halves("table/cast/", step, num_row_values)
                rows = oracles.cast_at_random(row.values.reshape(-1), dtype, random).reshape(row.values.shape)
                np.testing.assert_array_equal(arrived.values[1], table_of(row._replace(values=rows)))
            assert arrived.payload_bytes == 2 * 1001 + lane_lib.NUM_COUNT_BYTES + 6 * 4 + 2 * num_row_values
            assert lane.state() == {"step": 3}

    def test_stochastic_rounding_is_unbiased_and_gives_the_two_neighbours_only(self, dtype):
        """The limit is five standard errors; rounding to nearest, or towards 0, is beyond it."""
        (values,) = lane_lib.gradients(20, num_steps=1)
        values[:8] *= np.float32([1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 100, 1e4])  # for float16, subnormal ones too
        num_copies, num_steps = 200, 50
        with Lane(f"cast:dtype={dtype},rounding=stochastic", dense(20 * num_copies)) as lane:
            arrived = [lane.send(np.tile(values, num_copies)).values[0] for _ in range(num_steps)]
        draws = np.reshape(arrived, [-1, 20]).astype(np.float64)
        inner, outer = oracles.neighbours(values, dtype)
        assert np.all((draws == inner) | (draws == outer))
        share = (values.astype(np.float64) - inner) / (outer.astype(np.float64) - inner)
        standard_error = np.sqrt(share * (1 - share) / len(draws))
        # The probability is a whole number of 2⁻¹³ or 2⁻¹⁶, which rounds it for subnormal numbers.
        limit = 5 * standard_error + 2.0**-13
        found = (draws == outer).mean(axis=0)
        assert np.all(np.abs(found - share) <= limit)
        assert np.any(np.abs(np.round(share) - share) > limit)
        assert np.any(share > limit)

    def test_stochastic_rounding_keeps_what_has_16_bits_and_every_nan(self, dtype):
        nans = np.uint32([0x7FC00000, 0xFFC00000, 0x7FFFFFFF, 0x7F800001]).view(np.float32)
        exact = np.float32([0.0, -0.0, 1, -1.5, 2.0**-14, -(2.0**-24), 65504 if dtype == "float16" else 65536])
        with Lane(f"cast:dtype={dtype},rounding=stochastic", dense(len(exact)), dense(len(nans), name="nans")) as lane:
            for _ in range(20):
                got, got_nans = lane.send(exact, nans).values
                np.testing.assert_array_equal(got, exact)
                assert np.isnan(got_nans).all()


def halves(path, step, size):
    """The 16-bit draws of a codec in a step: the halves of its 32-bit draws, the lower one first."""
    draws = lane_lib.integers(path, step, (size + 1) // 2, minval=None, maxval=None)
    return draws.view(np.uint16)[:size].astype(np.int64)


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_float16_sends_its_largest_number_for_larger_ones(rounding):
    with Lane(f"cast:dtype=float16,rounding={rounding}", dense(4)) as lane:
        (got,) = lane.send(np.float32([1e6, -1e30, 65504, np.inf])).values
    np.testing.assert_array_equal(got, np.float32([65504, -65504, 65504, 65504]))

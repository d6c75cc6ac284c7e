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


def test_float16_sends_its_largest_number_for_larger_ones():
    with Lane("cast:dtype=float16", dense(3)) as lane:
        (got,) = lane.send(np.float32([1e6, -1e30, 65504])).values
    np.testing.assert_array_equal(got, np.float32([65504, -65504, 65504]))

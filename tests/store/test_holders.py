"""The number of workers that hold colocated parameters."""

from __future__ import annotations

import pytest

from ps_trainer.store.holders import LEAST_SHARE_BYTES, count_holders

NUM_WORKERS = 3
AT_HOME, APART = LEAST_SHARE_BYTES["one host"], LEAST_SHARE_BYTES["several hosts"]


@pytest.mark.parametrize(
    ("spans_hosts", "num_bytes", "wanted"),
    [
        (False, 0, 1),
        (False, 2 * AT_HOME - 1, 1),
        (False, 2 * AT_HOME, 2),
        (False, 100 * AT_HOME, 3),
        (True, 2 * APART - 1, 1),
        (True, 2 * APART, 2),
    ],
)
def test_a_share_is_not_smaller_than_the_least(spans_hosts, num_bytes, wanted):
    assert count_holders(NUM_WORKERS, num_bytes, spans_hosts=spans_hosts) == wanted


def test_an_option_sets_the_least():
    assert count_holders(NUM_WORKERS, 20, least_share_bytes=10) == 2

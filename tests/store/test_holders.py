"""The number of workers that hold colocated parameters."""

from __future__ import annotations

import pytest

from ps_trainer.store.holders import LEAST_SHARE_BYTES, count_holders

ONE_HOST = ["a:1", "a:2", "a:3"]
SEVERAL_HOSTS = ["a:1", "b:1", "a:2"]
AT_HOME, APART = LEAST_SHARE_BYTES["one host"], LEAST_SHARE_BYTES["several hosts"]


@pytest.mark.parametrize(
    ("addresses", "num_bytes", "wanted"),
    [
        (ONE_HOST, 0, 1),
        (ONE_HOST, 2 * AT_HOME - 1, 1),
        (ONE_HOST, 2 * AT_HOME, 2),
        (ONE_HOST, 100 * AT_HOME, 3),
        (SEVERAL_HOSTS, 2 * APART - 1, 1),
        (SEVERAL_HOSTS, 2 * APART, 2),
        (["[::1]:5", "[::1]:6"], 2 * APART, 1),
    ],
)
def test_a_share_is_not_smaller_than_the_least(addresses, num_bytes, wanted):
    assert count_holders(addresses, num_bytes) == wanted


def test_an_option_sets_the_least():
    assert count_holders(ONE_HOST, 20, least_share_bytes=10) == 2

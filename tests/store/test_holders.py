"""The number of workers that hold colocated parameters."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.store.extents import VariableSpec
from ps_trainer.store.holders import LEAST_SHARE_BYTES, LEAST_TABLE_BYTES_ON_ONE_HOST, count_holders

NUM_WORKERS = 3
AT_HOME, APART = LEAST_SHARE_BYTES["one host"], LEAST_SHARE_BYTES["several hosts"]


def specs(num_bytes, table_bytes=0):
    return [
        VariableSpec("dense", (num_bytes,), np.dtype(np.int8), trainable=True, is_table=False),
        VariableSpec("table", (1, table_bytes), np.dtype(np.int8), trainable=True, is_table=True),
    ]


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
    assert count_holders(NUM_WORKERS, specs(num_bytes), spans_hosts=spans_hosts) == wanted


@pytest.mark.parametrize(
    ("spans_hosts", "num_bytes", "table_bytes", "wanted"),
    [
        (False, 2 * AT_HOME - 1, 2 * LEAST_TABLE_BYTES_ON_ONE_HOST - 1, 1),
        (False, 2 * AT_HOME, AT_HOME, 2),
        (False, 0, 2 * LEAST_TABLE_BYTES_ON_ONE_HOST, 2),
        (True, APART, APART, 2),
    ],
)
def test_tables_on_one_host_are_shared_for_their_memory_only(spans_hosts, num_bytes, table_bytes, wanted):
    assert count_holders(NUM_WORKERS, specs(num_bytes, table_bytes), spans_hosts=spans_hosts) == wanted


def test_an_option_sets_the_least():
    assert count_holders(NUM_WORKERS, specs(10, 10), least_share_bytes=10) == 2

"""`count_holders`: on how many of the workers colocated parameters lie (`--placement=colocated`)."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.store.extents import VariableSpec

LEAST_SHARE_BYTES = {"one host": 2 * 2**20, "several hosts": 2**16}
"""Least size of a worker's share, where no option says it.

In each step a worker exchanges messages with every other worker that holds a share, and most update rules repeat their
work there. The bytes on all links together do not depend on the number of holders. So on one host few holders cost the
least processor time. Between hosts several holders also share the traffic, which else passes one link.
"""
LEAST_TABLE_BYTES_ON_ONE_HOST = 2**30
"""The same for embedding tables on one host: a step takes few of their bytes, so only their memory asks for holders."""


def count_holders(
    num_workers: int, specs: Sequence[VariableSpec], least_share_bytes: int = 0, *, spans_hosts: bool = False
) -> int:
    """Returns the number of workers, from the first on, that hold parameters.

    Args:
        num_workers: Number of workers.
        specs: The model's variables.
        least_share_bytes: Least size of a share; 0 = as the two constants say.
        spans_hosts: Whether the workers are on several hosts.
    """
    num_bytes = sum(spec.num_bytes for spec in specs)
    if least_share_bytes or spans_hosts:
        num_shares = num_bytes // (least_share_bytes or LEAST_SHARE_BYTES["several hosts"])
    else:
        table_bytes = sum(spec.num_bytes for spec in specs if spec.is_table)
        num_shares = max(
            (num_bytes - table_bytes) // LEAST_SHARE_BYTES["one host"], table_bytes // LEAST_TABLE_BYTES_ON_ONE_HOST
        )
    return min(num_workers, max(1, num_shares))

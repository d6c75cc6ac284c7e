"""`count_holders`: on how many of the workers colocated parameters lie (`--placement=colocated`)."""

from __future__ import annotations

LEAST_SHARE_BYTES = {"one host": 2 * 2**20, "several hosts": 2**16}
"""Least size of a worker's share, where no option says it.

In each step a worker exchanges messages with every other worker that holds a share, and most update rules repeat their
work there. The bytes on all links together do not depend on the number of holders. So on one host few holders cost the
least processor time. Between hosts several holders also share the traffic, which else passes one link.
"""


def count_holders(num_workers: int, num_bytes: int, least_share_bytes: int = 0, *, spans_hosts: bool = False) -> int:
    """Returns the number of workers, from the first on, that hold parameters.

    Args:
        num_workers: Number of workers.
        num_bytes: Size of the model's variables.
        least_share_bytes: Least size of a share; 0 = as `LEAST_SHARE_BYTES` says.
        spans_hosts: Whether the workers are on several hosts.
    """
    least = least_share_bytes or LEAST_SHARE_BYTES["several hosts" if spans_hosts else "one host"]
    return min(num_workers, max(1, num_bytes // least))

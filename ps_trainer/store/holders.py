"""`count_holders`: on how many of the workers colocated parameters lie (`--placement=colocated`)."""

from __future__ import annotations

from collections.abc import Sequence

LEAST_SHARE_BYTES = {"one host": 2 * 2**20, "several hosts": 2**16}
"""Least size of a worker's share, where no option says it.

In each step a worker exchanges messages with every other worker that holds a share, and most update rules repeat their
work there. The bytes on all links together do not depend on the number of holders. So on one host few holders cost the
least processor time. Between hosts several holders also share the traffic, which else passes one link.
"""


def count_holders(addresses: Sequence[str], num_bytes: int, least_share_bytes: int = 0) -> int:
    """Returns the number of workers, from the first on, that hold parameters.

    Args:
        addresses: "host:port" of each worker.
        num_bytes: Size of the model's variables.
        least_share_bytes: Least size of a share; 0 = as `LEAST_SHARE_BYTES` says.
    """
    hosts = {address.rpartition(":")[0] for address in addresses}
    least = least_share_bytes or LEAST_SHARE_BYTES["one host" if len(hosts) == 1 else "several hosts"]
    return min(len(addresses), max(1, num_bytes // least))

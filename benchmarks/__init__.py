"""Speed measurements: our own workloads beside peers, in one call (see README.md)."""

"""Experiment on stale synchronous parallel with a cache on each worker."""

"""Experiment: bulk synchronous, stale synchronous, and asynchronous workers."""

"""Experiment: throughput against the number of workers, synchronous and asynchronous, with several ps tasks."""

"""Experiment: the synchronous null step, a microbenchmark of the cost of a step without computation."""

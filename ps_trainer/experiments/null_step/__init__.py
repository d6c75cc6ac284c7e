"""Experiment: the synchronous null step, a microbenchmark of what a step costs beside its computation."""

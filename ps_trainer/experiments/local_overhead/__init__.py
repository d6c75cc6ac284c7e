"""Experiment: the cost of distribution on one machine, and the proof that losses stay the same."""

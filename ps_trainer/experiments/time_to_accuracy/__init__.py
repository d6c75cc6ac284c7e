"""Experiment: the time to an accuracy on several workers, with a fixed and with a growing batch."""

"""Experiment: the distribution of gradient staleness."""

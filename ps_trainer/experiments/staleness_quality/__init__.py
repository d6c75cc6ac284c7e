"""Experiment: effect of staleness on training."""

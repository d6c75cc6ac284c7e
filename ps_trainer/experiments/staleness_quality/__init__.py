"""Experiment: what staleness does to training."""

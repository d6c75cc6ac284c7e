"""Experiment: learning rates that follow the staleness."""

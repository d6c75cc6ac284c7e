"""Experiment: stragglers and backup workers."""

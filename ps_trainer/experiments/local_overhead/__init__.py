"""Experiment: what distribution costs on one machine, and that it changes no number."""

"""Experiment on backup workers among many workers: final accuracy, time to an accuracy, and traffic."""

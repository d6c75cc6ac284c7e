"""Experiment: the learning rate of larger batches."""

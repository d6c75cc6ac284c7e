"""Experiment: speed, quality and resources of the strategies of training, for several models."""

"""Experiment: asynchronous against synchronous SGD."""

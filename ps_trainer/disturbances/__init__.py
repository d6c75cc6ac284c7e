"""Disturbances of a run on purpose: delays, stragglers, faults."""

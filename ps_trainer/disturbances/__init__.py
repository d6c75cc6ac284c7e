"""Disturbances of a run on purpose, as values of flags: delays and faults."""

"""Disturbances that an experiment or a drill asks for: delays, stragglers, faults."""

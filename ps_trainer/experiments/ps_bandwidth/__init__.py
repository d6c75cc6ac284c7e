"""Experiment: bandwidth of the ps tasks' links, their number, and parameter servers against a ring all-reduce."""

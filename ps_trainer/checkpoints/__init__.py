"""Checkpoints: what is stored, how it is written and read, and which runs can load it."""

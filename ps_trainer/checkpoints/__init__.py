"""Checkpoints: their content, how they are written and read, and which runs can load them."""

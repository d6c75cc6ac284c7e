"""Optimizers that run on the ps tasks, and learning-rate schedules."""

"""The arithmetic that the ps tasks apply, and its learning-rate schedules."""

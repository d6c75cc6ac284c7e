"""Schedules of the update rules: a file per family; `schedule_table.py` finds them by name."""

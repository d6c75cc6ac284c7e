"""The schedules of the update rules: a file per family; `table.py` has them by name."""

"""Schedules of many workers with NumPy, an update at a time, for clusters without shared links.

The schedules equal those of `events.py` to the last bit; only the time to make them differs. Commands that wait for
groups of many workers need this folder. Without it, `simulate --num_workers=200 --backup_workers=4` takes 6 times the
CPU time, and `simulate --num_workers=1000 --update=sync` 15 times (one run each, start of the process included).
"""

"""Schedules of many workers with NumPy, an update at a time, for clusters without shared links.

The schedules equal those of `events.py` to the last bit; only the time to make them differs. Commands with many workers
need this folder. Without it, `simulate --num_workers=200 --backup_workers=4` takes 5 times the CPU time (19.0 s instead
of 4.0 s), and `simulate --num_workers=1000 --update=sync` 14 times (106 s instead of 7.6 s). One run each, start of the
process included, on a machine that was busy with other work.
"""

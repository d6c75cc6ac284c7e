"""Schedules of many workers with NumPy, an update at a time, for clusters without shared links.

The schedules are those of `events.py`, to the last bit. With a thousand workers they take a tenth of the time.
"""

"""Schedules of many workers by NumPy, an update at a time, where no worker's transfer slows another's down.

The same schedules as `events.py` gives, to the last bit, but a thousand workers in a tenth of the time.
"""

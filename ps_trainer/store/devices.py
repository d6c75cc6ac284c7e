"""`task_of`: the task of a device."""

from __future__ import annotations

import tensorflow.compat.v1 as tf


def task_of(device: str) -> str:
    """Returns the task of a device, "/job:ps/task:0"; "" for an op without a device."""
    spec = tf.DeviceSpec.from_string(device or "")
    name: str = spec.replace(device_type=None, device_index=None).to_string()
    return name

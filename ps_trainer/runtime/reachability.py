"""Finds out which tasks reach each other, by asking the tasks themselves through TensorFlow's runtime.

A session with task A as its target and task B as its device filter makes A contact B. A uses its own cluster
definition, names and routes. Both directions matter: the receiver of a tensor fetches it, so each ps must reach each
worker.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import tensorflow.compat.v1 as tf

_NO_TASK = "/job:none"  # a device filter that no task matches: the session then waits for no other task
_MESSAGE_CHARS = 160


class ServerAnswer(NamedTuple):
    """A TensorFlow server's answer about itself.

    Attributes:
        device: Task that the server is: "/job:ps/task:0".
        ahead_secs: Time by which its clock is ahead of this machine's clock, in seconds.
        uncertain_secs: Possible error of `ahead_secs`, in seconds: half of the round trip.
    """

    device: str
    ahead_secs: float
    uncertain_secs: float


def ask(address: str, deadline_secs: float = 5.0) -> ServerAnswer:
    """Asks the server at an address for its task and its time.

    Raises:
        tf.errors.OpError: No TensorFlow server answers there within the deadline.
    """
    with tf.Graph().as_default() as graph:
        now = tf.timestamp()
    with tf.Session(f"grpc://{address}", graph=graph, config=_config(_NO_TASK, deadline_secs)) as session:
        # The filter matches no other task, so every listed device belongs to the server that was asked.
        device = tf.DeviceSpec.from_string(session.list_devices()[0].name)
        session.run(now)  # the first call also sends the graph, so it would not measure the clock
        before = time.time()
        theirs = float(session.run(now))
        after = time.time()
    name = f"/job:{device.job}/task:{device.task}"
    return ServerAnswer(name, theirs - (before + after) / 2, (after - before) / 2)


def fault_between(address: str, device: str, deadline_secs: float = 10.0) -> str:
    """Finds out why the task at an address cannot use another task's device.

    Args:
        address: Address "host:port" of the task that shall reach the other one; this process must reach it.
        device: Device of the other task, such as "/job:worker/task:1". The first task looks up the address.
        deadline_secs: Deadline in seconds of each of the three calls that the test makes.

    Returns:
        The reason in words; empty if the task can use the device.
    """
    with tf.Graph().as_default() as graph:
        contact_op = tf.no_op()
        with tf.device(device):
            now = tf.timestamp()
    try:
        with tf.Session(f"grpc://{address}", graph=graph, config=_config(device, deadline_secs)) as session:
            # This makes the contact. `list_devices` would make it too, but it holds Python's global lock until it
            # returns. If the other task runs Python ops in this process, the two would wait for each other.
            session.run(contact_op)
            session.run(now)
    except tf.errors.DeadlineExceededError:
        return f"no answer within {deadline_secs:g} s"
    except tf.errors.InvalidArgumentError:
        return "its cluster definition has no such task"
    except tf.errors.OpError as error:
        return first_line(error)
    return ""


def first_line(error: tf.errors.OpError) -> str:
    """Returns the first line of TensorFlow's message, shortened and without its prefix about graph execution."""
    message = (error.message or type(error).__name__).strip().removeprefix("Graph execution error:")
    line = message.strip().partition("\n")[0]
    return line if len(line) <= _MESSAGE_CHARS else f"{line[:_MESSAGE_CHARS]}…"


def _config(device_filter: str, deadline_secs: float) -> tf.ConfigProto:
    """Configures a session that contacts only its target's task and the task of the filter."""
    # Soft placement would move `now` to another device if its own is missing, and so hide the fault.
    return tf.ConfigProto(
        operation_timeout_in_ms=int(deadline_secs * 1000), device_filters=[device_filter], allow_soft_placement=False
    )

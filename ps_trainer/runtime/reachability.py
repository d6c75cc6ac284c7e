"""What tasks reach of each other, asked on the tasks themselves through TensorFlow's own runtime.

A session whose target is task A and whose device filter is task B makes A contact B, by A's own cluster
definition, names and routes. Tensors are fetched by whoever receives them: each ps must reach each worker.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import tensorflow.compat.v1 as tf

_NOBODY = "/job:none"
_MESSAGE_CHARS = 160


class Answer(NamedTuple):
    """What a TensorFlow server says of itself.

    Attributes:
        device: the task that it is: "/job:ps/task:0".
        ahead_secs: by how much its clock is ahead of this machine's.
        uncertain_secs: how far off that may be.
    """

    device: str
    ahead_secs: float
    uncertain_secs: float


def ask(address: str, deadline_secs: float = 5.0) -> Answer:
    """Asks the server at an address who it is, and for the time.

    Raises:
        tf.errors.OpError: no TensorFlow server answers there within the deadline.
    """
    with tf.Graph().as_default() as graph:
        now = tf.timestamp()
    with tf.Session(f"grpc://{address}", graph=graph, config=_config(_NOBODY, deadline_secs)) as session:
        device = tf.DeviceSpec.from_string(session.list_devices()[0].name)
        session.run(now)  # the first call carries the graph
        before = time.time()
        theirs = float(session.run(now))
        after = time.time()
    name = f"/job:{device.job}/task:{device.task}"
    return Answer(name, theirs - (before + after) / 2, (after - before) / 2)


def fault_between(address: str, device: str, deadline_secs: float = 10.0) -> str:
    """Why the task at an address cannot use another task's device, in words; empty if it can.

    Args:
        address: "host:port" of the task that is to reach the other one; it must answer by itself.
        device: "/job:worker/task:1", the other one; at which address is up to the first task.
        deadline_secs: of each of the three calls that this takes.
    """
    with tf.Graph().as_default() as graph:
        contact_op = tf.no_op()
        with tf.device(device):
            now = tf.timestamp()
    try:
        with tf.Session(f"grpc://{address}", graph=graph, config=_config(device, deadline_secs)) as session:
            # Makes the contact. (`list_devices` would as well, but keeps Python's lock until it returns: where the
            # other task runs Python ops in this process, it waits for them, and they for it.)
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
    """The first line of TensorFlow's message, shortened; that it came from a graph is not said."""
    message = (error.message or type(error).__name__).strip().removeprefix("Graph execution error:")
    line = message.strip().partition("\n")[0]
    return line if len(line) <= _MESSAGE_CHARS else f"{line[:_MESSAGE_CHARS]}…"


def _config(device_filter: str, deadline_secs: float) -> tf.ConfigProto:
    """The session has the devices of its target's task, and of the filter's."""
    return tf.ConfigProto(
        operation_timeout_in_ms=int(deadline_secs * 1000), device_filters=[device_filter], allow_soft_placement=False
    )

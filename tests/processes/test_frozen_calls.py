"""What a deadline is worth: TensorFlow's calls to a ps task that is frozen."""

from __future__ import annotations

import signal
import threading

import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.ports import pick_free_ports
from ps_trainer.config import TrainConfig
from ps_trainer.runtime.server import create_server, session_config
from tests.testing.processes import END_SECS

pytestmark = pytest.mark.slow

PEERS = ("/job:ps",)


def outcome(call):
    """The error that a call ends with, or its value; AssertionError if it does not end."""
    ended = []

    def run():
        try:
            ended.append(call())
        except tf.errors.OpError as error:
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)  # one that hangs must not keep the tests from ending
    thread.start()
    thread.join(END_SECS)
    assert ended, f"no end after {END_SECS:g} s"
    return ended[0]


def test_every_call_of_a_session_with_a_deadline_ends_by_it_also_the_first_one_and_the_last(create_run):
    run = create_run(num_ps=2, num_workers=1)
    frozen = [run.start_ps(0), run.start_ps(1)][1]
    for task in run.tasks:
        task.wait_for_log("serving on")
    (port,) = pick_free_ports(1)
    jobs = {"ps": tuple(run.ps_hosts), "worker": (f"localhost:{port}",)}
    cluster = ClusterConfig(jobs=jobs, job_name="worker", task_index=0)
    server = create_server(cluster, TrainConfig(isolation="test"))
    with tf.Graph().as_default() as graph:
        values = []
        for ps in range(2):
            with tf.device(f"/job:ps/task:{ps}"):
                values.append(tf.random.uniform([]))
        both = tf.add_n(values)
    config = session_config(cluster.device, PEERS, call_timeout_secs=1.0)
    new, made, used = (tf.Session(server.target, graph=graph, config=config) for _ in range(3))
    made.run(values)
    used.run(both)
    frozen.send(signal.SIGSTOP)
    try:
        for session in (used, made, new):
            assert isinstance(outcome(lambda session=session: session.run(both)), tf.errors.DeadlineExceededError)
        for session in (used, made, new):
            outcome(session.close)
    finally:
        frozen.send(signal.SIGCONT)

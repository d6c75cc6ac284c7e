"""The deadlines of TensorFlow's calls to a frozen ps task."""

from __future__ import annotations

import functools
import threading

import tensorflow.compat.v1 as tf

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.ports import pick_free_ports
from ps_trainer.config import TrainConfig
from ps_trainer.runtime.server import create_server, session_config
from ps_trainer.store import fed_call
from tests.testing.processes import END_SECS

PEERS = ("/job:ps",)


def outcomes(calls):
    """The error or value of each call, all begun at once; AssertionError if a call does not end."""
    ended = {}

    def run(index, call):
        try:
            ended[index] = call()
        except tf.errors.OpError as error:
            ended[index] = error

    # Daemon threads, so that a hanging call does not keep the test process alive.
    threads = [threading.Thread(target=run, args=item, daemon=True) for item in enumerate(calls)]
    for thread in threads:
        thread.start()
    for index, thread in enumerate(threads):
        thread.join(END_SECS)
        assert index in ended, f"no end after {END_SECS:g} s"
    return [ended[index] for index in range(len(threads))]


def test_every_call_of_a_session_with_a_deadline_ends_by_it_including_the_first_and_the_last(create_run):
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
    config = session_config(cluster.device, PEERS, call_timeout_secs=5.0)
    new, made, used, stepping = (tf.Session(server.target, graph=graph, config=config) for _ in range(4))
    made.run(values)
    used.run(both)
    step = fed_call.make(stepping, [both], [])  # as the loop calls a step
    step()
    frozen.freeze()
    try:
        for error in outcomes([step, *(functools.partial(session.run, both) for session in (used, made, new))]):
            assert isinstance(error, tf.errors.DeadlineExceededError)
        outcomes([session.close for session in (stepping, used, made, new)])
    finally:
        frozen.thaw()

"""One exclusive section per ps task, for the sessions of all workers."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.testing.cluster import InProcessCluster

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from ps_trainer.runtime.server import session_config
from ps_trainer.updates.exclusive import exclusive

NUM_STEPS = 150


class FakeStore:
    """As much of a store as the section needs."""

    def ps_device(self, ps: int) -> str:
        return f"/job:ps/task:{ps}"


def build_counting(cluster, worker, container):
    """A graph that reads a value, waits on a branch, and writes it back one higher, per ps task."""
    graph = tf.Graph()
    with graph.as_default(), graph.container(container):
        counts = []
        for ps in (0, 1):
            with tf.device(f"/job:ps/task:{ps}"):
                counts.append(tf.get_variable(f"count_{ps}", [], tf.int64, tf.zeros_initializer(), use_resource=True))
        with tf.device(cluster.task("worker", worker).device):
            add = tf.placeholder(tf.int64, [])

        def build(ps):
            def increase(amount):
                before = counts[ps].read_value()

                def write():
                    with tf.control_dependencies([counts[ps].assign(before + amount, read_value=False)]):
                        return before + amount

                return tf.cond(amount > 0, write, lambda: before)

            return exclusive(FakeStore(), ps, increase, add)

        return graph, tf.global_variables_initializer(), add, [build(0), build(1)]


@pytest.fixture(scope="module")
def cluster():
    with InProcessCluster(2, 2) as cluster:
        yield cluster


def open_session(cluster, worker, graph):
    task = cluster.task("worker", worker)
    return tf.Session(f"grpc://{task.own_address}", graph=graph, config=session_config(task.device, ["/job:ps"]))


def test_reads_and_writes_of_two_workers_lose_nothing(cluster):
    seen = [[], []]

    def work(worker, session, add, results):
        for _ in range(NUM_STEPS):
            seen[worker].append(session.run(results, {add: 1}))

    built = [build_counting(cluster, worker, "exclusive-test") for worker in (0, 1)]
    sessions = [open_session(cluster, worker, built[worker][0]) for worker in (0, 1)]
    sessions[0].run(built[0][1])
    threads = [
        threading.Thread(target=work, args=(worker, sessions[worker], built[worker][2], built[worker][3]))
        for worker in (0, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for session in sessions:
        session.close()
    for ps in (0, 1):  # every value was given out once
        values = sorted(int(values[ps]) for values in seen[0] + seen[1])
        assert values == list(range(1, 2 * NUM_STEPS + 1))


def test_a_branch_that_writes_nothing_leaves_the_section_too(cluster):
    graph, init_op, add, results = build_counting(cluster, 0, "exclusive-branch")
    with open_session(cluster, 0, graph) as session:
        session.run(init_op)
        for amount, wanted in ((0, 0), (1, 1), (0, 1), (2, 3)):
            np.testing.assert_array_equal(session.run(results, {add: amount}), [wanted, wanted])


def test_a_failed_step_lets_the_section_go(cluster):
    graph, init_op, add, results = build_counting(cluster, 0, "exclusive-failure")
    with graph.as_default(), graph.container("exclusive-failure"), tf.device("/job:worker/task:0"):
        trigger = tf.identity(add)

        def fail(value):
            with tf.control_dependencies([tf.debugging.Assert(value > 100, ["too small"])]):
                return tf.identity(value)

        failing = exclusive(FakeStore(), 0, fail, trigger)
    with open_session(cluster, 0, graph) as session:
        session.run(init_op)
        for _ in range(3):
            with pytest.raises(tf.errors.InvalidArgumentError, match="too small"):
                session.run(failing, {add: 1})
        np.testing.assert_array_equal(session.run(results, {add: 1}), [1, 1])


def test_what_comes_from_the_worker_has_arrived_before_the_section_is_entered():
    with tf.Graph().as_default() as graph:
        with tf.device("/job:worker/task:0"):
            dense = tf.placeholder(tf.float32, [3])
            rows = tf.IndexedSlices(tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.int64, [None]))

        def use(dense, rows):
            return tf.reduce_sum(dense) + tf.reduce_sum(rows.values) + tf.cast(tf.reduce_sum(rows.indices), tf.float32)

        exclusive(FakeStore(), 1, use, dense, rows)
        (lock,) = [op for op in graph.get_operations() if op.type == "MutexLock"]
    assert lock.device == "/job:ps/task:1"
    before = ancestors(lock)
    on_worker = {op for op in before if op.device == "/job:worker/task:0"}
    assert on_worker == {dense.op, rows.values.op, rows.indices.op}
    for op in before | {lock}:  # nothing else waits for the worker: not for a tensor, and not by a control edge
        if on_worker.intersection(parents(op)):
            assert op.type == "Identity" and op.device == "/job:ps/task:1"


def parents(op):
    return {tensor.op for tensor in op.inputs} | set(op.control_inputs)


def ancestors(op):
    found, queue = set(), [op]
    while queue:
        new = parents(queue.pop()) - found
        found |= new
        queue += new
    return found

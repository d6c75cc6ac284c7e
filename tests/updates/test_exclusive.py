"""The exclusive section on each ps task, which the sessions of all workers share."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.testing.cluster import DEADLINE_SECS, InProcessCluster

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from ps_trainer.runtime.server import session_config
from ps_trainer.updates.exclusive import exclusive, initializers

NUM_STEPS = 150


class FakeStore:
    """The part of a store that the section needs."""

    def ps_device(self, ps: int) -> str:
        return f"/job:ps/task:{ps}"


def build_counting(cluster, worker, container):
    """A graph that, for each ps task, reads a value, waits on a branch, and writes the value plus one."""
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

        results = [build(0), build(1)]
        return graph, tf.group(tf.global_variables_initializer(), *initializers()), add, results


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
    for ps in (0, 1):  # every value was returned once
        values = sorted(int(values[ps]) for values in seen[0] + seen[1])
        assert values == list(range(1, 2 * NUM_STEPS + 1))


def test_a_branch_that_writes_nothing_leaves_the_section_too(cluster):
    graph, init_op, add, results = build_counting(cluster, 0, "exclusive-branch")
    with open_session(cluster, 0, graph) as session:
        session.run(init_op)
        for amount, wanted in ((0, 0), (1, 1), (0, 1), (2, 3)):
            np.testing.assert_array_equal(session.run(results, {add: amount}), [wanted, wanted])


class Held:
    """A section in which a step stops until the test lets it continue, and the state that the step then writes."""

    def __init__(self, cluster, worker, container):
        self.is_inside, self.may_go_on = threading.Event(), threading.Event()
        self.error = None
        graph = tf.Graph()
        with graph.as_default(), graph.container(container):
            with tf.device("/job:ps/task:0"):
                before = tf.get_variable("before", [], tf.int64, tf.zeros_initializer(), use_resource=True)
                after = tf.get_variable("after", [], tf.int64, tf.zeros_initializer(), use_resource=True)

                def visit():
                    with tf.control_dependencies([before.assign_add(1, read_value=False)]):
                        held = tf.numpy_function(self._stand, [], tf.int64)

                    def write():
                        with tf.control_dependencies([after.assign_add(held, read_value=False)]):
                            return tf.identity(held)

                    return tf.cond(held > 0, write, lambda: held)

                self._result = exclusive(FakeStore(), 0, visit)
                self._counts = [before.read_value(), after.read_value()]
            self._init_op = tf.group(tf.global_variables_initializer(), *initializers())
        self._session = open_session(cluster, worker, graph)

    def _stand(self):
        self.is_inside.set()
        assert self.may_go_on.wait(DEADLINE_SECS)
        return np.int64(1)

    def init(self):
        self._session.run(self._init_op)

    def start(self, timeout_in_ms=0):
        """Starts a step in a thread, and cancels it after that time as if its worker had been killed."""

        def run():
            try:
                self._session.run(self._result, options=tf.RunOptions(timeout_in_ms=timeout_in_ms))
            except tf.errors.OpError as error:
                self.error = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def join(self):
        self._thread.join(DEADLINE_SECS)
        assert not self._thread.is_alive()
        return self.error

    def counts(self):
        """Number of steps that have entered, and number of steps that have written everything."""
        return [int(count) for count in self._session.run(self._counts)]


def test_a_cancelled_step_inside_the_section_finishes_its_work(cluster):
    held, other = (Held(cluster, worker, "exclusive-finishes") for worker in (0, 1))
    held.init()
    held.start(timeout_in_ms=500)
    assert isinstance(held.join(), tf.errors.DeadlineExceededError)
    assert held.is_inside.is_set() and other.counts() == [1, 0]
    other.start()
    held.may_go_on.set()
    assert other.is_inside.wait(DEADLINE_SECS)  # the cancelled step has left the section
    assert other.counts() == [2, 1]
    other.may_go_on.set()
    assert other.join() is None and other.counts() == [2, 2]


def test_a_step_that_is_cancelled_while_it_waits_lets_no_other_step_in(cluster):
    inside, waiting, third = (Held(cluster, worker, "exclusive-keeps-out") for worker in (0, 1, 1))
    inside.init()
    inside.start()
    assert inside.is_inside.wait(DEADLINE_SECS)
    waiting.start(timeout_in_ms=500)
    assert isinstance(waiting.join(), tf.errors.DeadlineExceededError)
    third.start()
    assert not third.is_inside.wait(0.5)
    inside.may_go_on.set()
    assert inside.join() is None
    assert third.is_inside.wait(DEADLINE_SECS)
    assert third.counts() == [2, 1]  # the cancelled step has not entered
    third.may_go_on.set()
    assert third.join() is None


def test_a_tensor_that_is_not_an_argument_is_rejected():
    with tf.Graph().as_default(), tf.device("/job:worker/task:0"):
        late = tf.placeholder(tf.float32, [])
        with pytest.raises(ValueError, match="make it an argument"):
            exclusive(FakeStore(), 0, lambda: late + 1.0)


def test_an_op_that_may_wait_is_rejected():
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        queue = tf.FIFOQueue(1, [tf.float32], [()])
        with pytest.raises(ValueError, match="may wait .QueueEnqueueV2"):
            exclusive(FakeStore(), 0, lambda: queue.enqueue([1.0]))


def test_the_workers_inputs_arrive_before_the_section_is_entered():
    with tf.Graph().as_default() as graph:
        with tf.device("/job:worker/task:0"):
            dense = tf.placeholder(tf.float32, [3])
            rows = tf.IndexedSlices(tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.int64, [None]))

        def use(dense, rows):
            return tf.reduce_sum(dense) + tf.reduce_sum(rows.values) + tf.cast(tf.reduce_sum(rows.indices), tf.float32)

        exclusive(FakeStore(), 1, use, dense, rows)
        (lock,) = [op for op in graph.get_operations() if op.type == "ResourceAccumulatorTakeGradient"]
    assert lock.device == "/job:ps/task:1"
    before = ancestors(lock)
    on_worker = {op for op in before if op.device == "/job:worker/task:0"}
    assert on_worker == {dense.op, rows.values.op, rows.indices.op}
    for op in before | {lock}:  # no other op waits for the worker, neither by a tensor nor by a control edge
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

"""The push counts that match a worker's own state with a checkpoint."""

from __future__ import annotations

import threading
import types

import numpy as np
import pytest

from ps_trainer.training.graph_parts.push_counts import PushCounts
from ps_trainer.updates.base import RELEASED
from tests.testing.cluster import environment  # noqa: F401 - prepares TensorFlow's environment

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

NUM_WORKERS = 3


class CountedRun:
    """The counts of all workers on one variable, in a run whose chief has begun to count.

    Attributes:
        save: Function that returns the counts of a new checkpoint.
    """

    def __init__(self):
        with tf.Graph().as_default():
            self._pushed = tf.placeholder(tf.int64, [])
            counts = []
            for index in range(NUM_WORKERS):
                with tf.variable_scope("", reuse=index > 0):
                    counts.append(PushCounts(NUM_WORKERS, index, "", is_in_lockstep=False))
            phase = types.SimpleNamespace(pushed=self._pushed)
            self.told = [worker.build(phase) for worker in counts]
            self.count = counts[0].count
            self.session = tf.Session()
            self.session.run(self.count.variable.initializer)
            counts[0].begin(self.session)
            self.save = self.session.make_callable(self.count.saved)
            self._push = [self.session.make_callable(worker, [self._pushed]) for worker in self.told]

    def push(self, worker, pushed=7):
        """The worker's results of a push: its number of pushes, and the number in the last checkpoint."""
        ((pushes, saved),) = self._push[worker](pushed)
        return int(pushes), int(saved)

    def saved(self):
        return self.save()[1:].tolist()


@pytest.fixture
def run():
    return CountedRun()


def test_a_push_returns_the_count_of_the_last_checkpoint(run):
    assert [run.push(0), run.push(0), run.push(1)] == [(1, 0), (2, 0), (1, 0)]
    assert run.saved() == [2, 1, 0]
    assert [run.push(0), run.push(0), run.push(1), run.push(2)] == [(3, 2), (4, 2), (2, 1), (1, 0)]
    assert run.saved() == [4, 2, 1]
    assert run.push(2) == (2, 1)


def test_a_released_worker_has_not_pushed(run):
    run.push(1)
    assert run.push(1, RELEASED) == (1, 0)
    assert run.saved() == [0, 1, 0]


def test_a_run_that_resumes_from_a_checkpoint_counts_from_there(run):
    run.push(0)
    values = run.save()
    again = CountedRun()
    initializer = again.count.variable.initializer
    again.session.run(initializer, {initializer.inputs[1]: again.count.adapt(values)})
    assert again.save().tolist() == values.tolist()
    assert [again.push(0), again.push(1)] == [(2, 1), (1, 0)]


@pytest.mark.parametrize("saved", [None, np.array([5, 1, 2], np.int64)])
def test_with_another_number_of_workers_counting_restarts_at_zero(run, saved):
    assert run.count.adapt(saved).tolist() == [[0] * 4] * 2


def test_a_push_is_counted_by_one_op_and_a_save_begins_with_one(run):
    """With two ops another worker's push or the chief's save could come between, and the counts would not match."""
    for (fetched,) in [*run.told, [run.count.saved]]:
        pending, users = [fetched.op], set()
        while pending:
            op = pending.pop()
            pending += [*(tensor.op for tensor in op.inputs), *op.control_inputs]
            if any(tensor is run.count.variable.handle for tensor in op.inputs):
                users.add((op.name, op.type))
        assert sorted(kind for _, kind in users if kind != "ReadVariableOp") in (
            ["ResourceScatterNdAdd"],
            ["ResourceScatterNdUpdate"],
        )
        assert len(users) == 2


def test_the_next_push_reports_a_save_that_holds_that_push_or_the_one_before(run):
    """A worker receives the saved count, whatever else happens on the ps task at that moment."""
    told = [[] for _ in range(NUM_WORKERS)]
    ended = threading.Event()

    def push(worker):
        while not ended.is_set():
            told[worker].append(run.push(worker))

    threads = [threading.Thread(target=push, args=[worker]) for worker in range(NUM_WORKERS)]
    for thread in threads:
        thread.start()
    saves = []
    while len(saves) < 300:
        saves.append(run.saved())
    ended.set()
    for thread in threads:
        thread.join()
    for worker in range(NUM_WORKERS):
        told[worker].append(run.push(worker))
        assert [pushes for pushes, _ in told[worker]] == list(range(1, len(told[worker]) + 1))
        at_first = {}
        for pushes, saved in told[worker]:
            at_first.setdefault(saved, pushes)
        assert all(pushes - saved in (0, 1) for saved, pushes in at_first.items())
        saved = {save[worker] for save in saves} - {0}
        # A push may report a second save, made between its count and its answer; the first save is then out of date.
        assert all(number in at_first or number + 1 in saved for number in saved)

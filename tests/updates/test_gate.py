"""The gate: a worker continues once its wait is over, and leftovers of a killed worker do not hold it."""

from __future__ import annotations

import threading

import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.store.variables import create_variable
from ps_trainer.updates.gate import Gate
from ps_trainer.updates.signal import Signal
from tests.testing.cluster import wait_until


class OneMachine:
    """A store whose ps task is this process."""

    def ps_device(self, ps: int) -> str:
        return "/cpu:0"


class WaitThread:
    """A wait in a thread."""

    def __init__(self, call):
        self.error = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            self._call()
        except tf.errors.OpError as error:
            self.error = error

    @property
    def is_over(self):
        return not self._thread.is_alive()

    def lasts(self):
        self._thread.join(0.2)
        return not self.is_over


class Fixture:
    """A gate for two workers, who wait for a version; it runs in a separate session."""

    def __init__(self):
        with tf.Graph().as_default() as graph:
            gate = Gate(OneMachine(), 0, 2, "test")
            version = create_variable("version", [], tf.int64)
            self.target = tf.placeholder(tf.int64, [])
            self.written = tf.placeholder(tf.int64, [])
            with tf.control_dependencies([version.assign(self.written, read_value=False)]):
                self.write_op = tf.no_op()
            self.open_op = gate.open()
            self.wait_ops = [gate.wait(worker, lambda: version.read_value() < self.target) for worker in range(2)]
            init_op = tf.global_variables_initializer()
        self.session = tf.Session(graph=graph)
        self.session.run(init_op)

    def open(self, version: int) -> None:
        self.session.run(self.write_op, {self.written: version})
        self.session.run(self.open_op)

    def wait(self, worker: int, target: int, **options) -> WaitThread:
        options = tf.RunOptions(**options)
        return WaitThread(lambda: self.session.run(self.wait_ops[worker], {self.target: target}, options=options))


@pytest.fixture
def gate():
    fixture = Fixture()
    yield fixture
    fixture.session.close()


def test_a_wait_for_a_reached_version_returns_at_once(gate):
    gate.session.run(gate.wait_ops[0], {gate.target: 0})


def test_all_go_on_when_the_gate_opens_for_them(gate):
    waits = [gate.wait(0, 1), gate.wait(1, 2)]
    assert all(wait.lasts() for wait in waits)
    gate.open(1)
    wait_until(lambda: waits[0].is_over)
    assert waits[1].lasts()
    gate.open(2)
    wait_until(lambda: waits[1].is_over)


def test_earlier_openings_neither_cause_a_wait_nor_end_one(gate):
    gate.open(1)
    gate.open(2)
    for _ in range(2):
        gate.session.run(gate.wait_ops[0], {gate.target: 2})
    wait = gate.wait(0, 3)
    assert wait.lasts()  # leftovers of earlier openings do not let it through
    gate.open(3)
    wait_until(lambda: wait.is_over)


def test_a_signal_cannot_be_taken_before_it_is_given_and_counts_once():
    with tf.Graph().as_default() as graph:
        signal = Signal("test")
        is_given = tf.placeholder(tf.bool, [])
        give_op, taken = signal.give(is_given=is_given), signal.take()
    soon = tf.RunOptions(timeout_in_ms=200)
    with tf.Session(graph=graph) as session:
        for given, takes in (([False], 0), ([True], 1), ([True, False, True], 1)):
            for value in given:
                session.run(give_op, {is_given: value})
            for _ in range(takes):
                session.run(taken)
            with pytest.raises(tf.errors.DeadlineExceededError):
                session.run(taken, options=soon)


def test_waits_of_a_killed_worker_hold_no_other(gate):
    old = [gate.wait(0, 1)]
    assert old[0].lasts()
    old.append(gate.wait(0, 1))
    assert old[1].lasts()
    new = gate.wait(0, 2)
    assert new.lasts()
    gate.open(1)
    wait_until(lambda: all(wait.is_over for wait in old))
    assert new.lasts()
    gate.open(2)
    wait_until(lambda: new.is_over)


def test_a_cancelled_wait_takes_no_signal(gate):
    old = gate.wait(0, 1, timeout_in_ms=300)
    new = gate.wait(0, 1)
    wait_until(lambda: old.is_over)
    assert isinstance(old.error, tf.errors.DeadlineExceededError)
    gate.open(1)
    wait_until(lambda: new.is_over)
    assert new.error is None

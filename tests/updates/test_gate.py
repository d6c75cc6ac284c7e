"""Tokens of the gate: each worker takes as many as it waits for, none is missed, none is left over."""

from __future__ import annotations

import threading

import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.updates.gate import Gate
from tests.testing.cluster import wait_until


class OneMachine:
    """In place of a store: the ps task is this process."""

    def ps_device(self, ps: int) -> str:
        return "/cpu:0"


class Fixture:
    """Ops of a gate of two workers, in a session of their own."""

    def __init__(self):
        with tf.Graph().as_default() as graph:
            gate = Gate(OneMachine(), 0, 2, "test")
            self.count = tf.placeholder(tf.int64, [])
            self.who = tf.placeholder(tf.int64, [2])
            self.open_op = gate.open(self.count, self.who)
            self.let_go_op = gate.let_go(self.who)
            self.arrive_ops = [gate.arrive(worker) for worker in range(2)]
            self.wait_ops = [gate.wait(worker, self.count) for worker in range(2)]
        self.session = tf.Session(graph=graph)

    def open(self, count: int, live: list[int]) -> None:
        self.session.run(self.open_op, {self.count: count, self.who: live})

    def waiting(self, worker: int, count: int) -> threading.Thread:
        call = threading.Thread(
            target=lambda: self.session.run(self.wait_ops[worker], {self.count: count}), daemon=True
        )
        call.start()
        return call


@pytest.fixture
def gate():
    fixture = Fixture()
    yield fixture
    fixture.session.close()


@pytest.mark.parametrize("count", [0, -3])
def test_nothing_to_wait_for_is_no_wait(gate, count):
    gate.session.run(gate.wait_ops[0], {gate.count: count})


def test_a_wait_ends_with_as_many_openings(gate):
    call = gate.waiting(0, 2)
    gate.open(1, [1, 1])
    call.join(0.2)
    assert call.is_alive()
    gate.open(1, [1, 1])
    wait_until(lambda: not call.is_alive())


def test_openings_before_the_wait_count(gate):
    gate.session.run(gate.arrive_ops[0])
    gate.open(2, [1, 1])
    gate.session.run(gate.wait_ops[0], {gate.count: 2})


def test_arriving_forgets_openings_before(gate):
    gate.open(3, [1, 1])
    gate.session.run(gate.arrive_ops[0])
    call = gate.waiting(0, 1)
    call.join(0.2)
    assert call.is_alive()
    gate.open(1, [1, 1])
    wait_until(lambda: not call.is_alive())


def test_workers_that_left_get_no_tokens(gate):
    gate.open(1, [0, 1])
    call = gate.waiting(0, 1)
    gate.session.run(gate.wait_ops[1], {gate.count: 1})
    call.join(0.2)
    assert call.is_alive()
    gate.session.run(gate.let_go_op, {gate.who: [1, 0]})
    wait_until(lambda: not call.is_alive())


def test_letting_go_ends_any_wait_and_only_the_meant_workers(gate):
    calls = [gate.waiting(0, 7), gate.waiting(1, 1)]
    gate.session.run(gate.let_go_op, {gate.who: [1, 0]})
    wait_until(lambda: not calls[0].is_alive())
    assert calls[1].is_alive()
    gate.session.run(gate.let_go_op, {gate.who: [0, 1]})
    wait_until(lambda: not calls[1].is_alive())

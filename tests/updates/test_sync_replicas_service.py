"""The chief's thread of `sync_replicas`: what an update waits for when workers leave and come."""

from __future__ import annotations

import threading

import pytest

from tests.testing.cluster import wait_until

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from ps_trainer.updates.sync_replicas_service import SyncReplicasOps, SyncReplicasService  # isort: skip

OPS = SyncReplicasOps("sync", "required", "stand_in", "stand_in_step", "release", "global_step")


class FakeSession:
    """Runs the ops of a service: an update blocks until it has enough gradients, of workers or stand-ins."""

    def __init__(self):
        self.step = 0
        self.required = []
        self.stand_ins = []
        self.released = 0
        self._given = 0
        self._closed = False
        self._changed = threading.Condition()

    def run(self, op, feeds=None, options=None):
        if op == "global_step":
            return self.step
        if op == "stand_in":
            self.stand_ins.append(feeds["stand_in_step"])
            self.give(at=feeds["stand_in_step"])
            return None
        if op == "release":
            self.released += 1
            return None
        assert op == "sync" and options.timeout_in_ms > 10**9
        with self._changed:
            self.required.append(feeds["required"])
            self._changed.wait_for(lambda: self._closed or self._given >= feeds["required"], 60)
            if self._closed:
                raise tf.errors.CancelledError(None, None, "closed")
            self.step, self._given = self.step + 1, 0
            return self.step

    def give(self, at=None):
        with self._changed:
            if at in (None, self.step):
                self._given += 1
                self._changed.notify_all()

    def close(self):
        with self._changed:
            self._closed = True
            self._changed.notify_all()


@pytest.fixture
def create():
    made = []

    def create(replicas_to_aggregate, num_workers, max_steps=None):
        session = FakeSession()
        service = SyncReplicasService(OPS, replicas_to_aggregate, num_workers, max_steps)
        service.start(session)
        wait_until(lambda: len(session.required) == 1)
        made.append(service)
        return service, session

    yield create
    for service in made:
        service.stop()
        assert service.error() is None
        assert not service._updates.is_alive()


def make_update(session, num_gradients):
    before = len(session.required)
    for _ in range(num_gradients):
        session.give()
    wait_until(lambda: len(session.required) == before + 1)


def test_an_update_under_way_gets_a_stand_in_for_a_worker_that_left_and_the_next_waits_for_one_less(create):
    service, session = create(3, 3)
    make_update(session, 3)
    session.give()
    service.worker_left(2, 1)
    wait_until(lambda: session.stand_ins == [1])
    make_update(session, 1)
    make_update(session, 2)
    assert session.required == [3, 3, 2, 2]
    service.worker_came(2)
    make_update(session, 2)
    assert session.required[-1] == 3


def test_an_update_that_has_enough_workers_left_gets_no_stand_in(create):
    service, session = create(2, 3)
    service.worker_left(0, 1)
    service.worker_left(0, 1)  # a worker leaves once, however often that is said
    make_update(session, 2)
    assert (session.stand_ins, session.required) == ([], [2, 2])
    service.worker_left(1, 1)
    wait_until(lambda: session.stand_ins == [1])
    make_update(session, 1)
    assert session.required[-1] == 1


def test_no_update_consists_of_stand_ins_alone(create):
    service, session = create(2, 2)
    service.worker_left(0, 1)
    service.worker_left(1, 1)
    wait_until(lambda: session.stand_ins == [0])
    assert session.step == 0


def test_updates_end_at_max_steps_and_with_stop(create):
    service, session = create(1, 1, max_steps=1)
    session.give()
    wait_until(lambda: not service._updates.is_alive())
    assert (session.step, session.required) == (1, [1])
    service.release()
    assert session.released == 1
    service.stop()
    service.release()
    assert session.released == 1
    assert service.gradient_counts() is None


def test_an_error_of_an_update_is_kept(create):
    class Broken(FakeSession):
        def run(self, op, feeds=None, options=None):
            raise tf.errors.UnavailableError(None, None, "gone")

    service = SyncReplicasService(OPS, 1, 1, None)
    service.start(Broken())
    wait_until(lambda: service.error() is not None)
    assert isinstance(service.error(), tf.errors.UnavailableError)
    service.stop()

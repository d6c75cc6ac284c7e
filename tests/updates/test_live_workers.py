"""The service of rules that have no loop: it calls the ps tasks from a thread, and blocks no caller."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.testing.cluster import DEADLINE_SECS

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from ps_trainer.updates.chief_service import GradientCounts  # isort: skip
from ps_trainer.updates.live_workers import LiveWorkerOps, LiveWorkers, ReleaseOps  # isort: skip

OPS = LiveWorkerOps(
    leave="leave",
    membership="membership",
    release=ReleaseOps("release", {"is_released": 1}),
    pushed="pushed",
    used="used",
)
GONE = tf.errors.UnavailableError(None, None, "socket closed")


class FakeSession:
    """A session that records its calls; a call of `held` ops lasts until its release or `close`."""

    def __init__(self, *held, errors=None):
        self.calls = []
        self.held = held
        self.errors = errors or {}
        self.go_on = threading.Event()
        self.began = threading.Event()
        self.is_closed = False

    def run(self, fetches, feeds):
        if self.is_closed:
            raise RuntimeError("Attempted to use a closed Session.")
        if isinstance(fetches, list):
            fetches = " ".join(fetches)
        self.calls.append((fetches, *feeds.values()))
        if fetches in self.held:
            self.began.set()
            assert self.go_on.wait(DEADLINE_SECS)
            if self.is_closed:
                raise tf.errors.CancelledError(None, None, "closed")
        if fetches in self.errors:
            raise self.errors[fetches]
        return [[5, 6], [3, 4]]

    def close(self):
        self.is_closed = True
        self.go_on.set()


@pytest.fixture
def serve():
    """Makes a started service on a fake session; stops it at the end."""
    services = []

    def start(session):
        services.append(LiveWorkers("rule", OPS))
        services[-1].start(session)
        return services[-1]

    yield start
    for service in services:
        service.stop()


def test_a_report_of_a_lost_worker_does_not_wait_for_the_ps_tasks(serve):
    session = FakeSession("leave")
    service = serve(session)
    service.worker_left(1, 7)  # returns although the call is still running
    service.worker_left(2, 7)
    assert session.began.wait(DEADLINE_SECS)
    session.go_on.set()
    assert service.gradient_counts() == GradientCounts((5, 6), (3, 4))
    assert session.calls == [("leave", (1, 7, 0)), ("leave", (2, 7, 0)), ("pushed used",)]


def test_a_late_call_does_not_take_out_a_worker_that_came_back(serve):
    session = FakeSession("leave")
    service = serve(session)
    service.worker_left(0, 7)
    assert session.began.wait(DEADLINE_SECS)  # a ps task is frozen, and the calls after this one wait
    for index in (1, 2, 3):
        service.worker_left(index, 7)
    service.worker_came(2)
    service.worker_came(3)
    service.worker_left(3, 7)
    session.go_on.set()
    service.gradient_counts()
    assert session.calls == [
        ("leave", (0, 7, 0)),
        ("leave", (1, 7, 0)),
        ("leave", (3, 7, 0)),
        ("leave", (3, 7, 0)),
        ("pushed used",),
    ]


def test_a_release_does_not_wait_for_a_pending_removal_of_a_worker(serve):
    session = FakeSession("leave")
    service = serve(session)
    service.worker_left(1, 7)
    assert session.began.wait(DEADLINE_SECS)
    service.worker_left(2, 7)
    with ThreadPoolExecutor(1) as pool:
        release = pool.submit(service.release)
        assert service._is_released.wait(DEADLINE_SECS)
        session.go_on.set()
        assert release.result(DEADLINE_SECS) is None
    assert session.calls == [("leave", (1, 7, 0)), ("release", 1)]


def test_a_failed_call_is_logged_and_raised_where_a_caller_waits_for_it(serve):
    service = serve(FakeSession(errors=dict.fromkeys(("leave", "release", "pushed used"), GONE)))
    assert service.error() is None
    service.worker_left(1, 7)
    with pytest.raises(tf.errors.UnavailableError):
        service.gradient_counts()
    assert service.error() is GONE
    with pytest.raises(tf.errors.UnavailableError):
        service.release()


def test_a_release_that_a_restarted_ps_task_never_answers_has_a_deadline(serve, monkeypatch):
    monkeypatch.setattr("ps_trainer.updates.live_workers._RELEASE_SECS", 0.1)
    service = serve(FakeSession("release"))
    with pytest.raises(tf.errors.DeadlineExceededError, match="no answer within 0.1 s"):
        service.release()


def test_stop_cancels_a_hanging_call_and_that_is_not_a_failure(serve):
    session = FakeSession("leave")
    service = serve(session)
    service.worker_left(1, 7)
    assert session.began.wait(DEADLINE_SECS)
    service.stop()
    assert not service._thread.is_alive()
    assert service.error() is None


def test_stop_does_not_wait_for_a_thread_that_cannot_be_ended(serve, monkeypatch):
    monkeypatch.setattr("ps_trainer.updates.live_workers._STOP_SECS", 0.05)
    session = FakeSession("leave")
    session.close = lambda: None
    service = serve(session)
    service.worker_left(1, 7)
    assert session.began.wait(DEADLINE_SECS)
    service.stop()
    assert service._thread.is_alive()
    session.go_on.set()


def test_before_its_start_and_after_its_end_it_releases_no_worker_and_no_caller_waits():
    session = FakeSession()
    service = LiveWorkers("rule", OPS)
    service.release()
    service.stop()
    service.start(session)
    service.stop()
    service.worker_left(1, 7)
    service.release()
    assert session.calls == []

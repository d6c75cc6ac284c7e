"""The reports of lost workers and their times, with real sockets."""

from __future__ import annotations

import queue
import socket

import pytest

from ps_trainer.cluster.ports import pick_free_ports
from ps_trainer.runtime import liveness
from ps_trainer.runtime.liveness import Liveness

DEADLINE_SECS = 20.0


@pytest.fixture(autouse=True)
def short_interval(monkeypatch):
    monkeypatch.setattr(liveness, "INTERVAL_SECS", 0.01)


@pytest.fixture
def listener():
    with socket.create_server(("localhost", 0)) as server:
        yield server


def address_of(server):
    return f"localhost:{server.getsockname()[1]}"


def test_a_worker_is_reported_once_when_its_port_is_closed_and_again_after_it_came_back(listener):
    lost: queue.Queue = queue.Queue()
    address = address_of(listener)
    port = listener.getsockname()[1]
    watcher = Liveness({0: address, 1: address}, lambda index, reason: lost.put((index, reason)))
    watcher.watch({1})
    watcher.start()
    try:
        listener.close()
        index, reason = lost.get(timeout=DEADLINE_SECS)
        assert index == 1
        assert address in reason and "killed" in reason
        with socket.create_server(("localhost", port)) as again:
            again.settimeout(DEADLINE_SECS)
            again.accept()[0].close()
            again.accept()[0].close()
            assert lost.empty()
        assert lost.get(timeout=DEADLINE_SECS)[0] == 1
    finally:
        watcher.close()


def test_workers_that_are_not_watched_are_not_reported():
    lost: queue.Queue = queue.Queue()
    first, second = (f"localhost:{port}" for port in pick_free_ports(2))
    watcher = Liveness({0: first, 1: second}, lambda index, reason: lost.put(index))
    watcher.watch({1})
    watcher.start()
    try:
        assert lost.get(timeout=DEADLINE_SECS) == 1
        watcher.watch({0})
        assert lost.get(timeout=DEADLINE_SECS) == 0
        assert lost.empty()
    finally:
        watcher.close()

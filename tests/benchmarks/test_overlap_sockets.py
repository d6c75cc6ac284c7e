"""A step between plain sockets, on the loopback interface in place of shaped hosts."""

from __future__ import annotations

import pytest

from benchmarks import overlap_sockets
from benchmarks.overlap_sockets import Schedule
from ps_trainer.errors import RunError
from ps_trainer.launch.hosts import TaskHost


class Loopback:
    def __init__(self, rate):
        assert rate == 10**8

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def place(self, tasks):
        return dict.fromkeys(tasks, TaskHost("127.0.0.1:2222"))


@pytest.fixture(autouse=True)
def loopback(monkeypatch):
    monkeypatch.setattr(overlap_sockets, "MeteredHosts", Loopback)


def schedule(pause_secs=0.001, *, waits=False):
    return Schedule([1000] * 4, [1000, 3000], pause_secs, waits)


@pytest.mark.parametrize("waits", [False, True])
def test_a_step_lasts_at_least_as_long_as_its_pauses(waits):
    assert overlap_sockets.measure(schedule(waits=waits), "100mbit", 2, 5) >= 4 * 3 * 0.001


def test_each_layer_waits_for_its_piece():
    assert schedule().piece_of_layer == [0, 1, 1, 1]
    with pytest.raises(ValueError, match="do not end where layers of 1000 bytes end"):
        _ = Schedule([1000] * 4, [1500, 2500], 0.0, waits=False).piece_of_layer


def test_a_task_that_fails_is_an_error(monkeypatch):
    monkeypatch.setattr(overlap_sockets, "_WORKER", "raise SystemExit(3)")
    with pytest.raises(RunError, match="ended with exit code 3"):
        overlap_sockets.measure(schedule(), "100mbit", 1, 2)

"""A wait knows how long it has lasted, and logs now and then."""

from __future__ import annotations

from ps_trainer.runtime import wait as wait_lib
from ps_trainer.runtime.wait import Wait


class FakeTime:
    now = 100.0

    def __call__(self):
        return self.now


def test_a_wait_is_over_after_its_limit():
    fake_time = FakeTime()
    wait = Wait(60.0, fake_time)
    fake_time.now += 60.0
    assert (wait.secs(), wait.is_over()) == (60.0, False)
    fake_time.now += 1.0
    assert wait.is_over()


def test_a_wait_is_logged_every_ten_seconds_only(monkeypatch):
    fake_time, lines = FakeTime(), []
    monkeypatch.setattr(wait_lib.logging, "info", lambda text, *values: lines.append(text % values))
    wait = Wait(60.0, fake_time)
    for _ in range(25):
        fake_time.now += 1.0
        wait.log("waiting for ps-0")
    assert lines == ["waiting for ps-0 (11 of 60 s)", "waiting for ps-0 (22 of 60 s)"]

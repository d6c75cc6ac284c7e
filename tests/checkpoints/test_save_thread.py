"""A save in a thread pauses in proportion to the time that it takes, and makes no pause when it is waited for."""

from __future__ import annotations

import threading
import types

import pytest

from ps_trainer.checkpoints import save_thread
from ps_trainer.checkpoints.save_thread import Abandoned, SaveThread

DEADLINE_SECS = 60.0


class Pauses:
    """Takes the place of the event that ends pauses; notes them, and returns at once."""

    def __init__(self):
        self.secs = []

    def wait(self, secs):
        self.secs.append(secs)


def test_a_save_has_a_fifth_of_the_time_and_no_pause_is_long(monkeypatch):
    clock, may_begin, pauses = types.SimpleNamespace(now=0.0), threading.Event(), Pauses()
    monkeypatch.setattr(save_thread, "time", types.SimpleNamespace(monotonic=lambda: clock.now))

    def spend(secs, pause):
        clock.now += secs
        pause()

    def read(after_slice):
        assert may_begin.wait(DEADLINE_SECS)
        for secs in (0.1, 0.02):
            spend(secs, after_slice)
        return {}

    def write(values, between_files):
        for secs in (0.2, 5.0):
            spend(secs, between_files)

    saving = SaveThread(read, write)
    saving._hurry = pauses
    may_begin.set()
    assert saving._done.wait(DEADLINE_SECS) and saving.error is None
    assert pauses.secs == pytest.approx([4 * 0.1, 4 * 0.02, 4 * 0.2, 1.0])


@pytest.mark.parametrize("phase", ["reading", "writing"])
def test_a_save_that_is_given_up_ends_in_its_reading_and_completes_its_writing(phase):
    may_end = threading.Event()

    def read(after_slice):
        if phase == "reading":
            assert may_end.wait(DEADLINE_SECS)
        after_slice()
        return {}

    def write(values, between_files):
        assert may_end.wait(DEADLINE_SECS)
        between_files()

    saving = SaveThread(read, write)
    assert saving._has_read.wait(DEADLINE_SECS) if phase == "writing" else not saving.has_read
    assert not saving.abandon(0.0)
    may_end.set()
    assert saving.abandon(DEADLINE_SECS)
    if phase == "reading":
        assert isinstance(saving.error, Abandoned) and saving.values is None
    else:
        assert saving.error is None and saving.values == {}

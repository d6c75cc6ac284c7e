"""A worker's sign of life goes to every ps task, and a ps task that does not answer delays no other."""

from __future__ import annotations

import threading
import time

from ps_trainer.runtime.heartbeat import Heartbeat
from tests.testing.cluster import DEADLINE_SECS

from ps_trainer.runtime.run_record import AliveMessage  # isort: skip - after the cluster's environment
from tests.runtime.fakes import GONE, FakeControl  # isort: skip


class Frozen(FakeControl):
    """A control that does not answer until the test releases it."""

    def __init__(self, ps):
        super().__init__(ps)
        self.thaw = threading.Event()

    def send(self, message):
        self.thaw.wait(DEADLINE_SECS)


def wait_for_words(ps, number):
    deadline = time.monotonic() + DEADLINE_SECS
    while len(ps.said) < number:
        assert time.monotonic() < deadline, f"{len(ps.said)} of {number} messages"
        time.sleep(0.01)


def test_says_alive_to_each_ps_beside_a_frozen_and_a_lost_one():
    controls = [Frozen(0), FakeControl(1), FakeControl(2)]
    controls[2].error = GONE
    with Heartbeat(controls, "r", 3, timeout_secs=0.06):
        wait_for_words(controls[1], 3)
        controls[2].error = None
        wait_for_words(controls[2], 3)
    assert controls[1].said[0] == AliveMessage(run_id="r", worker=3)
    controls[0].thaw.set()


def test_is_silent_after_its_end():
    ps = FakeControl(0)
    with Heartbeat([ps], "r", 3, timeout_secs=DEADLINE_SECS):
        pass
    assert ps.said == []

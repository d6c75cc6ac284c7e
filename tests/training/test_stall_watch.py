"""A worker that makes no step for long ends, unless it has a reason to wait."""

from __future__ import annotations

import types

import pytest

from ps_trainer.errors import StalledError
from ps_trainer.training.stall_watch import StallWatch

LIMIT_SECS = 60.0
NEVER = -1e9


@pytest.fixture
def progress():
    """A worker whose last step was at 100 s."""
    return types.SimpleNamespace(last_step_at=100.0, global_step=7)


def watch_at(now):
    return StallWatch("worker-1", LIMIT_SECS, time_fn=lambda: now)


def test_a_worker_that_makes_no_step_for_too_long_is_stalled(progress):
    within, beyond = watch_at(100.0 + LIMIT_SECS), watch_at(100.0 + LIMIT_SECS + 1.0)
    for watch in (within, beyond):
        watch.start(progress)
    within.check(waited_at=NEVER)
    with pytest.raises(
        StalledError, match=r"worker-1 has completed no step for 61 s, at global step 7: .*raise --stall"
    ):
        beyond.check(waited_at=NEVER)


def test_the_wait_for_a_worker_that_may_come_back_is_not_a_stall(progress):
    watch = watch_at(1000.0)
    watch.start(progress)
    watch.check(waited_at=1000.0 - LIMIT_SECS)
    with pytest.raises(StalledError):
        watch.check(waited_at=999.0 - LIMIT_SECS)


def test_only_a_worker_that_makes_steps_can_stall(progress):
    watch = watch_at(1000.0)
    watch.check(waited_at=NEVER)
    watch.start(progress)
    watch.stop()
    watch.check(waited_at=NEVER)

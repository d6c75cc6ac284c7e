"""Tasks killed without a word: the others say so and end."""

from __future__ import annotations

import signal

import pytest

from tests.testing.processes import END_SECS, LOST_SECS, UNLIMITED

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("update", ["async", "sync"])
def test_killed_ps_ends_the_workers_with_a_plain_error(create_run, update):
    run = create_run()
    ps, chief, worker = run.start_all(UNLIMITED, f"--update={update}")
    run.wait_for_step(100)
    ps.send(signal.SIGKILL)
    for task in (chief, worker):
        assert task.wait(LOST_SECS) == 1
        assert "error: ps-0 was lost" in task.log
    assert run.remaining() == []


def test_tasks_of_a_killed_launcher_end_by_themselves_with_a_checkpoint(create_run):
    run = create_run()
    launcher = run.start_local(UNLIMITED)
    run.wait_for_step(100)
    assert len(run.remaining()) == 1 + 3  # the launcher and its tasks
    launcher.send(signal.SIGKILL)
    run.wait_until_gone(END_SECS + 2.0)
    assert run.checkpoint_step() >= 100

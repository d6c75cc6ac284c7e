"""Tasks killed without notice: the others report the loss and end."""

from __future__ import annotations

import signal

import pytest

from tests.testing.processes import END_SECS, LOST_SECS, START_SECS, UNLIMITED
from tests.testing.repetitions import repetitions

FAILED = 1


@pytest.mark.parametrize(("update", "num_ps"), repetitions([("async", 1), ("sync", 2)], first=1))
def test_killed_ps_ends_the_others_and_is_named(create_run, update, num_ps):
    run = create_run(num_ps=num_ps)
    *ps, chief, worker = run.start_all(UNLIMITED, f"--update={update}")
    run.wait_for_step(10)
    ps[-1].send(signal.SIGKILL)
    for task in (chief, worker):
        assert task.wait(LOST_SECS) == FAILED
        assert f"error: ps-{num_ps - 1} was lost" in task.log
    for task in ps[:-1]:
        assert task.wait(END_SECS) == FAILED


def test_killed_worker_does_not_hold_up_async_and_the_ps_ends(create_run):
    run = create_run()
    ps, chief, worker = run.start_all("--max_steps=80", "--update=async")
    run.wait_for_step(10)
    worker.send(signal.SIGKILL)
    assert chief.wait(LOST_SECS) == 0
    assert ps.wait(END_SECS) == FAILED
    assert "worker 1 failed" in ps.log
    assert run.summary()["workers"]["1"]["status"] == "failed"


@pytest.mark.parametrize(
    ("update", "option", "max_steps", "num_workers"),
    repetitions(
        [("backup", "backup_workers=1", 60, 2), ("ssp", "staleness=2", 80, 3), ("k_batch_sync", "k=3", 50, 3)], every=3
    ),
)
def test_killed_worker_does_not_hold_up_a_rule_that_can_continue_without_it(
    create_run, update, option, max_steps, num_workers
):
    run = create_run(num_workers=num_workers)
    ps, *others, last = run.start_all(f"--max_steps={max_steps}", f"--update={update}", f"--update_option={option}")
    run.wait_for_step(10)
    last.send(signal.SIGKILL)
    for task in others:
        assert task.wait(START_SECS) == 0
    assert ps.wait(LOST_SECS) == FAILED
    assert f"worker {len(others)} failed" in ps.log
    summary = run.summary()
    assert summary["global_step"] >= max_steps
    assert [figures["status"] for figures in summary["workers"].values()] == ["done"] * len(others) + ["failed"]


def test_killed_worker_ends_sync_and_is_named(create_run):
    run = create_run()
    ps, chief, worker = run.start_all(UNLIMITED, "--update=sync")
    run.wait_for_step(10)
    worker.send(signal.SIGKILL)
    assert chief.wait(LOST_SECS) == FAILED
    assert "worker 1 failed, and update rule sync needs all" in chief.log
    assert ps.wait(END_SECS) == FAILED


def test_ps_of_killed_workers_ends_by_itself(create_run):
    run = create_run()
    ps, *workers = run.start_all(UNLIMITED)
    run.wait_for_step(10)
    for worker in workers:
        worker.send(signal.SIGKILL)
    assert ps.wait(LOST_SECS) == FAILED

"""Rules whose workers need each other: if one worker is killed or interrupted, all end and name it."""

from __future__ import annotations

import signal

import pytest

from tests.testing.processes import END_SECS, LOST_SECS, UNLIMITED
from tests.testing.repetitions import repetitions

FAILED, TERMINATED = 1, 128 + signal.SIGTERM
RULES = {
    "all_reduce": ("--update=all_reduce",),
    "hybrid": (
        "--update=hybrid",
        "--model=tests.testing.components:Embedded",
        "--dataset=tests.testing.components:Rows",
    ),
}


@pytest.mark.parametrize(("update", "victim"), repetitions([("all_reduce", 0), ("all_reduce", 2), ("hybrid", 1)]))
def test_killed_worker_ends_the_others_and_is_named(create_run, update, victim):
    run = create_run(num_workers=3 if update == "all_reduce" else 2)
    ps, *workers = run.start_all(UNLIMITED, *RULES[update])
    run.wait_for_step(10)
    workers[victim].send(signal.SIGKILL)
    others = [worker for index, worker in enumerate(workers) if index != victim]
    for worker in others:
        assert worker.wait(LOST_SECS) == FAILED
        assert f"worker {victim} failed" in worker.log
        assert "Traceback" not in worker.log
    assert ps.wait(END_SECS) == FAILED
    if victim:
        assert run.checkpoint_step() >= 10


def test_terminated_worker_ends_the_other_and_is_named(create_run):
    run = create_run()
    _, chief, worker = run.start_all(UNLIMITED, *RULES["all_reduce"])
    run.wait_for_step(10)
    worker.send(signal.SIGTERM)
    assert worker.wait(END_SECS) == TERMINATED
    assert chief.wait(END_SECS) == FAILED
    assert "worker 1 interrupted" in chief.log
    assert run.checkpoint_step() >= 10


def test_training_continues_from_the_checkpoint_when_restarted_after_a_kill(create_run):
    run = create_run(num_workers=2)
    tasks = run.start_all(UNLIMITED, *RULES["all_reduce"], "--save_checkpoint_steps=10")
    run.wait_for_step(20)
    tasks[1].send(signal.SIGKILL)
    for task in tasks:
        task.wait(LOST_SECS)
    step = run.checkpoint_step()
    assert step >= 10
    tasks = run.start_all(f"--max_steps={step + 10}", *RULES["all_reduce"])
    assert [task.wait(LOST_SECS) for task in tasks] == [0, 0, 0]
    assert run.checkpoint_step() == step + 10

"""Tasks that are killed or frozen and come back: the others wait or continue, and nothing that was saved is lost.

These tests restart tasks by hand. `test_restarts.py` tests the launcher with every role under `async` and `sync`.
"""

from __future__ import annotations

import signal

import pytest

from tests.testing.live_values import run_id_of
from tests.testing.processes import END_SECS, LOST_SECS, START_SECS, UNLIMITED
from tests.testing.repetitions import repetitions

RECOVERY = ("--recover_timeout_secs=90", "--save_checkpoint_secs=1", "--learning_rate=0.02")


def recovered(run, task_name="worker-0"):
    return [event for event in run.metrics(task_name, "event") if event["event"] == "recovered"]


def end(run, tasks):
    """Ends a run of unlimited steps by SIGTERM to the chief; all tasks must end, with a last checkpoint."""
    for task in tasks:
        if "worker-0" in task.name:
            task.send(signal.SIGTERM)
    for task in tasks:
        assert task.wait(END_SECS + 15) != 0


def test_a_killed_ps_is_waited_for_beyond_the_stall_timeout_and_restored_when_restarted(create_run):
    run = create_run(num_ps=2, flags=(*RECOVERY, "--stall_timeout_secs=10"))
    flags = (UNLIMITED, "--update=sync")
    ps_0, ps_1, chief, worker = run.start_all(*flags)
    run.wait_for_step(10)
    saved = run.wait_for_checkpoint()
    ps_1.send(signal.SIGKILL)
    assert ps_1.wait(END_SECS) == -signal.SIGKILL
    for task in (chief, worker):
        task.wait_for_log(r"waiting for ps-1 .*\(1\d of 90 s\)", LOST_SECS)
    ps_1 = run.start_ps(1, *flags)
    chief.wait_for_log("restored .*model.ckpt-", LOST_SECS)
    (event,) = recovered(run)
    assert event["global_step"] >= saved
    assert event["rolled_back"] == event["reached"] - event["global_step"]
    run.wait_for_step(event["reached"] + 10)
    end(run, [ps_0, ps_1, chief, worker])


@pytest.mark.parametrize("update", repetitions(["ssp", "sync"]))
def test_a_worker_and_a_chief_that_are_killed_continue_from_the_live_state_when_restarted(create_run, update):
    run = create_run(flags=RECOVERY)
    flags = (UNLIMITED, f"--update={update}")
    ps, chief, worker = run.start_all(*flags)
    run.wait_for_step(10)
    worker.send(signal.SIGKILL)
    assert worker.wait(END_SECS) == -signal.SIGKILL
    ps.wait_for_log("worker 1 lost")
    reached = run.last_step(0)
    worker = run.start_worker(1, *flags)
    run.wait_for_step(reached + 10)
    chief.send(signal.SIGKILL)
    assert chief.wait(END_SECS) == -signal.SIGKILL
    reached = run.last_step(1)
    chief = run.start_worker(0, *flags)
    chief.wait_for_log("attached to the run")
    run.wait_for_step(reached + 10)
    end(run, [ps, chief, worker])
    assert run.checkpoint_step() >= reached


def test_restarts_under_sync_cost_the_other_workers_no_step(create_run):
    run = create_run(num_ps=2, num_workers=3, flags=(*RECOVERY, "--step_log"))
    flags = (UNLIMITED, "--update=sync")
    *ps, chief, worker, other = run.start_all(*flags)
    run.wait_for_step(10)
    run_id = run_id_of(run)
    for signum, code, noticed in (
        (signal.SIGKILL, -signal.SIGKILL, "lost"),
        (signal.SIGKILL, -signal.SIGKILL, None),  # restarted at once
        (signal.SIGTERM, 128 + signal.SIGTERM, "interrupted"),
    ):
        worker.send(signum)
        assert worker.wait(END_SECS) == code
        if noticed:
            needed = f"worker 1 {noticed}, and update rule sync needs all; waiting up to 90 s"
            chief.wait_for_log(needed, LOST_SECS)
        reached = run.last_step(0)
        worker = run.start_worker(1, *flags)
        run.wait_for_step(reached + 10)
    assert run_id_of(run) == run_id  # the chief sets up nothing on the ps tasks a second time
    assert recovered(run) == []  # the chief waited within its step
    end(run, [*ps, chief, worker, other])
    for index in (0, 2):
        states = [line["state"] for line in run.metrics(f"worker-{index}", "state")]
        assert states.count("building the graph") == 1, states
        steps = run.logged_steps(index)
        assert [step["global_step"] for step in steps] == list(range(1, len(steps) + 1))  # each of its steps counts
        assert len(steps) > reached and not any(step["dropped"] for step in steps)


def test_sync_continues_with_min_workers_and_counts_a_worker_again_that_is_back(create_run):
    run = create_run(num_workers=3, flags=RECOVERY)
    flags = (UNLIMITED, "--update=sync", "--update_option=min_workers=2")
    ps, chief, second, third = run.start_all(*flags)
    run.wait_for_step(10)
    third.send(signal.SIGKILL)
    chief.wait_for_log("sync: worker 2 left", LOST_SECS)
    run.wait_for_step(run.last_step(0) + 10, workers=[0, 1])
    third = run.start_worker(2, *flags)
    chief.wait_for_log("sync: worker 2 joined")
    run.wait_for_step(run.last_step(0) + 10)
    end(run, [ps, chief, second, third])


@pytest.mark.full  # a worker of `sync` is preempted above
def test_a_preempted_worker_is_waited_for_under_backup_where_it_is_needed(create_run):
    run = create_run(flags=RECOVERY)
    flags = (UNLIMITED, "--update=backup", "--update_option=backup_workers=0")
    ps, chief, worker = run.start_all(*flags)
    run.wait_for_step(10)
    worker.send(signal.SIGTERM)
    assert worker.wait(END_SECS) == 128 + signal.SIGTERM
    chief.wait_for_log("worker 1 interrupted, and update rule backup needs all; waiting up to 90 s")
    reached = run.last_step(0)
    worker = run.start_worker(1, *flags)
    run.wait_for_step(reached + 10)
    assert recovered(run) == []  # the chief waited within its step
    end(run, [ps, chief, worker])


@pytest.mark.parametrize(
    ("signum", "how"), repetitions([(signal.SIGKILL, "lost"), (signal.SIGTERM, "interrupted")], first=1)
)
def test_a_worker_that_never_comes_back_ends_sync_after_the_wait_with_a_checkpoint(create_run, signum, how):
    run = create_run(flags=("--recover_timeout_secs=5", "--save_checkpoint_secs=600"))
    ps, chief, worker = run.start_all(UNLIMITED, "--update=sync")
    run.wait_for_step(10)
    worker.send(signum)
    assert chief.wait(LOST_SECS) == 1
    assert f"worker 1 {how}, and update rule sync needs all" in chief.log
    assert ps.wait(START_SECS) == 1
    assert run.checkpoint_step() >= run.last_step(0)


FROZEN = ("--heartbeat_timeout_secs=3", *RECOVERY)


@pytest.mark.parametrize(("update", "frozen"), repetitions([("async", 1), ("sync", 0)], first=1))
def test_a_frozen_worker_is_named_and_continues_when_it_thaws(create_run, update, frozen):
    run = create_run(flags=FROZEN)
    ps, *workers = run.start_all(UNLIMITED, f"--update={update}")
    run.wait_for_step(10)
    workers[frozen].freeze()
    ps.wait_for_log(f"worker {frozen} lost: no sign of life for", LOST_SECS)
    other = 1 - frozen
    reached = run.last_step(other)
    if update == "async":
        run.wait_for_step(reached + 10, workers=[other])
    workers[frozen].thaw()
    run.wait_for_step(run.last_step(other) + 10)
    end(run, [ps, *workers])
    assert run.checkpoint_step() >= reached


@pytest.mark.parametrize("update", repetitions(["async", "sync"]))
def test_a_frozen_ps_is_named_and_nothing_is_lost_when_it_thaws(create_run, update):
    run = create_run(num_ps=2, flags=FROZEN)
    ps_0, ps_1, *workers = run.start_all(UNLIMITED, f"--update={update}")
    run.wait_for_step(10)
    reached = run.last_step(0)
    ps_1.freeze()
    for worker in workers:
        worker.wait_for_log(r"ps-1 \(localhost:\d+\) has not answered for \d+ s", LOST_SECS)
    ps_1.thaw()
    run.wait_for_step(reached + 20)
    for event in recovered(run):
        assert event["global_step"] >= reached  # attached to the live state, not to a checkpoint
    end(run, [ps_0, ps_1, *workers])

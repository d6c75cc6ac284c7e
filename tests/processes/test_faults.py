"""Drills and restarts of `local`, with real tasks that are really killed, frozen and cut off."""

from __future__ import annotations

import json
import os
import pathlib
import signal

import pytest

from ps_trainer.launch import hosts_iproute
from tests.testing.processes import END_SECS, START_SECS, UNLIMITED, wait_until

pytestmark = pytest.mark.slow

FAILED = 1
USAGE = 2
RECOVER = "--recover_timeout_secs=90"
SLOW = "--straggler=det:mean_ms=20"  # steps take long beside a restart, and leave it the CPU


def events(run, *names):
    path = run.logdir / "metrics" / "launcher.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [event for event in map(json.loads, lines) if not names or event["event"] in names]


def pid_of(run, task_name):
    """Pid of that task of the run, as its command line says."""
    job, _, index = task_name.partition("-")
    for pid in run.remaining():
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        name = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
        if name == f"{job}-{index}" or {f"--job_name={job}", f"--task_index={index}"} <= set(words):
            return pid
    raise AssertionError(f"no process of {task_name}")


def test_killed_worker_is_started_again_and_joins_the_same_run(create_run):
    run = create_run(flags=(RECOVER,))
    launcher = run.start_local(
        "--max_steps=800", "--update=async", "--max_restarts=2", "--fault=kill:worker:1@step=100", SLOW
    )
    assert launcher.wait(START_SECS) == 0
    kill, restart = events(run)
    assert (kill["event"], kill["task"], kill["fault"]) == ("kill", "worker-1", "kill:worker:1@step=100")
    assert 100 <= kill["global_step"] < 200
    assert (restart["event"], restart["number"], restart["ended"]) == ("restart", 1, "killed (SIGKILL)")
    assert "started again in 1 s (restart 1 of 2)" in launcher.log
    trained = [line["wall_time"] for line in run.metrics("worker-1", "train")]
    assert max(trained) > restart["wall_time"] + 1.0, "it has made no step since"
    summary = run.summary()
    assert summary["restarts"] == {"worker-1": 1}
    assert [fault["task"] for fault in summary["faults"]] == ["worker-1"]
    assert summary["workers"]["1"]["status"] == "done"
    assert run.remaining() == []


def test_without_preloading_a_fresh_process_is_started(create_run):
    run = create_run(flags=(RECOVER,))
    launcher = run.start_local(UNLIMITED, "--max_restarts=1", "--preload=false", "--fault=kill:worker:1@step=100")
    wait_until(lambda: events(run, "restart"), START_SECS, "worker-1 is not started again")
    restarted_at = events(run, "restart")[0]["wall_time"]
    wait_until(
        lambda: run.metrics("worker-1", "train")[-1]["wall_time"] > restarted_at + 1.0,
        START_SECS,
        "worker-1 makes no step after its restart",
    )
    launcher.send(signal.SIGINT)
    assert launcher.wait(END_SECS) == 128 + signal.SIGINT
    assert run.remaining() == []


def test_step_that_raises_fails_the_run_by_name_without_restarts(create_run):
    run = create_run()
    launcher = run.start_local(UNLIMITED, "--fault=raise:worker:1@step=100")
    assert launcher.wait(START_SECS) == FAILED
    assert "worker-1: failed (exit 1); last lines of" in launcher.log
    assert "by --fault=raise:worker:1@step=100" in launcher.log
    (event,) = run.metrics("worker-1", "event")
    assert event["event"] == "raise"
    assert event["global_step"] >= 100
    assert run.summary()["faults"][0]["global_step"] == event["global_step"]


def test_run_fails_when_the_restarts_of_a_task_are_used_up(create_run):
    run = create_run()
    launcher = run.start_local(
        UNLIMITED, "--max_restarts=1", "--fault=kill:worker:1@step=100", "--fault=kill:worker:1@step=101"
    )
    assert launcher.wait(START_SECS) == FAILED
    assert "worker-1: killed (SIGKILL), after 1 restart; last lines of" in launcher.log
    assert run.summary()["restarts"] == {"worker-1": 1}
    assert run.remaining() == []


def test_frozen_worker_goes_on_and_the_run_is_done(create_run):
    run = create_run()
    launcher = run.start_local("--max_steps=3000", "--update=async", "--fault=freeze:worker:1@step=300,secs=2")
    assert launcher.wait(START_SECS) == 0
    frozen, goes_on = events(run)
    assert [frozen["event"], goes_on["event"]] == ["freeze", "continue"]
    assert goes_on["wall_time"] - frozen["wall_time"] == pytest.approx(2.0, abs=0.5)
    times = [line["wall_time"] for line in run.metrics("worker-1", "train")]
    assert not [time for time in times if frozen["wall_time"] + 0.3 < time < goes_on["wall_time"]]
    assert max(times) > goes_on["wall_time"]


@pytest.mark.parametrize("preload", [True, False])
def test_tasks_of_a_killed_launcher_end_by_themselves_also_a_frozen_one(create_run, preload):
    run = create_run()
    launcher = run.start_local(UNLIMITED, f"--preload={str(preload).lower()}")
    run.wait_for_step(100)
    frozen = pid_of(run, "worker-1")
    os.kill(frozen, signal.SIGSTOP)
    stat = pathlib.Path(f"/proc/{frozen}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", END_SECS, "worker-1 is not stopped")
    launcher.send(signal.SIGKILL)
    run.wait_until_gone(END_SECS + 2.0)
    assert run.checkpoint_step() >= 100


@pytest.mark.parametrize("preload", [True, False])
def test_tasks_of_a_launcher_killed_at_the_start_end_by_themselves(create_run, preload):
    run = create_run()
    launcher = run.start_local(UNLIMITED, f"--preload={str(preload).lower()}")
    least = 2 if preload else 4  # the launcher with its fork server, or with its tasks
    wait_until(lambda: len(run.remaining()) >= least, START_SECS, "nothing is started")
    launcher.send(signal.SIGKILL)
    run.wait_until_gone(START_SECS)


def test_interrupted_drill_wakes_who_is_frozen(create_run):
    run = create_run()
    launcher = run.start_local(UNLIMITED, "--fault=freeze:worker:1@step=100,secs=600")
    wait_until(lambda: events(run, "freeze"), START_SECS, "worker-1 is not frozen")
    launcher.send(signal.SIGINT)
    assert launcher.wait(END_SECS) == 128 + signal.SIGINT
    assert run.remaining() == []


@pytest.mark.skipif(bool(hosts_iproute.probe().problem), reason="no shaped hosts here")
def test_link_that_was_cut_carries_again(create_run):
    run = create_run()
    launcher = run.start_local(
        "--max_steps=3000", "--update=async", "--hosts=netns", "--fault=cut:worker:1@step=300,secs=1.5"
    )
    assert launcher.wait(START_SECS) == 0
    cut, restored = events(run)
    assert [cut["event"], restored["event"]] == ["cut", "restore"]
    times = [line["wall_time"] for line in run.metrics("worker-1", "train")]
    assert not [time for time in times if cut["wall_time"] + 0.5 < time < restored["wall_time"]]
    assert max(times) > restored["wall_time"]


def test_wrong_fault_ends_with_2_before_anything_is_made(create_run):
    run = create_run()
    launcher = run.start_local("--fault=kill:worker:2@step=5")
    assert launcher.wait(END_SECS) == USAGE
    assert "there is no worker 2; the worker tasks of this cluster are 0 to 1" in launcher.log
    assert not run.logdir.exists()

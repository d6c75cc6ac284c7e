"""Drills and restarts of `local`, with real tasks that are killed, frozen and cut off."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pathlib
import re
import signal

import pytest

from benchmarks import accounting
from ps_trainer.launch import hosts_iproute
from tests.testing.processes import END_SECS, START_SECS, UNLIMITED, wait_until, wait_until_frozen
from tests.testing.repetitions import repetitions

FAILED = 1
USAGE = 2
RECOVER = "--recover_timeout_secs=90"
IMPORT_STEP_MS = 200.0  # leaves the cores to a restarted task that imports TensorFlow


def events(run, *names):
    path = run.logdir / "metrics" / "launcher.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [event for event in map(json.loads, lines) if not names or event["event"] in names]


def pid_of(run, task_name):
    """Pid of that task of the run, found by its command line."""
    job, _, index = task_name.partition("-")
    for pid in run.remaining():
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        name = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
        if name == f"{job}-{index}" or {f"--job_name={job}", f"--task_index={index}"} <= set(words):
            return pid
    raise AssertionError(f"no process of {task_name}")


def assert_silence(run, least_secs, until, before=None):
    """Asserts that worker 1 reported nothing for at least `least_secs` before that event, and something after it.

    A later silence, after the event `before`, does not count.
    """
    times = [line["wall_time"] for line in run.metrics("worker-1", "train")]
    times = [time for time in times if before is None or time < before["wall_time"]]
    begin, end = max(itertools.pairwise(times), key=lambda pair: pair[1] - pair[0])
    assert end - begin >= least_secs
    assert begin < until["wall_time"] < end


def child_of(parent, name):
    """Pid of the child of `parent` whose name matches; None before it exists."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process may end meanwhile
            its_parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if its_parent == parent and re.match(name, (folder / "comm").read_text()):
                return int(folder.name)
    return None


def fork_server_of(launcher):
    """Pid of a launcher's fork server, which is its child without a task's name; None before it exists."""
    return child_of(launcher.pid, r"(?!(ps|worker)-\d)")


def wait_for_a_step_after_the_restart(run):
    """Waits until the only worker, which was killed, trains again."""
    wait_until(lambda: events(run, "restart"), START_SECS, "worker-0 is not started again")
    restarted_at = events(run, "restart")[0]["wall_time"]
    wait_until(
        lambda: [line for line in run.metrics("worker-0", "train") if line["wall_time"] > restarted_at + 1.0],
        START_SECS,
        "worker-0 makes no step after its restart",
    )


def test_frozen_worker_continues_and_is_restarted_when_it_is_killed(create_run):
    run = create_run(flags=(RECOVER,))
    faults = ("--fault=freeze:worker:1@step=20,secs=2", "--fault=kill:worker:1@step=100")
    launcher = run.start_local("--max_steps=240", "--update=async", "--max_restarts=2", *faults)
    assert launcher.wait(START_SECS) == 0
    frozen, goes_on, kill, restart = events(run)
    assert [frozen["event"], goes_on["event"]] == ["freeze", "continue"]
    assert_silence(run, 1.9, until=goes_on, before=kill)
    assert (kill["event"], kill["task"], kill["fault"]) == ("kill", "worker-1", "kill:worker:1@step=100")
    assert 100 <= kill["global_step"] < 140
    assert (restart["event"], restart["number"], restart["ended"]) == ("restart", 1, "killed (SIGKILL)")
    assert "restarted in 1 s (restart 1 of 2)" in launcher.log
    trained = [line["wall_time"] for line in run.metrics("worker-1", "train")]
    assert max(trained) > restart["wall_time"] + 1.0, "worker 1 has made no step since its restart"
    summary = run.summary()
    assert summary["restarts"] == {"worker-1": 1}
    assert [fault["task"] for fault in summary["faults"]] == ["worker-1"] * 2
    assert summary["workers"]["1"]["status"] == "done"
    assert run.remaining() == []


def test_without_preloading_a_fresh_process_is_started(create_run):
    # One process holds parameters and worker: each fresh process needs seconds of CPU time to import TensorFlow.
    run = create_run(num_ps=0, num_workers=1, flags=("--save_checkpoint_steps=5",), step_ms=IMPORT_STEP_MS)
    launcher = run.start_local(UNLIMITED, "--max_restarts=1", "--preload=false", "--fault=kill:worker:0@step=12")
    wait_for_a_step_after_the_restart(run)
    launcher.send(signal.SIGINT)
    assert launcher.wait(END_SECS) == 128 + signal.SIGINT
    assert run.remaining() == []
    assert run.checkpoint_step() >= 10


def test_without_its_fork_server_a_task_is_still_restarted(create_run):
    run = create_run(num_workers=1, flags=(RECOVER,), step_ms=IMPORT_STEP_MS)
    launcher = run.start_local(UNLIMITED, "--max_restarts=1")
    run.wait_for_step(1)
    fork_server = fork_server_of(launcher)
    worker = child_of(launcher.pid, "worker-0")
    os.kill(fork_server, signal.SIGKILL)
    os.kill(worker, signal.SIGKILL)
    wait_for_a_step_after_the_restart(run)
    assert "the fork server has ended" in launcher.log and "a fresh process is started instead" in launcher.log
    launcher.send(signal.SIGINT)
    assert launcher.wait(END_SECS) == 128 + signal.SIGINT
    assert run.remaining() == []


def test_step_that_raises_fails_the_run_by_name_without_restarts(create_run):
    run = create_run()
    launcher = run.start_local(UNLIMITED, "--fault=raise:worker:1@step=20")
    assert launcher.wait(START_SECS) == FAILED
    assert "worker-1: failed (exit 1); last lines of" in launcher.log
    assert "by --fault=raise:worker:1@step=20" in launcher.log
    (event,) = run.metrics("worker-1", "event")
    assert event["event"] == "raise"
    assert event["global_step"] >= 20
    assert run.summary()["faults"][0]["global_step"] == event["global_step"]


def test_run_fails_when_the_restarts_of_a_task_are_used_up(create_run):
    run = create_run()
    launcher = run.start_local(
        UNLIMITED, "--max_restarts=1", "--fault=kill:worker:1@step=20", "--fault=kill:worker:1@step=21"
    )
    assert launcher.wait(START_SECS) == FAILED
    assert "worker-1: killed (SIGKILL), after 1 restart; last lines of" in launcher.log
    assert run.summary()["restarts"] == {"worker-1": 1}
    assert run.remaining() == []


@pytest.mark.parametrize("preload", repetitions([True, False]))
def test_tasks_of_a_killed_launcher_end_by_themselves_also_a_frozen_one(create_run, preload):
    run = create_run()
    launcher = run.start_local(UNLIMITED, f"--preload={str(preload).lower()}")
    run.wait_for_step(10)
    assert len(run.remaining()) == 1 + preload + 3  # the launcher, its fork server and its tasks
    frozen = pid_of(run, "worker-1")
    os.kill(frozen, signal.SIGSTOP)
    wait_until_frozen(frozen, "worker-1")
    launcher.send(signal.SIGKILL)
    run.wait_until_gone(END_SECS + 2.0)
    assert run.checkpoint_step() >= 10


@pytest.mark.parametrize("preload", [True, False])
def test_tasks_of_a_launcher_killed_at_the_start_end_by_themselves(create_run, preload):
    run = create_run(num_workers=1)
    launcher = run.start_local(UNLIMITED, f"--preload={str(preload).lower()}")
    least = 2 if preload else 3  # the launcher with its fork server, or with its tasks
    wait_until(lambda: len(run.remaining()) >= least, START_SECS, "nothing is started")
    launcher.send(signal.SIGKILL)
    run.wait_until_gone(START_SECS)


def test_interrupted_drill_thaws_frozen_tasks(create_run):
    run = create_run(num_workers=1)
    launcher = run.start_local(UNLIMITED, "--fault=freeze:worker:0@step=10,secs=600")
    wait_until(lambda: events(run, "freeze"), START_SECS, "worker-0 is not frozen")
    launcher.send(signal.SIGINT)
    assert launcher.wait(END_SECS) == 128 + signal.SIGINT
    assert run.remaining() == []


@pytest.mark.skipif(bool(hosts_iproute.probe().problem), reason="no shaped hosts here")
def test_link_that_was_cut_works_again(create_run):
    run = create_run()
    launcher = run.start_local(
        "--max_steps=80", "--update=async", "--hosts=netns", "--fault=cut:worker:1@step=20,secs=1.5"
    )
    assert launcher.wait(START_SECS) == 0
    cut, restored = events(run)
    assert [cut["event"], restored["event"]] == ["cut", "restore"]
    assert_silence(run, 1.5 - 0.3, until=restored)  # data on its way at the cut still counts


@pytest.mark.parametrize(
    ("update", "fault"),
    repetitions(
        [
            ("sync", "cut:worker:1"),
            ("ssp", "freeze:worker:1"),
            ("all_reduce", "cut:worker:1"),  # its collective stays broken, so all workers are restarted
            ("ssp", "cut:ps:1"),
            ("sync", "freeze:worker:1"),
            ("async", "freeze:ps:0"),
            ("all_reduce", "freeze:worker:1"),
        ],
        every=7,
        first=6,  # `test_recovery.py` freezes tasks of `sync`
    ),
)
def test_a_task_that_was_silent_for_longer_than_a_heartbeat_takes_part_again(create_run, update, fault):
    is_cut = fault.startswith("cut")
    role, index = fault.split(":")[1:]
    if is_cut and hosts_iproute.probe().problem:
        pytest.skip("no shaped hosts here")
    run = create_run(
        num_ps=2 if "ps:1" in fault else 1, flags=(RECOVER, "--heartbeat_timeout_secs=3", f"--update={update}")
    )
    flags = ["--hosts=netns"] if is_cut else []
    # Under ssp the other worker continues while one is frozen, and it must not end first.
    max_steps = 160 if (update, role) == ("ssp", "worker") else 40
    launcher = run.start_local(
        f"--max_steps={max_steps}", "--max_restarts=2", "--step_log", f"--fault={fault}@step=20,secs=10", *flags
    )
    assert launcher.wait(START_SECS) == 0
    summary = run.summary()
    assert {worker["status"] for worker in summary["workers"].values()} == {"done"}
    (over,) = events(run, "restore", "continue")
    logs = "".join(path.read_text() for path in (run.logdir / "logs").glob("*.log"))
    assert re.search(
        f"worker {index} lost: no sign of life for" if role == "worker" else rf"ps-{index} \(.*\) has not answered",
        logs,
    )
    assert bool(summary.get("restarts")) == (update == "all_reduce")
    for name in ("worker-0", "worker-1"):
        assert max(line["wall_time"] for line in run.metrics(name, "train")) > over["wall_time"]
    books = accounting.read(run.logdir, summary["global_step"], is_joined=update not in ("ssp", "async"))
    assert books.is_balanced(run.num_workers, num_kills=1), books
    assert [rollback for rollback in books.rollbacks if update != "all_reduce"] == [], "a silence has cost steps"
    assert run.remaining() == []


def test_wrong_fault_ends_with_2_before_a_run_is_set_up(create_run):
    run = create_run()
    launcher = run.start_local("--fault=kill:worker:2@step=5")
    assert launcher.wait(END_SECS) == USAGE
    assert "worker 2 does not exist; the worker tasks of this cluster are 0 to 1" in launcher.log
    assert not run.logdir.exists()

"""Workers that hold the parameters (`--placement=colocated`): a worker is lost with its share, and never silently."""

from __future__ import annotations

import json
import re
import signal

import pytest

from tests.testing.processes import END_SECS, LOST_SECS, START_SECS, UNLIMITED
from tests.testing.repetitions import repetitions

FAILED = 1
COLOCATED = {"num_ps": 0, "num_workers": 2}
RECOVERS = ("--recover_timeout_secs=120", "--save_checkpoint_steps=10")
EACH_HOLDS = "--layout_option=least_share_bytes=1"  # else worker 0 alone holds so few parameters
# Two convolutions and two dense layers on images of 8x8, halved twice by pooling.
CNN_BYTES = 4 * ((9 * 32 + 32) + (9 * 32 * 64 + 64) + (2 * 2 * 64 * 64 + 64) + (64 * 10 + 10))


def test_half_of_the_parameters_never_leave_the_process_of_a_worker(create_run):
    run = create_run(step_ms=0, **COLOCATED)
    # The bytes of one step may pass before the first count or after the last one: more than 1/200 of them are control
    # messages, so one of 400 steps leaves no sum below that of the tensors.
    num_steps = 400
    flags = ("--model=cnn", "--update=sync", f"--max_steps={num_steps}", "--num_evaluators=1")
    assert run.start_local(*flags).wait(START_SECS) == 0
    assert run.metrics("evaluator-0", "eval")[-1]["global_step"] == num_steps
    figures = run.summary()["workers"].values()
    assert len(figures) == 2
    for one in figures:
        # Half of its gradient goes to the other worker, and half of the parameters for the other worker's step.
        for name in ("push_bytes_per_step", "pull_bytes_per_step"):
            assert CNN_BYTES < one[name] < 1.1 * CNN_BYTES
    config = json.loads((run.logdir / "config.json").read_text(encoding="utf-8"))
    assert config["train"]["placement"] == "colocated"
    assert list(config["cluster"]) == ["worker"]


@pytest.mark.parametrize("update", repetitions(["async", "sync"], first=1))
def test_a_killed_worker_and_a_killed_chief_are_restarted_and_the_run_returns_to_the_checkpoint(create_run, update):
    run = create_run(flags=(*RECOVERS, EACH_HOLDS, f"--update={update}", "--max_steps=80"), **COLOCATED)
    faults = ("--fault=kill:worker:1@step=20", "--fault=kill:chief@step=50")
    launcher = run.start_local("--max_restarts=2", *faults)
    assert launcher.wait(START_SECS) == 0
    assert run.summary()["restarts"] == {"worker-0": 1, "worker-1": 1}
    # The chief returns to a checkpoint when the worker is back, and again in its second process.
    recovered = run.metrics("worker-0", "event")[0]
    assert recovered["global_step"] >= 10 and recovered["rolled_back"] >= 0
    log = (run.logdir / "logs" / "worker-0.log").read_text(encoding="utf-8")
    assert re.search(r"worker-1 .*waiting up to 120 s for it to rejoin", log)
    states = [line["state"] for line in run.metrics("worker-0", "state")]
    restored = [state for state in states if re.search(r"^restored .*, at step [1-9]\d*$", state)]
    assert len(restored) == 2, states
    # The second process of the chief does not know how far the run was, but the other worker does.
    (event,) = [event for event in run.metrics("worker-1", "event") if event["event"] == "recovered"]
    assert event["global_step"] >= 10
    assert event["rolled_back"] == event["reached"] - event["global_step"] >= 0
    assert event["reached"] >= 45  # worker 1 may have seen a few steps less than the launcher, which has killed at 50
    assert run.checkpoint_step() == run.summary()["global_step"] >= 80


@pytest.mark.parametrize("update", repetitions(["async", "sync"], first=1))
def test_a_killed_worker_that_is_not_restarted_is_named_and_nobody_ends_with_0(create_run, update):
    run = create_run(flags=("--recover_timeout_secs=3", EACH_HOLDS, f"--update={update}"), **COLOCATED)
    chief, worker = run.start_all(UNLIMITED)
    run.wait_for_step(10)
    worker.send(signal.SIGKILL)
    assert chief.wait(LOST_SECS) == FAILED
    assert re.search(r"error: worker( 1|-1 was) lost", chief.log)


def test_sync_misses_a_killed_worker_without_a_share_and_names_it(create_run):
    run = create_run(flags=("--recover_timeout_secs=3", "--update=sync"), **COLOCATED)
    chief, worker = run.start_all(UNLIMITED)
    run.wait_for_step(10)
    worker.send(signal.SIGKILL)
    assert chief.wait(LOST_SECS) == FAILED
    assert re.search("error: worker 1 (lost|failed), and update rule sync needs all", chief.log)
    assert run.checkpoint_step() >= 10


def test_async_goes_on_to_the_end_without_a_killed_worker_that_has_no_share(create_run):
    run = create_run(flags=("--update=async", "--heartbeat_timeout_secs=3"), **COLOCATED)
    chief, worker = run.start_all("--max_steps=100")
    run.wait_for_step(10)
    worker.send(signal.SIGKILL)
    assert chief.wait(LOST_SECS) == 0
    summary = run.summary()
    assert (summary["global_step"], summary["workers"]["1"]["status"]) == (100, "failed")
    assert run.metrics("worker-0", "event") == []


@pytest.mark.parametrize(("update", "fault"), [("async", "killed"), ("async", "frozen"), ("sync", "killed")])
def test_a_worker_without_a_share_is_lost_and_rejoins_as_one_beside_ps_tasks_does(create_run, update, fault):
    flags = (*RECOVERS, f"--update={update}", "--heartbeat_timeout_secs=4")
    run = create_run(flags=flags, **COLOCATED)
    chief, worker = run.start_all(UNLIMITED)
    run.wait_for_step(20)
    if fault == "killed":
        worker.send(signal.SIGKILL)
    else:
        worker.freeze()
    chief.wait_for_log("worker 1 lost: ", LOST_SECS)
    lost_at = run.last_step(0)
    if update == "async":
        run.wait_for_step(lost_at + 20, workers=[0])
    if fault == "killed":
        worker = run.start_worker(1, UNLIMITED)
    else:
        worker.thaw()
    run.wait_for_step(max(lost_at, run.last_step(0)) + 20)
    chief.send(signal.SIGTERM)
    assert chief.wait(END_SECS) == 128 + signal.SIGTERM
    assert worker.wait(END_SECS) == FAILED
    states = [line["state"] for line in run.metrics("worker-0", "state")]
    assert states.count("training") == 1, states  # the chief has kept its session
    assert run.metrics("worker-0", "event") == []  # and nothing was rolled back
    steps = [line["global_step"] for line in run.metrics("worker-0", "train")]
    assert steps == sorted(steps)


def test_a_killed_chief_that_is_not_restarted_is_named(create_run):
    run = create_run(**COLOCATED)
    chief, worker = run.start_all(UNLIMITED)
    run.wait_for_step(10)
    chief.send(signal.SIGKILL)
    assert worker.wait(LOST_SECS) == FAILED
    assert "error: worker-0 was lost" in worker.log


@pytest.mark.parametrize("update", repetitions(["async", "sync"]))
def test_a_frozen_worker_is_named_and_all_continue_when_it_thaws(create_run, update):
    flags = (*RECOVERS, EACH_HOLDS, f"--update={update}", "--heartbeat_timeout_secs=3")
    run = create_run(flags=flags, **COLOCATED)
    chief, worker = run.start_all(UNLIMITED)
    run.wait_for_step(10)
    worker.freeze()
    chief.wait_for_log(r"worker-1 \(localhost:\d+\) has not answered for \d+ s", LOST_SECS)
    reached = run.last_step(0)
    worker.thaw()
    run.wait_for_step(reached + 10)
    chief.send(signal.SIGTERM)
    assert chief.wait(END_SECS) == 128 + signal.SIGTERM
    assert worker.wait(END_SECS) == FAILED
    assert run.checkpoint_step() >= reached + 10
    assert all(event["rolled_back"] == 0 for event in run.metrics("worker-0", "event"))


def test_a_frozen_worker_that_stays_so_ends_the_others_and_is_named(create_run):
    run = create_run(flags=("--heartbeat_timeout_secs=3", "--recover_timeout_secs=3", EACH_HOLDS), **COLOCATED)
    chief, worker = run.start_all(UNLIMITED)
    run.wait_for_step(10)
    worker.freeze()
    assert chief.wait(LOST_SECS) == FAILED
    assert "error: worker-1 (localhost:" in chief.log


def test_sigterm_to_a_worker_ends_the_run_with_a_checkpoint(create_run):
    run = create_run(**COLOCATED)
    chief, worker = run.start_all(UNLIMITED)
    run.wait_for_step(10)
    hosts = ("--placement=colocated", f"--worker_hosts={','.join(run.worker_hosts)}", "--isolation=test")
    doctor = run.start_command("doctor", *hosts)
    assert doctor.wait(START_SECS) == 0
    for finding in ("worker-0 training, worker-1 training", "asked on the tasks themselves: 2 connections"):
        assert finding in doctor.log
    worker.send(signal.SIGTERM)
    assert worker.wait(END_SECS) == 128 + signal.SIGTERM
    assert chief.wait(END_SECS) == FAILED
    assert "the job ends because worker-1 was ended by SIGTERM" in chief.log
    assert run.checkpoint_step() >= 10


@pytest.mark.full
def test_an_error_in_a_worker_ends_all_with_a_checkpoint_from_which_the_launcher_continues(create_run):
    run = create_run(flags=("--recover_timeout_secs=120", "--update=async", "--max_steps=100"), **COLOCATED)
    launcher = run.start_local("--max_restarts=2", "--fault=raise:worker:1@step=30")
    assert launcher.wait(START_SECS) == 0
    assert run.summary()["restarts"] == {"worker-0": 1, "worker-1": 1}
    assert run.summary()["global_step"] >= 100
    assert run.time_of_state("worker-0", r"^restored .*, at step [1-9]\d+$")


def test_a_worker_that_is_done_serves_its_share_until_the_others_are_done(create_run):
    data = ("--num_epochs=1", "--max_steps=none")
    run = create_run(flags=data, **COLOCATED)
    chief, worker = run.start_worker(0, "--straggler=det:mean_ms=100"), run.start_worker(1, "--straggler=det:mean_ms=5")
    worker.wait_for_log("worker 1 done")
    assert worker.exit_code is None
    assert [chief.wait(START_SECS), worker.wait(END_SECS)] == [0, 0]
    assert run.summary()["workers"]["1"]["status"] == "done"

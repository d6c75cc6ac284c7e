"""A model with stages on two workers: losses as on one worker; a lost stage ends the run or rejoins it."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest

from tests.testing.processes import END_SECS, LOST_SECS, START_SECS, UNLIMITED
from tests.testing.repetitions import repetitions

SPLIT = ("--model=mlp", "--model_option=num_stages=2", "--placement=model_parallel")


def losses(run):
    lines = (run.logdir / "steps" / "worker-0.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["loss"] for line in lines]


SMALL = ("--dataset_option=num_train=2000", "--dataset_option=num_test=70", "--model_option=dim=4")
MODELS = {
    "lstm_lm": ("--dataset=markov", *SMALL, "--model_option=vocab_size=11", "--model_option=units=8"),
    "transformer": ("--dataset=numbers", *SMALL, "--model_option=num_heads=2", "--model_option=num_layers=1"),
}


@pytest.mark.parametrize("model", repetitions(list(MODELS)))
def test_losses_equal_those_of_the_model_on_one_worker(create_run, model):
    split, whole = create_run(step_ms=0), create_run(num_workers=1, step_ms=0)
    flags = (f"--model={model}", *MODELS[model], "--batch_size=8", "--max_steps=10", "--step_log", "--seed=3")
    for run, more in ((split, SPLIT[1:]), (whole, ())):
        assert run.start_local(*flags, *more).wait(START_SECS) == 0
    np.testing.assert_allclose(losses(split), losses(whole), rtol=0, atol=1e-5)
    assert len(losses(split)) == 10
    assert set(split.summary()["workers"]) == {"0"}
    assert split.metrics("worker-1", "state")[-1]["state"] == "done"


def test_a_killed_stage_ends_the_run_with_a_message(create_run):
    run = create_run(flags=SPLIT)
    ps, trains, computes = run.start_all(UNLIMITED)
    run.wait_for_step(5, workers=[0])
    computes.send(signal.SIGKILL)
    assert trains.wait(LOST_SECS) == 1
    assert "worker-1 failed, and worker-0 needs it for a stage" in trains.log
    assert ps.wait(LOST_SECS) == 1


def test_a_restarted_stage_rejoins_and_no_step_is_lost(create_run):
    run = create_run(flags=(*SPLIT, "--recover_timeout_secs=120", "--max_steps=100"))
    ps, trains, computes = run.start_all()
    run.wait_for_step(5, workers=[0])
    computes.send(signal.SIGKILL)
    trains.wait_for_log("waiting up to 120 s for it to rejoin", LOST_SECS)
    again = run.start_worker(1)
    assert [task.wait(START_SECS) for task in (trains, again, ps)] == [0, 0, 0]
    (recovered,) = run.metrics("worker-0", "event")
    assert recovered["rolled_back"] == 0
    assert run.summary()["global_step"] == 100


def test_a_frozen_stage_is_named_and_continues_when_it_thaws(create_run):
    run = create_run(flags=(*SPLIT, "--heartbeat_timeout_secs=3", "--recover_timeout_secs=120"))
    ps, trains, computes = run.start_all(UNLIMITED)
    run.wait_for_step(5, workers=[0])
    computes.freeze()
    ps.wait_for_log("worker 1 lost: no sign of life for", LOST_SECS)
    trains.wait_for_log("worker-1 lost, and worker-0 needs it for a stage", LOST_SECS)
    reached = run.last_step(0)
    computes.thaw()
    run.wait_for_step(reached + 50, workers=[0])
    for event in run.metrics("worker-0", "event"):
        assert event["rolled_back"] == 0
    trains.send(signal.SIGTERM)
    assert trains.wait(END_SECS) == 128 + signal.SIGTERM
    assert computes.wait(LOST_SECS) == 1
    assert "worker 0 interrupted: ended by SIGTERM" in computes.log
    assert run.checkpoint_step() >= reached + 50


def test_the_worker_that_trains_is_restarted_and_its_stage_waits_for_it(create_run):
    run = create_run(flags=(*SPLIT, "--recover_timeout_secs=120", "--max_steps=100"))
    ps, trains, computes = run.start_all()
    run.wait_for_step(5, workers=[0])
    trains.send(signal.SIGKILL)
    ps.wait_for_log("worker 0 lost", LOST_SECS)
    again = run.start_worker(0)
    assert [task.wait(START_SECS) for task in (again, computes, ps)] == [0, 0, 0]
    assert run.summary()["global_step"] == 100

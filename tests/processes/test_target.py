"""`--target_metric` ends a run of real processes; every role exits with 0."""

from __future__ import annotations

import json

import pytest

from tests.testing.processes import START_SECS, UNLIMITED
from tests.testing.repetitions import repetitions

USAGE = 2
# Near this value the test loss falls at each update. An accuracy may be lower again in the last checkpoint, and then a
# second run rightly trains further.
TARGET = "--target_metric=loss<=0.85"


@pytest.mark.parametrize("update", repetitions(["ssp", "sync", "all_reduce", "async", "easgd"], every=5))
def test_all_end_once_a_checkpoint_reaches_the_target_and_a_second_run_ends_at_once(create_run, update):
    run = create_run(
        num_workers=2, step_ms=20, flags=(UNLIMITED, f"--update={update}", TARGET, "--save_checkpoint_secs=1")
    )
    tasks = run.start_all()
    assert [task.wait(START_SECS) for task in tasks] == [0] * len(tasks)
    summary = run.summary()
    reached = summary["target_metric"]
    assert reached["is_reached"] and reached["value"] <= 0.85
    assert 0 < reached["global_step"] <= summary["global_step"] == run.checkpoint_step()
    assert {worker["status"] for worker in summary["workers"].values()} == {"done"}
    assert f"loss<=0.85 is reached: {reached['value']:.4g} at step {reached['global_step']}" in tasks[1].log
    for worker in tasks[1:]:
        assert "by the target metric" in worker.log

    tasks = run.start_all()
    assert [task.wait(START_SECS) for task in tasks] == [0] * len(tasks)
    assert run.summary()["global_step"] == summary["global_step"], "the second run has trained further"


def test_a_target_that_is_not_reached_is_not_a_failure(create_run):
    run = create_run()
    launcher = run.start_local("--max_steps=60", "--target_metric=loss<=-1", "--save_checkpoint_steps=20")
    assert launcher.wait(START_SECS) == 0
    assert run.summary()["target_metric"] == {"wanted": "loss<=-1", "is_reached": False}
    lines = (run.logdir / "metrics" / "worker-0.jsonl").read_text().splitlines()
    evaluated = [line["global_step"] for line in map(json.loads, lines) if line["kind"] == "eval"]
    assert evaluated[-1] == run.summary()["global_step"]


def test_a_metric_that_the_model_lacks_ends_with_2_before_training(create_run):
    run = create_run()
    launcher = run.start_local("--max_steps=60", "--target_metric=acuracy>=0.9")
    assert launcher.wait(START_SECS) == USAGE
    assert "model 'softmax' has no test metric 'acuracy'; did you mean accuracy?" in launcher.log
    assert run.remaining() == [] and not list(run.logdir.glob("checkpoints/*"))

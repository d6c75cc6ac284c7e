"""One run of a setting: its outcome from the summary, and its failures."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks import training_outcome
from benchmarks.settings import RULES
from ps_trainer.errors import RunError

SUMMARY = {
    "status": "done",
    "global_step": 400,
    "examples_per_sec": 1000.0,
    "metrics": {"loss": 0.1, "accuracy": 0.975},
    "workers": {
        "0": {
            "local_steps": 100,
            "staleness": {"0": 40, "2": 60},
            "gradients_dropped": 5,
            "push_bytes_per_step": 2000.0,
            "push_bytes_computed": 1900.0,
            "pull_bytes_per_step": 3000.0,
        },
        "1": {
            "local_steps": 300,
            "staleness": {"1": 300},
            "gradients_dropped": 7,
            "push_bytes_per_step": 4000.0,
            "push_bytes_computed": 1900.0,
            "pull_bytes_per_step": 5000.0,
        },
    },
}


def test_outcome_weighs_the_workers_by_their_steps():
    outcome = training_outcome.outcome(SUMMARY, wall_secs=20.0)
    assert outcome == training_outcome.TrainingOutcome(
        global_step=400,
        local_steps=(100, 300),
        accuracy=0.975,
        staleness_mean=pytest.approx((40 * 0 + 60 * 2 + 300 * 1) / (40 + 60 + 300)),
        gradients_dropped=5 + 7,
        push_bytes_per_step=pytest.approx((100 * 2000 + 300 * 4000) / 400),
        push_bytes_computed=pytest.approx(1900),
        pull_bytes_per_step=pytest.approx((100 * 3000 + 300 * 5000) / 400),
        examples_per_sec=1000.0,
        wall_secs=20.0,
    )


def test_values_that_a_run_did_not_measure_are_none():
    bare = {**SUMMARY, "workers": {"0": {"local_steps": 400, "staleness": {}}}}
    outcome = training_outcome.outcome(bare, wall_secs=20.0)
    assert outcome.staleness_mean is outcome.gradients_dropped is outcome.push_bytes_per_step is None
    assert outcome.local_steps == (400,)


@pytest.mark.process
def test_rejected_run_fails_with_the_end_of_its_output(tmp_path):
    wrong = dataclasses.replace(RULES["async"], update="no_such_rule")
    with pytest.raises(RunError, match="(?s)exit code 2.*no_such_rule"):
        training_outcome.train(wrong, tmp_path / "run", deadline_secs=120)


@pytest.mark.process
def test_slow_run_is_ended_and_fails(tmp_path):
    with pytest.raises(RunError, match="not finished after 0.2 s"):
        training_outcome.train(RULES["async"], tmp_path / "run", deadline_secs=0.2)

"""The evaluator task and the command `evaluate`, on the same run."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.testing.processes import START_SECS, ClusterRun

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterRun]:
    """A run with an evaluator, at its end."""
    with ClusterRun(tmp_path_factory.mktemp("finished"), num_workers=1) as run:
        launcher = run.start_local("--num_evaluators=1", "--save_checkpoint_steps=150", "--max_steps=300")
        assert launcher.wait(START_SECS) == 0
        yield run


def test_evaluator_evaluates_the_checkpoints_and_ends_with_the_run(finished):
    evaluations = {line["global_step"]: line["metrics"] for line in finished.metrics("evaluator-0", "eval")}
    assert set(evaluations) == {150, 300}
    assert evaluations[300] == pytest.approx(finished.summary()["metrics"])
    assert evaluations[300]["loss"] < evaluations[150]["loss"]
    assert [line["state"] for line in finished.metrics("evaluator-0", "state")][-1] == "done"
    assert finished.remaining() == []


def test_evaluate_prints_the_metrics_of_the_last_checkpoint(finished):
    task = finished.start_command("evaluate", f"--logdir={finished.logdir}", "--model=softmax", "--dataset=digits")
    assert task.wait(START_SECS) == 0
    figures = dict(re.findall(r"(\w+) (\d+\.\d{4})", task.log.splitlines()[-1]))
    assert figures == {name: f"{value:.4f}" for name, value in finished.summary()["metrics"].items()}


def test_evaluate_with_another_model_says_what_does_not_fit(finished):
    task = finished.start_command("evaluate", f"--logdir={finished.logdir}", "--model=mlp", "--dataset=digits")
    assert task.wait(START_SECS) == 2
    assert "model variable" in task.log and "evaluate with the --model" in task.log

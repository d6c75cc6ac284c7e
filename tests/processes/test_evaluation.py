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
    assert set(evaluations) == {0, 150, 300}
    assert evaluations[300] == pytest.approx(finished.summary()["metrics"])
    assert evaluations[300]["loss"] < evaluations[150]["loss"]
    assert [line["state"] for line in finished.metrics("evaluator-0", "state")][-1] == "done"
    assert finished.remaining() == []


def test_evaluate_prints_the_metrics_of_the_last_checkpoint_and_refuses_another_model(finished):
    flags = (f"--logdir={finished.logdir}", "--dataset=digits")
    fitting = finished.start_command("evaluate", *flags, "--model=softmax", log_name="evaluate-softmax")
    other = finished.start_command("evaluate", *flags, "--model=mlp", log_name="evaluate-mlp")
    assert fitting.wait(START_SECS) == 0
    figures = dict(re.findall(r"(\w+) (\d+\.\d{4})", fitting.log.splitlines()[-1]))
    assert figures == {name: f"{value:.4f}" for name, value in finished.summary()["metrics"].items()}
    assert other.wait(START_SECS) == 2
    assert "model variable" in other.log and "evaluate with the --model" in other.log

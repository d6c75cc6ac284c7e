"""The table of models: the bounds of a run, and the result of a run that misses one."""

from __future__ import annotations

import json

import pytest

from benchmarks import models
from ps_trainer import component_tables
from ps_trainer.errors import RunError


@pytest.fixture
def launched(monkeypatch):
    """Model -> the flags of its run; model -> the metrics of its run, which fails if there are none."""
    started, metrics = {}, {}

    def run(flags, logdir, deadline_secs, **_):
        model = next(flag.partition("=")[2] for flag in flags if flag.startswith("--model="))
        started[model] = list(flags)
        if model not in metrics:
            raise RunError("exit code 1")
        logdir.mkdir(parents=True)
        summary = {"metrics": metrics[model], "global_step": 7, "examples_per_sec": 123.4}
        logdir.joinpath("summary.json").write_text(json.dumps(summary))
        return 9.0

    monkeypatch.setattr(models, "run_local", run)
    return started, metrics


def test_every_model_has_a_bound_that_can_be_missed():
    assert {goal.model or name for name, goal in models.GOALS.items()} <= set(component_tables.MODELS.names())
    for goal in models.GOALS.values():
        assert not (goal.is_met(-1e9) and goal.is_met(1e9))


def test_figures_are_written_and_a_missed_bound_or_a_failed_run_is_exit_code_1(launched, tmp_path, capsys):
    started, metrics = launched
    metrics |= {"lenet": {"accuracy": 0.99, "loss": 0.1}, "vgg": {"accuracy": 0.2, "loss": 2.0}}
    assert models.main(["--models=lenet,vgg,resnet", f"--out_dir={tmp_path / 'out'}"]) == 1
    assert list(started) == ["lenet", "vgg", "resnet"]
    assert {"--num_ps=1", "--num_workers=2"} <= set(started["lenet"])
    rows = json.loads((tmp_path / "out" / "results.json").read_text())["rows"]
    assert [(row["model"], row["is_met"]) for row in rows] == [("lenet", True), ("vgg", False), ("resnet", False)]
    output = capsys.readouterr()
    assert "| `lenet` | accuracy ≥ 0.98 | 0.99 | 7 | 123 | 9 |" in output.out
    assert "2 (missed)" in output.out
    assert "error: resnet failed: exit code 1" in output.err
    assert (tmp_path / "out" / "results.csv").read_text().count("\n") == 4


def test_the_input_files_of_a_run_are_made_before_it(launched, tmp_path, monkeypatch):
    monkeypatch.setitem(
        models.GOALS,
        "tuned",
        models.ModelGoal(model="vgg", init_from="lenet", flags=(), metric="loss", most=1.0, why=""),
    )
    started, metrics = launched
    metrics |= {"lenet": {"accuracy": 0.99}, "vgg": {"loss": 0.5}}
    out = tmp_path / "out"
    assert models.main(["--models=tuned", f"--out_dir={out}"]) == 0
    assert list(started) == ["lenet", "vgg"]
    assert f"--init_from={out / 'lenet'}" in started["vgg"]
    assert not any(flag.startswith("--init_from") for flag in started["lenet"])


def test_all_bounds_reached_is_exit_code_0(launched, tmp_path):
    launched[1]["lenet"] = {"accuracy": 0.98}
    assert models.main(["--models=lenet", f"--out_dir={tmp_path / 'out'}"]) == 0


def test_an_unknown_model_is_named(capsys):
    with pytest.raises(SystemExit) as exit_info:
        models.main(["--models=lenet,nonsense"])
    assert exit_info.value.code == 2
    assert "nonsense" in capsys.readouterr().err

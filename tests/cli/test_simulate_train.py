"""Tests of `simulate --model`: training along the schedule, its printed text and its files."""

from __future__ import annotations

import csv
import json
import pathlib

import pytest

from ps_trainer.cli import main

ROWS = ["--model=tests.testing.components:Dense", "--dataset=tests.testing.components:Rows", "--batch_size=4"]
CLUSTER = ["--num_workers=3", "--compute=exp", "--max_updates=40"]


def run(*args: str) -> int:
    return main.main(["ps_trainer", "simulate", *args])


def table(path: pathlib.Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_trains_along_the_schedule(tmp_path, capsys):
    rule = ["--update=softsync", "--update_option=splits=3", "--optimizer=momentum", "--learning_rate=0.05"]
    output = ["--dataset_option=has_test=true", "--evaluate_every=15", f"--out_dir={tmp_path}", "--steps"]
    assert run(*ROWS, *CLUSTER, *rule, *output) == 0
    text = capsys.readouterr().out
    assert "throughput" in text
    assert "components:Rows: momentum, learning rate 0.05 (constant), batch size 4 per worker\n" in text
    assert "after 40 updates" in text and "accuracy" in text

    curve, steps = table(tmp_path / "curve.csv"), table(tmp_path / "steps.csv")
    assert list(curve[0]) == ["global_step", "secs", "steps", "loss", "accuracy"]
    assert [int(row["global_step"]) for row in curve] == list(range(1, 41))
    closing = {int(step["gs_applied"]): float(step["t_push_done"]) for step in steps if step["gs_applied"]}
    assert [float(row["secs"]) for row in curve] == [closing[version] for version in range(1, 41)]
    assert int(curve[-1]["steps"]) == len(steps)
    evaluations = table(tmp_path / "evaluations.csv")
    assert [int(row["global_step"]) for row in evaluations] == [15, 30, 40]

    result = json.loads((tmp_path / "summary.json").read_text())
    assert result["settings"]["learning_rate"] == 0.05 and result["settings"]["update"] == "softsync"
    assert result["training"]["test"]["loss"] == float(evaluations[-1]["loss"])
    assert result["training"]["last_loss"] == float(curve[-1]["loss"])
    assert not result["training"]["has_diverged"]


def test_trains_on_a_dataset_without_test_examples(tmp_path, capsys):
    assert run(*ROWS, *CLUSTER, f"--out_dir={tmp_path}") == 0
    assert "no examples; after 40 updates" in capsys.readouterr().out
    assert json.loads((tmp_path / "summary.json").read_text())["training"]["test"] == {}
    assert [list(row) for row in table(tmp_path / "evaluations.csv")] == [["global_step", "secs"]]


def test_reports_that_a_run_has_diverged(tmp_path, capsys):
    assert run(*ROWS, *CLUSTER, "--learning_rate=3e38", f"--out_dir={tmp_path}") == 0
    assert "is not finite" in capsys.readouterr().out
    training = json.loads((tmp_path / "summary.json").read_text())["training"]
    assert training["has_diverged"] and training["num_updates"] < 40
    assert training["last_loss"] in ("nan", "inf")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--learning_rate=0.1"], "--learning_rate is about training, and nothing is trained without --model;"),
        ([*ROWS, "--evaluate_every=-1"], "--evaluate_every=-1: evaluate_every must be at least 0"),
        (["--model=mpl"], "did you mean mlp"),
        ([*ROWS, "--learning_rate=0"], "--learning_rate=0.0: learning_rate must be above 0"),
        ([*ROWS, "--update=easgd", "--optimizer=adam"], "--optimizer=adam: --update=easgd applies no gradients"),
        ([*ROWS, "--update=dc_asgd", "--model=tests.testing.components:Embedded"], "cannot train embedding tables"),
        (
            [*ROWS, "--num_workers=61", "--dataset=synthetic", "--dataset_option=num_train=240"],
            "exceeds the 3 training",
        ),
    ],
)
def test_rejects_wrong_input_before_the_simulation(capsys, args, expected):
    assert run(*args) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = [line for line in captured.err.splitlines() if line.startswith("error: ")]
    assert expected in line


def test_a_model_that_a_run_would_refuse_is_refused_before_the_simulation(capsys):
    assert run(*ROWS, *CLUSTER, "--model=tests.processes.wrong_models:Optimizer", "--dataset=digits") == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "build" in captured.err

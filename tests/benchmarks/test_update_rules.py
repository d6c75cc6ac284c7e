"""The command that trains every setting: flags, order, files and exit code; these tests train nothing."""

from __future__ import annotations

import csv
import json
import re

import pytest

from benchmarks import update_rules
from benchmarks.settings import RULES, TRANSFORMS, TrainingSetting
from benchmarks.trained_rows import BASELINE, RuleRow, TransformRow, trained_row
from benchmarks.training_outcome import TrainingOutcome
from ps_trainer.errors import RunError

SETTING = TrainingSetting(
    max_steps=400, learning_rate=0.05, why="a test", update="ssp", options=("staleness=3",), transforms=("sign",)
)
OUTCOME = TrainingOutcome(
    global_step=400,
    local_steps=(190, 210),
    accuracy=0.975,
    staleness_mean=1.25,
    gradients_dropped=None,
    push_bytes_per_step=1500.0,
    push_bytes_computed=1000.0,
    pull_bytes_per_step=144_000.0,
    examples_per_sec=1000.0,
    wall_secs=20.4,
)


def cells(markdown: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in markdown.splitlines()]


def test_default_is_all_rules_and_all_transforms_once():
    plan = update_rules.parse_plan([])
    assert (plan.rules, plan.transforms, plan.repetitions) == (list(RULES), list(TRANSFORMS), 1)


def test_flags_choose_the_runs():
    plan = update_rules.parse_plan(["--rules=sync,async", "--transforms=", "--repetitions=3"])
    assert (plan.rules, plan.transforms, plan.repetitions) == (["sync", "async"], [], 3)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--rules=no_rule", "unknown 'no_rule'; known: async, "),
        ("--transforms=no_transform", "unknown 'no_transform'; known: none"),
        ("--repetitions=0", "--repetitions: 0 must be at least 1"),
        ("--deadline_secs=0", "--deadline_secs: 0 must be more than 0"),
    ],
)
def test_wrong_flag_ends_with_a_message(flag, message, capsys):
    with pytest.raises(SystemExit) as ended:
        update_rules.parse_plan([flag])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_row_is_the_median_of_the_repetitions_with_the_lowest_accuracy():
    others = [OUTCOME._replace(accuracy=accuracy, wall_secs=secs) for accuracy, secs in ((0.98, 30.0), (0.96, 10.0))]
    row = trained_row(RuleRow, "ssp", SETTING, [OUTCOME, *others])
    assert (row.test_accuracy, row.test_accuracy_min, row.wall_secs, row.repetitions) == (0.975, 0.96, 20.4, 3)
    assert (row.local_steps, row.gradients_dropped) == ("190/210", None)


def test_rules_table_has_flags_and_figures_in_units():
    text = RuleRow.table([trained_row(RuleRow, "ssp", SETTING, [OUTCOME])])
    tables = [cells(part) for part in re.split(r"^\w[\w ]+:\n\n", text, flags=re.MULTILINE)[1:]]
    (_, _, result), (_, _, costs) = [[row for row in table if row != [""]] for table in tables]
    assert result == ["`ssp`", "`staleness=3 sign`", "momentum 0.05", "2", "400", "97.5 %", "20"]
    assert costs == ["`ssp`", "190/210", "1.25", "–", f"{1500 / 1000:.1f}", f"{144_000 / 1000:.1f}", "1000"]
    assert {len(row) for row in tables[0] if row != [""]} == {len(row) for row in tables[1]} == {7}


def test_row_has_the_flags_that_a_user_types():
    row = trained_row(RuleRow, "ssp", SETTING, [OUTCOME])
    assert row.flags == (
        "--update=ssp --update_option=staleness=3 --gradient_transform=sign --optimizer=momentum"
        " --learning_rate=0.05 --max_steps=400"
    )


def test_the_baseline_has_a_setting():
    assert BASELINE in TRANSFORMS


def test_transforms_table_compares_measured_bytes_with_the_baseline():
    base = trained_row(TransformRow, "none", SETTING, [OUTCOME._replace(push_bytes_per_step=150_000.0)])
    small = trained_row(TransformRow, "sign", SETTING, [OUTCOME])
    unmeasured = trained_row(TransformRow, "cast", SETTING, [OUTCOME._replace(push_bytes_per_step=None)])
    _, _, *rows = cells(TransformRow.table([base, small, unmeasured]))
    assert [row[5] for row in rows] == ["1.0", f"{150_000 / 1500:.1f}", "–"]
    assert [row[3] for row in rows] == ["150.00", "1.50", "–"]


def test_results_are_written_and_a_failed_run_has_no_row(tmp_path, monkeypatch, capsys):
    def train(setting, folder, deadline_secs):
        folder.mkdir(parents=True)
        if setting.update == "sync":
            raise RunError("out of luck")
        return OUTCOME

    monkeypatch.setattr(update_rules, "train", train)
    out = tmp_path / "out"
    flags = ["--rules=async,sync", "--transforms=none", "--repetitions=2", f"--out_dir={out}"]
    assert update_rules.main(flags) == 1
    captured = capsys.readouterr()
    assert "rules-sync-0 failed: out of luck" in captured.err
    results = json.loads((out / "results.json").read_text())
    assert [(row["name"], row["repetitions"]) for row in results["rules"]] == [("async", 2)]
    with (out / "results.csv").open(newline="") as file:
        assert [row["name"] for row in csv.DictReader(file)] == ["async", "none"]
    text = (out / "results.md").read_text()
    assert text in captured.out
    assert "| `async` |" in text
    assert sorted(path.name for path in (out / "runs").iterdir()) == [
        "rules-async-0",
        "rules-async-1",
        "rules-sync-0",
        "transforms-none-0",
        "transforms-none-1",
    ]


def test_all_runs_well_is_exit_code_0(tmp_path, monkeypatch):
    monkeypatch.setattr(update_rules, "train", lambda *args: OUTCOME)
    assert update_rules.main(["--rules=async", "--transforms=", f"--out_dir={tmp_path / 'out'}"]) == 0

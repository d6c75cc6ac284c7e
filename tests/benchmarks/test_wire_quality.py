"""The comparison of 16-bit messages and biased transforms with float32: its runs, statistics and published table."""

from __future__ import annotations

import csv
import dataclasses
import json
import math

import numpy as np
import pytest

from benchmarks import wire_quality
from benchmarks.contenders import REPOSITORY
from benchmarks.wire_quality import TASKS, WIRES, Trained, WireRow, row_of, verdict_of
from ps_trainer.experiments.toolkit.statistics import Interval
from ps_trainer.gradients import transform_list
from ps_trainer.gradients.base import Feedback

PUBLISHED = REPOSITORY / "benchmarks" / "results" / "wire_quality.csv"
T_90 = 2.92  # Student's t of 2 degrees of freedom, 95 %


def test_each_transform_that_a_run_gives_feedback_is_compared_without_it():
    compared = {}
    for name, wire in WIRES.items():
        transforms = transform_list.load(wire.transforms)
        if any(transform.feedback is Feedback.NEEDED for transform in transforms):
            has_feedback = transforms[0].name == "error_feedback"
            assert has_feedback == name.endswith("_feedback")
            compared.setdefault(transforms[-1].name, set()).add(has_feedback)
    assert compared.keys() == {"top_k", "threshold", "random_k", "one_bit", "sign", "power_sgd"}
    assert all(both == {False, True} for both in compared.values())


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.009, 0.009, "equivalent"),
        (-0.009, -0.001, "equivalent"),
        (-0.011, -0.001, "worse"),
        (0.001, 0.02, "better"),
        (-0.011, 0.001, "open"),
    ],
)
def test_verdict_is_that_of_two_one_sided_tests(low, high, verdict):
    assert verdict_of(Interval(low, high), 0.01) == verdict


def test_differences_are_paired_and_a_smaller_loss_is_better():
    base = [Trained(value, 8.0) for value in (1.0, 2.0, 3.0)]
    row = row_of("text", "push", [Trained(value, 4.0) for value in (0.9, 1.9, 2.8)], base)
    assert TASKS["text"].is_loss
    gains = [0.1, 0.1, 0.2]
    half = T_90 * np.std(gains, ddof=1) / math.sqrt(3)
    assert (row.mean, row.push_bytes) == (pytest.approx((0.9 + 1.9 + 2.8) / 3), 4.0)
    assert (row.gain_low, row.gain, row.gain_high) == pytest.approx((0.4 / 3 - half, 0.4 / 3, 0.4 / 3 + half))
    assert (row.verdict, row.by_seed) == ("better", "0.9/1.9/2.8")
    assert row_of("digits", "push", [Trained(value, 4.0) for value in (0.9, 1.9, 2.8)], base).verdict == "worse"


def test_a_failed_training_has_no_mean_and_float32_no_verdict():
    base = [Trained(1.0, None), Trained(2.0, None)]
    failed = row_of("digits", "one_bit", [Trained(math.nan, None), Trained(1.0, None)], base)
    assert (failed.mean, failed.gain, failed.verdict, failed.by_seed) == (None, None, "failed", "nan/1")
    assert (row_of("digits", "float32", base, base).verdict, row_of("digits", "float32", base, base).mean) == ("", 1.5)


def test_table_has_a_line_for_each_wire_and_a_column_for_each_task():
    base = [Trained(0.5, 8.0), Trained(0.7, 8.0)]
    better = [Trained(0.75, 4.0), Trained(0.95, 4.0)]
    rows = [
        row_of(task, wire, of, base)
        for task in ("digits", "text")
        for wire, of in (("float32", base), ("push", better))
    ]
    head, _, first, second = [line.strip("| ").split(" | ") for line in WireRow.table(rows).splitlines()]
    assert head == ["wire", "digits: accuracy ± 0.01", "text: bits_per_symbol ± 0.02", "coding ms"]
    assert first[0] == "`float32`"
    assert first[1].startswith("0.6000 (")
    assert second == [
        "`push`",
        *(
            f"{sign}0.2500 ({sign}0.2500 to {sign}0.2500) {verdict}"
            for sign, verdict in (("+", "better"), ("-", "worse"))
        ),
        "0.0",
    ]


def test_trains_with_the_given_messages_and_repeats_with_the_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(wire_quality, "_STEPS", 3)
    # The accuracy after 3 steps would hardly tell two trainings apart.
    monkeypatch.setitem(TASKS, "digits", dataclasses.replace(TASKS["digits"], model="mlp", metric="loss"))
    out = tmp_path / "out"
    assert wire_quality.main(["--tasks=digits", "--wires=both", "--seeds=2", f"--out_dir={out}"]) == 0
    rows = json.loads((out / "results.json").read_text())["rows"]
    assert [(row["wire"], row["transforms"], row["pull_dtype"]) for row in rows] == [
        ("float32", "", "float32"),
        ("both", "cast", "bfloat16"),
    ]
    assert rows[1]["push_bytes"] == pytest.approx(rows[0]["push_bytes"] / 2, rel=1e-3)
    assert rows[0]["by_seed"] != rows[1]["by_seed"]
    assert len({*rows[0]["by_seed"].split("/")}) == 2


def test_the_published_rows_have_each_wire_for_all_tasks_and_the_verdicts_of_their_intervals():
    with PUBLISHED.open(newline="") as file:
        rows = list(csv.DictReader(file))
    wires = {row["wire"] for row in rows}
    assert wires <= WIRES.keys()
    assert sorted((row["task"], row["wire"]) for row in rows) == sorted(
        (task, wire) for task in TASKS for wire in wires
    )
    for row in rows:
        assert float(row["margin"]) == TASKS[row["task"]].margin
        assert len(row["by_seed"].split("/")) >= 5
        if row["gain_low"]:
            gain = Interval(float(row["gain_low"]), float(row["gain_high"]))
            assert row["verdict"] == verdict_of(gain, float(row["margin"]))

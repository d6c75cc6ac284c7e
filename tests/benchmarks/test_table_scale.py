"""The comparison of tables of two sizes: order of the runs, figures of a run, and the ratio of the steps."""

from __future__ import annotations

import csv
import json
import pathlib
import types

import numpy as np
import pytest

from benchmarks import table_scale
from benchmarks.median_bounds import median_bounds
from ps_trainer.checkpoints import writer
from tests.testing.step_records import log_of, step_record

BENCHMARKS = pathlib.Path(table_scale.__file__).parent
BEGIN = 1000.0


@pytest.fixture
def runs(monkeypatch):
    """Runs that took 2 ms a step with the large table and 1 ms with the small one; returns the rows of each run."""
    made = []

    def run_local(flags, logdir, deadline_secs, *, cwd):
        num_rows = int(next(flag for flag in flags if "num_rows" in flag).rpartition("=")[2])
        secs = 0.002 if num_rows == 1000 else 0.001
        made.append(num_rows)
        (logdir / "steps").mkdir(parents=True, exist_ok=True)
        begin = BEGIN + 10_000 * len(made)
        for worker in range(2):
            # The other worker is later, and both make every second global step.
            ends = [(step, begin + 0.0005 * worker + secs * step) for step in range(1, 400)]
            steps = [step_record(worker=worker, t_end=end, wall_time=end, global_step=2 * step) for step, end in ends]
            (logdir / "steps" / f"worker-{worker}.jsonl").open("a").write(log_of(steps))
        values = {"table": np.ones([num_rows, 4], np.float32)}
        if made.count(num_rows) % 2:  # the run before the restart
            # Both files are younger than the steps, so the save of step 700 lasts until the last step.
            for step in (700, 799):
                writer.write(logdir / "checkpoints", step, values | {"global_step": np.int64(step)})
        return 1.0

    monkeypatch.setattr(table_scale, "run_local", run_local)
    now = lambda: BEGIN + 10_000 * (len(made) + 1) - 5  # noqa: E731
    monkeypatch.setattr(table_scale, "time", types.SimpleNamespace(time=now))
    return made


def test_runs_are_paired_and_the_ratio_is_that_of_the_steps(tmp_path, runs):
    argv = ["--rows=1000", "--small_rows=100", "--repetitions=2", f"--out_dir={tmp_path / 'out'}"]
    assert table_scale.main(argv) == 0
    assert runs == [1000, 1000, 100, 100, 100, 100, 1000, 1000]
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [(row["num_rows"], row["repetition"]) for row in found["rows"]] == [(1000, 1), (100, 1), (100, 2), (1000, 2)]
    assert found["step_ratio"] == {
        "median": pytest.approx(2),
        "low": pytest.approx(2),
        "high": pytest.approx(2),
        "confidence": 0.5,
        "pairs": 2,
    }
    row = found["rows"][0]
    assert row["step_ms"] == pytest.approx(2)
    # The run begins 5 s before the first step, and the later worker counts.
    assert [row["first_step_secs"], row["restore_secs"]] == [pytest.approx(5.0025, abs=0.001)] * 2
    assert row["kept_rate"] == pytest.approx(1, abs=0.05)
    assert row["checkpoint_mb"] > 1000 * 4 * 4 / 1e6
    assert not (tmp_path / "out" / "1000-1" / "checkpoints").exists()


def test_a_shorter_run_has_as_many_steps_before_its_save_as_after_it(tmp_path, monkeypatch, runs):
    asked, run_local = [], table_scale.run_local

    def noted(flags, *args, **options):
        asked.append([flag for flag in flags if flag.startswith(("--max_steps", "--save_checkpoint_steps"))])
        return run_local(flags, *args, **options)

    monkeypatch.setattr(table_scale, "run_local", noted)
    argv = ["--rows=1000", "--small_rows=100", "--repetitions=1", "--steps=1200", f"--out_dir={tmp_path / 'out'}"]
    assert table_scale.main(argv) == 0
    assert asked[0] == asked[2] == ["--max_steps=2399", "--save_checkpoint_steps=1200"]


def test_the_page_has_the_ratio_of_the_stored_pairs():
    with (BENCHMARKS / "results" / "table_scale.csv").open(newline="") as file:
        step_ms = {(row["num_rows"], row["repetition"]): float(row["step_ms"]) for row in csv.DictReader(file)}
    ratios = [ms / step_ms["100000", pair] for (num_rows, pair), ms in step_ms.items() if num_rows == "10000000"]
    ratio = median_bounds(ratios)
    assert len(ratios) == 5
    assert (
        f"takes {ratio.median:.2f} times as long as one with 100,000** (median of 5 pairs;"
        f" {ratio.interval_text('.2f')})."
    ) in " ".join((BENCHMARKS / "README.md").read_text(encoding="utf-8").split())

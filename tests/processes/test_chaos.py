"""Short forms of the chaos and soak drivers: real tasks are killed at random, and the drivers report no fault."""

from __future__ import annotations

import json

import pytest

from benchmarks import chaos, soak
from tests.testing.repetitions import IS_FULL

NUM_KILLS = 3


# `test_two_faults.py`, `test_recovery.py` and `test_moments.py` kill tasks of each role at chosen moments, and the soak
# below kills them at random. `test_faults.py` balances the books of a real run. The driver's checks are in
# tests/benchmarks/test_chaos.py.
@pytest.mark.full
@pytest.mark.parametrize("update", ["sync", "async"])
def test_run_with_tasks_killed_at_random_is_as_good_as_the_undisturbed_one(tmp_path, update, monkeypatch):
    monkeypatch.setattr(chaos, "SAVE_SLACK_SECS", 15.0)  # a busy machine saves late
    monkeypatch.setattr(chaos, "MAX_ACCURACY_LOST", 0.03)  # a short run is not yet as far on the plateau
    out_dir = tmp_path / "out"
    max_steps = {"async": 2000, "sync": 800}[update]
    code = chaos.main(
        [f"--kills={NUM_KILLS}", "--seeds=1", f"--updates={update}", f"--max_steps={max_steps}", f"--out_dir={out_dir}"]
    )
    undisturbed, disturbed = json.loads((out_dir / "results.json").read_text())["runs"]
    print(disturbed)
    assert (undisturbed["problem"], disturbed["problem"]) == ("", "")
    assert code == 0
    assert (undisturbed["kills"], disturbed["kills"]) == (0, NUM_KILLS)
    for row in (undisturbed, disturbed):
        assert row["applied"] + row["rolled_back"] == row["logged"] + row["unlogged"]


def test_memory_and_open_files_stay_flat_while_tasks_are_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(soak, "MAX_GROWTH", 0.15)  # a quarter of a short run contains few processes
    out_dir = tmp_path / "out"
    flags = [
        f"--minutes={2.5 if IS_FULL else 1.25}",
        f"--kill_every_secs={18 if IS_FULL else 12}",
        f"--warmup_secs={30 if IS_FULL else 20}",
        "--sample_secs=2",
        "--step_ms=60",
    ]
    code = soak.main([*flags, f"--out_dir={out_dir}"])
    results = json.loads((out_dir / "results.json").read_text())
    assert results["problems"] == []
    assert code == 0
    assert results["kills"] >= 3
    assert {(one["role"], one["figure"]) for one in results["growth"]} >= {("ps", "rss_mib"), ("workers", "num_fds")}

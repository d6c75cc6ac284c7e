"""The measurement of start-up: starts alternate, and the time is that of the later worker."""

from __future__ import annotations

import json
import types

from benchmarks import start_up
from tests.testing.step_records import log_of, step_record


def test_the_starts_alternate_and_the_later_worker_counts(tmp_path, monkeypatch):
    starts = []

    def run_local(flags, logdir, deadline_secs, *, cwd, preloaded):
        starts.append((flags[2], preloaded))
        (logdir / "steps").mkdir(parents=True)
        for worker in (0, 1):
            secs = (10 if preloaded else 100) * (worker + 1) + len(starts)
            log = log_of(step_record(worker=worker, t_end=at, wall_time=1000.0 + at) for at in (secs, secs + 500))
            (logdir / "steps" / f"worker-{worker}.jsonl").write_text(log)
        return 1.0

    monkeypatch.setattr(start_up, "run_local", run_local)
    monkeypatch.setattr(start_up, "shared_server", lambda folder: None)
    monkeypatch.setattr(start_up, "time", types.SimpleNamespace(time=lambda: 1000.0))
    assert start_up.main(["--models=cnn", "--repetitions=3", f"--out_dir={tmp_path / 'out'}"]) == 0
    assert starts == [("--model=cnn", False), ("--model=cnn", True)] * 3
    rows = json.loads((tmp_path / "out" / "results.json").read_text())["rows"]
    assert [(row["launcher"], row["first_step_secs"]) for row in rows] == [("fresh", 203), ("preloaded", 24)]
    assert [(row["first_step_secs_min"], row["first_step_secs_max"]) for row in rows] == [(201, 205), (22, 26)]

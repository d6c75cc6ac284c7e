"""The measurement of the first step: the text, the flags, and the time of the later worker."""

from __future__ import annotations

import json
import types

from benchmarks import first_step
from tests.testing.step_records import log_of, step_record


def test_the_text_has_the_size_and_frequent_words(tmp_path):
    path = tmp_path / "data" / "train.txt"
    assert first_step.write_text(path, 1) == path.stat().st_size > 10**6
    words = path.read_text().split()
    assert len(words) == first_step._BLOCK
    first = words.count(max(set(words[:1000]), key=words[:1000].count))
    assert 0.05 < first / len(words) < 0.12  # 1 / (1 + 1/2 + … + 1/100,000) = 0.083


def test_the_time_is_that_of_the_later_worker_and_the_cache_is_of_this_benchmark(tmp_path, monkeypatch):
    caches = []

    def run_local(flags, logdir, deadline_secs, *, cwd, environ):
        caches.append(environ[first_step.VARIABLE])
        (logdir / "steps").mkdir(parents=True)
        for worker, secs in ((0, (100, 300)), (1, (200, 400))):
            log = log_of(step_record(worker=worker, t_end=at, wall_time=1000.0 + at) for at in secs)
            (logdir / "steps" / f"worker-{worker}.jsonl").write_text(log)
        return 1.0

    monkeypatch.setattr(first_step, "run_local", run_local)
    monkeypatch.setattr(first_step, "time", types.SimpleNamespace(time=lambda: 1000.0))
    monkeypatch.setattr(first_step, "_BLOCK", 2000)
    assert first_step.main(["--megabytes=1", f"--out_dir={tmp_path / 'out'}"]) == 0
    rows = json.loads((tmp_path / "out" / "results.json").read_text())["rows"]
    assert [row["cache"] for row in rows] == ["empty", "filled"]
    assert [row["first_step_secs"] for row in rows] == [200, 200]  # both workers have made a step
    assert caches == [str(tmp_path / "out" / "cache")] * 2
    assert not (tmp_path / "out" / "data" / "train.txt").exists()

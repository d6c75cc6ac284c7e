"""The files that the chief leaves in the logdir."""

from __future__ import annotations

import json

import pytest

from ps_trainer.config import TrainConfig
from ps_trainer.errors import SaveError
from ps_trainer.training import run_files
from tests.runtime.fakes import entry
from tests.testing.logs import log_lines


class TestSummary:
    def test_of_a_run_that_is_done_must_be_written(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(SaveError, match="summary.json cannot be written"):
            run_files.write_summary(TrainConfig(logdir=str(tmp_path / "file")), {"status": "done"})

    def test_of_a_failed_run_does_not_hide_why_it_failed(self, tmp_path):
        (tmp_path / "file").write_text("")
        with log_lines() as lines:
            run_files.write_summary(TrainConfig(logdir=str(tmp_path / "file")), {"status": "failed"})
        assert "summary.json cannot be written" in lines[0]

    def test_is_json(self, tmp_path):
        run_files.write_summary(TrainConfig(logdir=str(tmp_path)), {"status": "done", "global_step": 3})
        assert json.loads((tmp_path / "summary.json").read_text()) == {"status": "done", "global_step": 3}


def test_the_books_also_have_the_gradients_of_a_worker_that_ended_early():
    counts = {"gradients_pushed": [7, 5], "gradients_used": [6, 4]}
    summary = run_files.summarize(5, {}, counts, {"pushes": 7}, {1: entry("interrupted")})
    own, early = ({"pushes": n, "gradients_used": n - 1, "gradients_dropped": 1} for n in (7, 5))
    assert summary["workers"] == {"0": {"status": "done", **own}, "1": {"status": "interrupted", **early}}

"""The files that the chief leaves in the logdir."""

from __future__ import annotations

import json

import pytest

from ps_trainer.config import TrainConfig
from ps_trainer.errors import SaveError
from ps_trainer.runtime.run_record import Status
from ps_trainer.training import run_files
from ps_trainer.training.run_summary import RunFailure, RunSummary
from tests.testing.logs import log_lines

DONE = RunSummary(global_step=3, metrics={}, workers={})
FAILED = RunFailure(status=Status.FAILED, reason="why")


class TestSummary:
    def test_of_a_run_that_is_done_must_be_written(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(SaveError, match="summary.json cannot be written"):
            run_files.write_summary(TrainConfig(logdir=str(tmp_path / "file")), DONE)

    def test_of_a_failed_run_does_not_hide_why_it_failed(self, tmp_path):
        (tmp_path / "file").write_text("")
        with log_lines() as lines:
            run_files.write_summary(TrainConfig(logdir=str(tmp_path / "file")), FAILED)
        assert "summary.json cannot be written" in lines[0]

    def test_is_json(self, tmp_path):
        run_files.write_summary(TrainConfig(logdir=str(tmp_path)), FAILED)
        content = json.loads((tmp_path / "summary.json").read_text())
        assert content == {"status": "failed", "reason": "why", "workers": {}}

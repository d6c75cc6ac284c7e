from __future__ import annotations

import json
import os
import time

import pytest

from ps_trainer.disturbances.faults import Fault
from ps_trainer.launch import summary_file
from ps_trainer.launch.event_log import EventLog
from ps_trainer.launch.injector import FaultResult
from ps_trainer.launch.supervisor import RunOutcome
from tests.launch.fakes import ScriptedTask

FAULT = {"fault": "kill:ps:0@step=5", "task": "ps-0", "global_step": 6}
RESULT = FaultResult(Fault(kind="kill", task="ps-0", text="kill:ps:0@step=5", step=5), global_step=6)


@pytest.fixture
def complete(tmp_path):
    """Completes the summary of a run that began earlier; returns its content then."""

    def run(written=None, *, age_secs=0.0, outcome=None):
        path = tmp_path / "summary.json"
        if written is not None:
            path.write_text(written)
            os.utime(path, (time.time() - age_secs,) * 2)
        outcome = outcome or RunOutcome(exit_code=0)
        summary_file.complete(tmp_path, outcome, started_at=time.time() - 60, restarts={"ps-0": 1}, faults=[RESULT])
        assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]
        return json.loads(path.read_text())

    return run


def test_the_chiefs_fields_stay(complete):
    done = {"status": "done", "metrics": {"accuracy": 0.9}}
    assert complete(json.dumps(done)) == done | {"restarts": {"ps-0": 1}, "faults": [FAULT]}


@pytest.mark.parametrize(
    ("written", "age_secs"), [(None, 0), ('{"status": "failed", "reason": "old"}', 3600), ('{"status": "fai', 0)]
)
def test_without_a_summary_of_this_run_one_is_written_that_gives_the_reason(complete, written, age_secs):
    culprit = ScriptedTask("worker-0")
    outcome = RunOutcome(exit_code=1, culprit=culprit, problem="killed (SIGKILL), after 2 restarts")
    found = complete(written, age_secs=age_secs, outcome=outcome)
    assert (found["status"], found["reason"]) == ("failed", "worker-0: killed (SIGKILL), after 2 restarts")
    assert found["restarts"] == {"ps-0": 1}


def test_a_run_that_was_refused_leaves_the_summary_of_the_run_before(tmp_path):
    path = tmp_path / "summary.json"
    path.write_text('{"status": "done"}')
    os.utime(path, (time.time() - 3600,) * 2)
    outcome = RunOutcome(exit_code=2, culprit=ScriptedTask("worker-0"), problem="exit code 2")
    summary_file.complete(tmp_path, outcome, started_at=time.time() - 60, restarts={}, faults=[RESULT])
    assert path.read_text() == '{"status": "done"}'


def test_run_that_failed_after_the_chief_was_done_is_not_reported_as_done(complete):
    outcome = RunOutcome(exit_code=1, culprit=ScriptedTask("ps-0"), problem="killed (SIGSEGV)")
    assert complete('{"status": "done"}', outcome=outcome)["status"] == "failed"


def test_folder_that_cannot_be_written_does_not_end_the_launcher(tmp_path):
    (tmp_path / "file").touch()
    summary_file.complete(tmp_path / "file", RunOutcome(exit_code=0), started_at=0.0, restarts={}, faults=[])
    EventLog(tmp_path / "file" / "metrics").write("kill", "ps-0", 5)
    assert (tmp_path / "file").read_text() == ""

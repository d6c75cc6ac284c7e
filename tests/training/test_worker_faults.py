"""The faults that a worker reports and raises by itself."""

from __future__ import annotations

import json

import pytest

from ps_trainer.disturbances.due_faults import VARIABLE, DueFaults, Raise
from ps_trainer.metrics.writer import MetricsWriter
from ps_trainer.training import worker_faults

RAISE = Raise(100, "raise:worker:1@step=100")


@pytest.fixture
def create(tmp_path):
    """Makes the faults of worker-1, and a function that returns the lines written by it."""
    writer = MetricsWriter(str(tmp_path), "worker-1")

    def make(steps, raises=()):
        return worker_faults.create("worker-1", writer, {VARIABLE: DueFaults(tuple(steps), tuple(raises)).to_text()})

    make.lines = lambda: [
        json.loads(line) for line in (tmp_path / "metrics" / "worker-1.jsonl").read_text().splitlines()
    ]
    yield make
    writer.close()


def test_without_faults_no_line_is_written(tmp_path):
    assert worker_faults.create("worker-1", MetricsWriter(None, "worker-1"), {}) is None


def test_each_milestone_is_reported_once_at_the_first_step_at_or_after_it(create):
    faults = create([50, 200])
    for step in (1, 49, 52, 53, 199, 200, 201):
        faults.after_step(step)
    assert [(line["kind"], line["global_step"]) for line in create.lines()] == [("reached", 52), ("reached", 200)]


def test_late_worker_reports_the_passed_milestones_once(create):
    faults = create([50, 200, 300])
    faults.after_step(250)
    faults.after_step(251)
    assert [line["global_step"] for line in create.lines()] == [250]


def test_rolled_back_training_reports_nothing_twice(create):
    faults = create([50])
    for step in (50, 20, 50):
        faults.after_step(step)
    assert len(create.lines()) == 1


def test_raises_once_after_it_has_reported_so(create):
    faults = create([50, 100], [RAISE])
    faults.after_step(60)
    with pytest.raises(
        worker_faults.InjectedFaultError, match="on purpose at step 101, by --fault=raise:worker:1@step=100"
    ):
        faults.after_step(101)
    faults.after_step(102)
    event = {key: value for key, value in create.lines()[-1].items() if key != "wall_time"}
    assert event == {
        "kind": "event",
        "event": "raise",
        "task": "worker-1",
        "global_step": 101,
        "fault": RAISE.text,
    }

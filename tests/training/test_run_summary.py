"""The result of a run: each worker's part of it, and its JSON."""

from __future__ import annotations

import dataclasses

from ps_trainer.data.pipeline.shard_plan import Coverage
from ps_trainer.runtime.run_record import Status
from ps_trainer.training import run_summary
from ps_trainer.training.run_summary import RunSummary, WorkerSummary
from ps_trainer.training.target_watch import TargetOutcome
from ps_trainer.updates.chief_service import GradientCounts
from tests.runtime.fakes import FIGURES, entry

ROSTER = {0: entry("training"), 1: entry("interrupted"), 2: entry("done", summary=FIGURES)}


def test_a_rule_also_counts_the_gradients_of_a_worker_that_ended_early():
    workers = run_summary.of_workers(FIGURES, ROSTER, GradientCounts((7, 5, 9), (6, 4, 6)))
    assert workers[0].status is Status.DONE  # the chief writes the summary before it reports that it is done
    early = {"status": "interrupted", "pushes": 5, "gradients_used": 4, "gradients_dropped": 1}
    assert workers[1].as_json() == early
    assert list(workers[1].as_json()) == list(early)
    counts = {"pushes": 9, "gradients_used": 6, "gradients_dropped": 3}
    assert workers[2].as_json() == {"status": "done", **FIGURES.as_json(), **counts}


def test_without_a_rule_that_counts_the_workers_own_counts_stand():
    workers = run_summary.of_workers(FIGURES, ROSTER, None)
    assert workers[1] == WorkerSummary(status=Status.INTERRUPTED)
    assert workers[1].as_json() == {"status": "interrupted"}
    assert workers[2].as_json() == {"status": "done", **FIGURES.as_json()}
    assert (workers[2].pushes, workers[2].gradients_dropped) == (FIGURES.pushes, FIGURES.gradients_dropped)


def test_workers_are_in_the_order_of_their_indices_and_their_rates_add_up():
    slow = dataclasses.replace(FIGURES, examples_per_sec=3.5)
    roster = {12: entry("done", summary=slow), 2: entry("failed")}
    summary = RunSummary(global_step=9, metrics={"loss": 0.5}, workers=run_summary.of_workers(FIGURES, roster, None))
    content = summary.as_json()
    assert list(content["workers"]) == ["0", "2", "12"]
    assert content["examples_per_sec"] == FIGURES.examples_per_sec + 3.5
    assert (content["status"], content["global_step"], content["metrics"]) == ("done", 9, {"loss": 0.5})
    assert "target_metric" not in content and "coverage" not in content


def test_target_and_coverage_are_written_if_the_run_has_them():
    coverage = {"0": Coverage(never=1, once=2, twice=3, more=4)}
    target = TargetOutcome("loss<=1", global_step=7, value=0.5)
    content = RunSummary(global_step=9, metrics={}, workers={}, target=target, coverage=coverage).as_json()
    assert content["target_metric"] == {"wanted": "loss<=1", "is_reached": True, "global_step": 7, "value": 0.5}
    assert content["coverage"] == {"0": {"never": 1, "once": 2, "twice": 3, "more": 4}}
    missed = TargetOutcome("loss<=1")
    assert missed.as_json() == {"wanted": "loss<=1", "is_reached": False}

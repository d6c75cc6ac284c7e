"""The experiment on bounded staleness: its claims hold, and fail for rules that are broken on purpose."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from ps_trainer.experiments.bounded_staleness import records
from ps_trainer.experiments.bounded_staleness.cases import TrainedBound, by_cluster, timed_bounds
from ps_trainer.experiments.bounded_staleness.experiment import BoundedStaleness
from ps_trainer.experiments.bounded_staleness.records import BoundRun, compute_of
from ps_trainer.experiments.harness.claims import ClaimFinding
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Results, RunResult
from ps_trainer.experiments.toolkit.step_times import Shape
from ps_trainer.simulation.rules import schedule_table, update_per_push
from ps_trainer.simulation.schedule import Schedule, as_steps
from tests.experiments.executed import drawn, findings_of, refuted, results_of

QUICK = [run for run in BoundedStaleness().runs([0], quick=True) if run.level is Level.VIRTUAL]


class OneMore(update_per_push.Ssp):
    """Broken `ssp`: a worker may be one step further ahead than the bound allows."""

    def __init__(self, options, cluster):
        super().__init__(self.Options(staleness=options.staleness + 1), cluster)


class Barrier(update_per_push.Ssp):
    """Broken `ssp`: every worker waits for all others after each step, whatever the bound."""

    def __init__(self, options, cluster):
        super().__init__(self.Options(staleness=0), cluster)


def of(shape, n, is_slow):
    return [run for run in QUICK if (run.settings.shape, run.settings.n, run.settings.is_slow) == (shape, n, is_slow)]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Results of the quick form without its real run."""
    return results_of(BoundedStaleness(), QUICK, tmp_path_factory.mktemp("runs"))


def test_every_claim_but_those_on_training_is_measured_in_the_quick_form_and_holds(measured):
    findings = findings_of(BoundedStaleness(), measured)
    assert findings.keys() == {claim.key for claim in BoundedStaleness.claims} - {
        "work", "interior", "real_rate", "real_wait", "real_bound"
    }  # fmt: skip
    assert set(findings.values()) == {ClaimFinding.OK}


def test_report_has_a_line_per_cluster_and_bound_and_plots_that_can_be_drawn(measured):
    (lines,) = BoundedStaleness().analyse(measured).tables
    assert len(lines.rows) == 5 * 7
    assert drawn(BoundedStaleness().plots(measured)) == ["shares", "rates"]


def test_no_plot_and_no_finding_without_runs():
    assert findings_of(BoundedStaleness(), Results()) == {}
    assert list(BoundedStaleness().plots(Results())) == []


@pytest.mark.parametrize(
    ("broken", "expected"), [(OneMore, {"bound", "wait", "barrier", "staleness"}), (Barrier, {"wait", "few"})]
)
def test_a_broken_bound_refutes_the_claims_about_it(tmp_path, monkeypatch, broken, expected):
    monkeypatch.setitem(schedule_table.RULES, "ssp", broken)
    found = findings_of(BoundedStaleness(), results_of(BoundedStaleness(), of(Shape.EXPONENTIAL, 4, False), tmp_path))
    assert refuted(found) == expected
    assert found["free"] is ClaimFinding.OK  # not broken


def test_no_bound_helps_against_a_slow_worker(measured):
    slow = by_cluster(timed_bounds(measured))["n = 4, lognormal, one slow worker"]
    waits = {bound: case.wait_by_worker for bound, case in slow.items()}
    for bound in (0, 1, 3, 10):
        assert waits[bound][:3] == pytest.approx([3 / 4] * 3, abs=0.04)
    assert waits[10][3] < 0.01
    assert waits[None] == pytest.approx([0] * 4)
    assert slow[None].predicted_wait_share == 0
    # A worker's clock takes 3 · 1 + 4 mean steps of computing, out of 4 · 4 that pass.
    assert slow[3].predicted_wait_share == pytest.approx(1 - 7 / 16, abs=0.02)


def test_the_slow_worker_is_the_last_one():
    assert compute_of(Shape.MODERATE, 4, is_slow=True) == [
        "lognormal:sigma=0.5",
        "lognormal:sigma=0.5,mean_ms=400,worker=3",
    ]
    assert compute_of(Shape.EXPONENTIAL, 8, is_slow=True) == ["exp", "exp:mean_ms=400,worker=7"]
    assert compute_of(Shape.EXPONENTIAL, 8, is_slow=False) == ["exp"]


def test_leads_are_counted_in_completed_steps():
    # Worker 0 ends steps at 1, 2 and 3 and waits until worker 1 ends its only step at 4; then it begins another.
    worker, ends, starts = [0, 0, 0, 1, 0], [1.0, 2.0, 3.0, 4.0, 4.5], [0.0, 1.0, 2.0, 0.0, 4.0]
    zeros = [0] * 5
    steps = as_steps([worker, [0, 1, 2, 0, 3], zeros, starts, starts, ends, ends, range(5), zeros])
    # At the beginnings: 2 steps against 0 at time 2, 3 against 1 at time 4. At the ends: 3 against 0, then 4 against 1.
    assert records.largest_leads(Schedule(2, steps, steps.t_push_done)) == (2, 3)


def trained(outcomes):
    """Results of training runs, given by bound and learning rate: updates and time for each seed."""
    runs = [run for run in BoundedStaleness().runs([0, 1, 2], quick=False) if run.settings.what == BoundRun.TRAINING]
    figures = {}
    for run in runs:
        updates, times = outcomes.get((run.settings.bound, run.settings.rate), ((None,) * 3, (None,) * 3))
        figures[run.key] = SimpleNamespace(updates=updates[run.seed], time=times[run.seed])
    return Results(RunResult(run, figures[run.key], 1.0, None, None) for run in runs)


def test_each_bound_is_judged_by_its_best_learning_rate():
    rows = {
        (0, 0.5): ((100, 110, 120), (50.0, 55.0, 60.0)),
        (0, 1.0): ((90, None, None), (45.0, None, None)),
        (3, 0.5): ((150, 160, 170), (40.0, 44.0, 41.0)),
        (None, 0.5): ((300, 310, 320), (62.0, 68.0, 64.0)),
        (None, 2.0): ((200, 210, 220), (42.0, 48.0, 44.0)),
    }
    results = trained(rows)
    arms = {bound: TrainedBound(own) for (bound,), own in results.by("bound").items()}
    assert [arms[bound].rate for bound in (0, 3, None)] == [0.5, 0.5, 2.0]
    assert (arms[3].updates, arms[3].time) == (160, 41.0)
    assert arms[0].updates_by_rate[1.0] == math.inf  # most seeds do not reach it
    measured = {one.claim.key: one.measured for one in BoundedStaleness().analyse(results).checked}
    at_half = (300 * 310 * 320 / 100 / 110 / 120) ** (1 / 3)  # the best rate of bound 0
    assert [one.value for one in measured["work"]] == pytest.approx(
        [at_half, (200 * 210 * 220 / 100 / 110 / 120) ** (1 / 3)]
    )
    barrier, free = measured["interior"]
    assert barrier.value == pytest.approx((50 * 55 * 60 / 40 / 44 / 41) ** (1 / 3))
    assert free.value == pytest.approx((42 * 48 * 44 / 40 / 44 / 41) ** (1 / 3))
    assert 1 < free.interval.low < free.value < free.interval.high
    found = findings_of(BoundedStaleness(), results)
    assert found["work"] is found["interior"] is ClaimFinding.OK
    assert drawn(BoundedStaleness().plots(results)) == ["objective"]


def test_the_other_seeds_choose_the_learning_rate_of_each():
    # Rate 2 is the best for seed 0, and rate 0.5 for the others.
    case = TrainedBound(trained({(3, 0.5): ((9,) * 3, (40.0, 30.0, 30.0)), (3, 2.0): ((5,) * 3, (10.0, 50.0, 50.0))}))
    case = TrainedBound(case.runs.where(bound=3))
    assert case.at_others_rate("time") == {0: 40.0, 1: 30.0, 2: 30.0}
    assert case.at_others_rate("updates") == {0: 9, 1: 9, 2: 9}


def test_a_seed_that_misses_the_target_leaves_the_ratio_unknown():
    outcomes = {(bound, 0.5): ((100,) * 3, (50.0,) * 3) for bound in (0, 3)}
    lost = outcomes | {(None, 0.5): ((100, 100, None), (40.0, 40.0, None))}
    found = findings_of(BoundedStaleness(), trained(lost))
    assert found["interior"] is found["work"] is ClaimFinding.UNDECIDED


def test_fastest_training_without_a_bound_refutes_the_claim_that_one_helps():
    outcomes = {(bound, 0.5): ((100,) * 3, (time,) * 3) for bound, time in ((0, 90.0), (3, 50.0), (None, 40.0))}
    findings = findings_of(BoundedStaleness(), trained(outcomes))
    assert refuted(findings) == {"interior"}
    assert findings["work"] is ClaimFinding.OK


def test_fastest_training_behind_a_barrier_refutes_it_too():
    outcomes = {(bound, 0.5): ((100,) * 3, (time,) * 3) for bound, time in ((0, 40.0), (3, 50.0), (None, 60.0))}
    assert refuted(findings_of(BoundedStaleness(), trained(outcomes))) == {"interior"}


def test_full_runs_have_five_seeds_and_all_bounds():
    runs = [run for run in BoundedStaleness().runs(range(5), quick=False) if run.level is Level.VIRTUAL]
    timed = [run for run in runs if run.settings.what != BoundRun.TRAINING]
    assert {run.settings.bound for run in timed} == {0, 1, 2, 3, 5, 10, None}
    assert {run.seed for run in timed} == {run.seed for run in runs} == set(range(5))
    assert all(run.settings.num_clocks >= 3000 for run in timed)
    assert len(runs) > len(timed)

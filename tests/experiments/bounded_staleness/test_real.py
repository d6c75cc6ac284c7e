"""Bounded staleness on real clusters: one like the simulator confirms the claims, one with a broken rule does not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ps_trainer.experiments.bounded_staleness.cases import RealBound
from ps_trainer.experiments.bounded_staleness.experiment import BoundedStaleness
from ps_trainer.experiments.bounded_staleness.records import BoundRun, ClusterClockFigures
from ps_trainer.experiments.harness.cases import cases_by
from ps_trainer.experiments.harness.claims import ClaimFinding
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Results, RunResult
from tests.experiments.bounded_staleness.test_experiment import Barrier, OneMore
from tests.experiments.executed import drawn, findings_of, planned, refuted
from tests.experiments.simulated_cluster import OVERHEAD_SECS, SimulatedCluster, real_results_of

RUNS = planned(BoundedStaleness(), range(2), quick=False, level=Level.PROCESSES)


@pytest.fixture
def measure(tmp_path, monkeypatch):
    """Executes the real runs on a cluster with the given rules."""

    def measure(rules=None, delayed_share=0.003):
        SimulatedCluster(monkeypatch, rules)
        return real_results_of(BoundedStaleness(), RUNS, tmp_path, delayed_share)

    return measure


def test_a_cluster_like_the_simulator_confirms_all_claims(measure):
    found = findings_of(BoundedStaleness(), measure())
    assert found == dict.fromkeys(("real_rate", "real_wait", "real_bound"), ClaimFinding.OK)


@pytest.mark.parametrize(
    ("broken", "expected"), [(OneMore, {"real_bound", "real_rate", "real_wait"}), (Barrier, {"real_rate", "real_wait"})]
)
def test_a_broken_bound_on_the_cluster_refutes_the_claims_about_it(measure, broken, expected):
    assert refuted(findings_of(BoundedStaleness(), measure({"ssp": broken}))) == expected


def test_seeds_that_disagree_leave_the_waiting_undecided():
    def figures(run):
        shares = {"computes": 0.5, "communicates": 0.1, "waits": 0.1 + 0.3 * (run.seed == 0)}
        measured = ClusterClockFigures(rate=0.5, lead_at_begin=0, **shares)
        simulated = SimpleNamespace(rate=0.5, waits=0.1)
        return SimpleNamespace(measured=measured, simulated=simulated, overhead_secs=0.005)

    results = Results(RunResult(run, figures(run), 9.0, None, None) for run in RUNS)
    found = findings_of(BoundedStaleness(), results)
    assert found["real_rate"] is ClaimFinding.OK
    assert found["real_wait"] is ClaimFinding.UNDECIDED  # 0.15 ± 6.3 · 0.15


def test_a_lead_counts_on_a_contended_machine_but_times_do_not(measure):
    found = findings_of(BoundedStaleness(), measure(delayed_share=0.03))
    assert found == {"real_bound": ClaimFinding.OK}
    assert drawn(BoundedStaleness().plots(measure(delayed_share=0.03))) == []


def test_a_workers_time_is_split_into_three(measure):
    results = measure()
    cases = cases_by(RealBound, results.where(what=BoundRun.REAL), "bound")
    for case in cases:
        shares = {name: case.median(name) for name in ("computes", "communicates", "waits")}
        assert sum(shares.values()) == pytest.approx(1.0, abs=0.01)
        # as shares of a mean step of 500 ms
        assert shares["communicates"] / shares["computes"] == pytest.approx(OVERHEAD_SECS / 0.5, rel=0.2)
    assert [case.largest_lead for case in cases][:4] == [0, 1, 3, 10]
    assert drawn(BoundedStaleness().plots(results)) == ["real_shares"]
    assert [len(table.rows) for table in BoundedStaleness().analyse(results).tables] == [2, 5, 5]  # calibrations first


def test_full_runs_have_five_seeds_of_all_bounds():
    runs = planned(BoundedStaleness(), range(5), quick=False, level=Level.PROCESSES)
    assert {(run.settings.bound, run.seed) for run in runs} == {(s, i) for s in (0, 1, 3, 10, None) for i in range(5)}

"""The experiment on staleness: its claims hold, and fail for a rule that is broken on purpose."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from ps_trainer.experiments.harness import invocation
from ps_trainer.experiments.harness.claims import ClaimFinding
from ps_trainer.experiments.harness.invocation import Request
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Results, Run, RunResult
from ps_trainer.experiments.staleness_distribution import tables
from ps_trainer.experiments.staleness_distribution.cases import (
    Staleness,
    StalenessFigures,
    StalenessSettings,
    compute_of,
    staleness_of,
)
from ps_trainer.experiments.staleness_distribution.experiment import StalenessDistribution
from ps_trainer.experiments.toolkit.clusters import Cluster, Training
from ps_trainer.experiments.toolkit.step_times import Shape
from ps_trainer.simulation.rules import schedule_table, update_per_push
from ps_trainer.simulation.rules.base import PushOutcome
from tests.experiments.executed import findings_of, planned, results_of
from tests.experiments.executed import refuted as refuted_of
from tests.experiments.simulated_cluster import SimulatedCluster, real_results_of
from tests.testing.step_records import step_record


class InVirtualTime(StalenessDistribution):
    """The experiment without the runs of real clusters."""

    def runs(self, seeds, *, quick):
        return [run for run in super().runs(seeds, quick=quick) if run.level is Level.VIRTUAL]


class Paired(update_per_push.Async):
    """Broken `async`: a worker that has pushed idles until another worker has pushed too."""

    def __init__(self, options, cluster):
        super().__init__(options, cluster)
        self._idle = []

    def push(self, worker, version):
        self.version += 1
        self._idle.append(worker)
        resumed = self._idle if len(self._idle) == 2 else []
        self._idle = [] if resumed else self._idle
        return PushOutcome(self.version - 1, resumed)


class Ahead(update_per_push.Async):
    """Broken `async`: each gradient was computed from the parameters before the last ones."""

    def push(self, worker, version):
        self.version += 2
        return PushOutcome(self.version - 2, (worker,))


def call(tmp_path):
    out = io.StringIO()
    request = Request(quick=True, num_seeds=1, check=True, out_dir=tmp_path)
    code = invocation.run([InVirtualTime()], request, ["test"], Console(file=out, width=200))
    return code, out.getvalue()


def findings(printed):
    # A busy machine adds a line about contended runs below the findings.
    shown = [line for line in printed.splitlines() if line.startswith("  ") and "not comparable" not in line]
    lines = [line.split("  ")[1].strip() for line in shown]
    return dict(zip((claim.key for claim in StalenessDistribution.claims), lines, strict=True))


def test_the_quick_form_reproduces_the_shape(tmp_path):
    code, printed = call(tmp_path)
    assert code == 0
    found = findings(printed)
    of_clusters = {found.pop(key) for key in ("mean", "softsync", "simulated")}
    assert of_clusters == {"not testable"}
    assert set(found.values()) == {"ok"}
    text = (tmp_path / "staleness_distribution" / "report.md").read_text()
    assert text.count("(L0 virtual time)") == 2 + 4  # tables and plots


@pytest.mark.parametrize(
    ("broken", "refuted"),
    [(Paired, {"mean_virtual", "per_worker", "geometric"}), (Ahead, {"mean_virtual", "heavy_tail"})],
)
def test_a_broken_rule_refutes_the_claims_about_it(tmp_path, monkeypatch, broken, refuted):
    monkeypatch.setitem(schedule_table.RULES, "async", broken)
    experiment = InVirtualTime()
    found = findings_of(experiment, results_of(experiment, experiment.runs([0], quick=True), tmp_path))
    assert refuted <= refuted_of(found)
    assert found["softsync_virtual"] is ClaimFinding.OK  # not broken


def test_full_runs_have_the_papers_numbers_of_learners():
    runs = InVirtualTime().runs(range(5), quick=False)
    learners = {run.settings.n for run in runs}
    assert {2, 4, 8, 16, 10, 20, 30, 60} == learners
    assert {run.settings.splits for run in runs if run.settings.n == 30 and run.settings.splits} == {1, 15}
    assert all(run.settings.num_updates >= 5_000 for run in runs)


def test_the_slow_worker_is_the_last_one():
    assert compute_of("exponential", 100.0, is_slow=True) == ["exp:mean_ms=100", "exp:mean_ms=400,worker=3"]
    assert compute_of("even", 80.0, is_slow=False) == ["det:jitter=0.02,mean_ms=80"]


def test_there_is_a_real_run_in_the_quick_form_too():
    assert [run.key for run in planned(StalenessDistribution(), [0], quick=True, level=Level.PROCESSES)] == [
        "L2-n=4-shape=lognormal-seed=0"
    ]


def test_real_runs_keep_two_cores_mostly_idle():
    real = planned(StalenessDistribution(), range(5), level=Level.PROCESSES)
    assert {run.settings.n for run in real} == {2, 4, 8, 16}
    assert max(run.settings.n / run.settings.mean_ms for run in real) * 1000 < 85  # gradients per second


def test_a_real_run_delays_the_steps_and_reads_each_one(tmp_path, monkeypatch):
    steps = [step_record(worker=i % 2, staleness=i % 3, wall_time=100.0 + i) for i in range(10)]
    trained = []

    def train(cluster, folder):
        trained.append((cluster, folder))
        return Training({}, steps, 12.0)

    monkeypatch.setattr(Cluster, "train", train)
    experiment = StalenessDistribution()
    run = next(run for run in experiment.runs([7], quick=False) if run.key == "L2-n=8-shape=lognormal-splits=4-seed=7")
    measured = experiment.execute(run, tmp_path)
    ((cluster, folder),) = trained
    assert (cluster.num_workers, folder) == (8, tmp_path)
    delay = "lognormal:sigma=0.5,mean_ms=400,paced=true"
    given = {"--update=softsync", "--update_option=splits=4", f"--straggler={delay}", "--seed=7"}
    assert given <= set(cluster.flags)
    assert measured.figures.staleness == {"0": {"0": 1, "1": 1, "2": 2}, "1": {"0": 2, "1": 1, "2": 1}}
    assert measured.window == (102.0, 109.0)


def test_calibrations_are_no_cases(tmp_path, monkeypatch):
    SimulatedCluster(monkeypatch)
    runs = [run for run in planned(StalenessDistribution(), [0, 1], level=Level.PROCESSES) if run.settings.n == 2]
    results = real_results_of(StalenessDistribution(), runs, tmp_path)
    assert len(results) > len(runs)
    found = findings_of(StalenessDistribution(), results)
    assert found["mean"] is ClaimFinding.OK
    titles = [table.title for table in StalenessDistribution().analyse(results).tables]
    assert any("Calibration" in title for title in titles)


def test_seeds_are_pooled(tmp_path):
    runs = [run for run in InVirtualTime().runs([0, 1], quick=True) if run.settings.n == 2]
    results = Results(
        RunResult(run, StalenessFigures(staleness={"0": {"1": 10 + run.seed}, "1": {"3": 30}}), 1.0, None, tmp_path)
        for run in runs
    )
    cases = staleness_of(results)
    assert [case.shape for case in cases] == ["even", "lognormal", "exponential"]
    assert cases[0].by_worker == {0: {1: 10 + 11}, 1: {3: 30 + 30}}


def even(n, staleness, seeds, level=Level.VIRTUAL):
    """Results of asynchronous workers with even steps, one run a seed; `staleness` returns value -> count of it."""
    settings = StalenessSettings(n=n, shape=Shape.EVEN, mean_ms=100.0, num_updates=1000)
    return [
        RunResult(
            Run(f"{n}-{seed}", settings, seed, level=level),
            StalenessFigures(staleness={"0": staleness(seed)}),
            1,
            None,
            None,
        )
        for seed in seeds
    ]


def check_of(key, results):
    (check,) = (one for one in StalenessDistribution().analyse(Results(results)).checked if one.claim.key == key)
    return check


def test_seeds_that_disagree_leave_a_claim_undecided():
    alike = even(4, lambda seed: {"3": 10_000}, range(5))
    assert check_of("mean_virtual", alike).finding is ClaimFinding.OK
    apart = even(4, lambda seed: {"3": 10_000, "4": 8_000 * (seed == 0)}, range(5))
    check = check_of("mean_virtual", apart)
    assert check.finding is ClaimFinding.UNDECIDED
    assert check.measured[0].value == pytest.approx(8 / 58 / 4)
    assert check_of("mean_virtual", apart[:1]).finding is ClaimFinding.REFUTED  # 4/9/n, and no interval


def test_real_clusters_alone_decide_what_the_literature_says_of_the_mean():
    simulated = even(4, lambda seed: {"9": 10_000}, range(5))
    assert check_of("mean", simulated).finding is ClaimFinding.NOT_TESTABLE
    real = even(4, lambda seed: {"9": 10_000}, range(5), Level.PROCESSES)
    assert check_of("mean", real).finding is ClaimFinding.REFUTED
    assert check_of("mean_virtual", real).finding is ClaimFinding.NOT_TESTABLE


def test_few_gradients_do_not_show_that_very_stale_ones_are_rare():
    few = even(2, lambda seed: {"1": 5_000}, range(5))
    assert check_of("tail", few).finding is ClaimFinding.UNDECIDED
    together = [*few, *even(4, lambda seed: {"3": 5_000}, range(5))]
    check = check_of("tail", together)
    assert (check.finding, len(check.measured)) == (ClaimFinding.OK, 1)
    assert "L0, 2 cases together" in check.text
    stale = [*few, *even(4, lambda seed: {"3": 5_000, "9": 10}, range(5))]
    check = check_of("tail", stale)
    assert check.finding is ClaimFinding.REFUTED
    assert "50 in L0, n=4, even" in check.text
    enough = even(8, lambda seed: {"7": 10_000}, range(5))
    assert [one.case for one in check_of("tail", [*together, *enough]).measured] == [
        "L0, n=8, even",
        "L0, 2 cases together",
    ]


def test_shares_of_a_case():
    run = Run(key="k", level=Level.VIRTUAL, settings=SimpleNamespace(n=2, shape="even"))
    figures = StalenessFigures(staleness={"0": {"0": 6, "5": 2}, "1": {"4": 2}})
    case = Staleness(Results([RunResult(run, figures, 1.0, None, None)]))
    assert case.share_above(4) == pytest.approx(2 / 10)
    assert case.summary.mean == pytest.approx((2 * 5 + 2 * 4) / 10)


def test_a_table_compares_a_real_cluster_with_its_simulation():
    settings = StalenessSettings(n=4, shape=Shape.EXPONENTIAL, is_slow=True, mean_ms=100.0, num_updates=20)
    figures = StalenessFigures(
        staleness={"0": {"3": 5}, "1": {"3": 5}, "2": {"3": 6}, "3": {"7": 4}},
        simulated={"0": {"3": 5}, "1": {"3": 5}, "2": {"3": 6}, "3": {"3": 4}},
    )
    result = RunResult(Run("k", settings, 0, level=Level.PROCESSES), figures, 1.0, None, None)
    of_all, of_workers = tables.tables(staleness_of(Results([result])))
    shown = dict(zip([column.header for column in of_all.columns], of_all.rows[0], strict=True))
    assert shown["share of n − 1"] == pytest.approx(0.8)
    assert (shown["sd, simulated"], shown["KS to simulated"]) == (0.0, pytest.approx(0.2))
    assert of_workers.columns[-1].header == "mean, exponential, simulated"
    assert [row[-2:] for row in of_workers.rows] == [[3, 3], [3, 3], [3, 3], [7, 3]]

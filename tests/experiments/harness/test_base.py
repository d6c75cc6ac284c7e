"""Lookup of results by their settings, and the choice of those that count."""

from __future__ import annotations

import pathlib
from types import SimpleNamespace

import pytest

from ps_trainer.experiments.harness.claims import ClaimFinding
from ps_trainer.experiments.harness.cpu import MAX_DELAYED_SHARE, MAX_OTHERS_SHARE, CpuUse
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Results, Run, RunResult

QUIET = CpuUse(0.9, 1.0, 0.0, 0.001)


def result(n, dist="exp", seed=0, *, level=Level.PROCESSES, cpu=QUIET, is_paced=True):
    settings = SimpleNamespace(n=n, dist=dist)
    run = Run(key=f"{dist}-{n}-{seed}", level=level, settings=settings, seed=seed, is_paced=is_paced)
    return RunResult(run, SimpleNamespace(mean=10 * n + seed), 1.0, cpu, pathlib.Path("nowhere"))


def waiting(share):
    return CpuUse(0.1, 1.0, 0.0, share)


def beside_others(share):
    return CpuUse(1.0, 1.0 - share, share, 0.5)


RESULTS = Results([result(2), result(2, seed=1), result(4), result(4, "det")])


def test_results_are_found_by_their_settings():
    assert RESULTS.where(n=2).figures("mean") == [20, 21]
    assert RESULTS.where(n=2, seed=1).figures("mean") == [21]
    assert RESULTS.where(dist="det", level=Level.PROCESSES).figures("mean") == [40]
    assert RESULTS.where(n=3) == ()


def test_results_are_grouped_in_their_order():
    groups = RESULTS.by("dist", "n")
    assert list(groups) == [("exp", 2), ("exp", 4), ("det", 4)]
    assert groups["exp", 2].figures("mean") == [20, 21]
    assert list(RESULTS.by("nothing")) == [(None,)]


@pytest.mark.parametrize(
    ("cpu", "level", "is_paced", "is_contended"),
    [
        (waiting(MAX_DELAYED_SHARE + 0.001), Level.PROCESSES, True, True),
        (waiting(MAX_DELAYED_SHARE), Level.PROCESSES, True, False),
        (waiting(0.5), Level.VIRTUAL, True, False),
        (waiting(0.5), Level.SHAPED, True, True),
        (waiting(None), Level.PROCESSES, True, False),
        (beside_others(MAX_OTHERS_SHARE - 0.01), Level.PROCESSES, False, False),
        (beside_others(MAX_OTHERS_SHARE + 0.01), Level.PROCESSES, False, True),
        (None, Level.PROCESSES, True, False),
    ],
)
def test_times_of_real_runs_whose_tasks_wait_for_cores_are_not_comparable(cpu, level, is_paced, is_contended):
    one = result(2, cpu=cpu, level=level, is_paced=is_paced)
    assert one.is_contended == is_contended
    assert len(Results([one]).uncontended()) == (not is_contended)


def test_a_run_without_a_step_series_has_no_steps():
    assert list(RESULTS[0].steps()) == []


def test_results_that_are_alike_have_settings_and_statistics():
    alike = RESULTS.where(n=2)
    assert (alike.setting("n"), alike.setting("level")) == (2, Level.PROCESSES)
    assert (alike.median("mean"), alike.mean("mean")) == (20.5, 20.5)


def test_measurements_for_a_claim_are_checked_against_its_limit(dice):
    runs = dice().runs([0], quick=True)
    results = Results(RunResult(run, SimpleNamespace(mean=5.5), 1.0, None, pathlib.Path("nowhere")) for run in runs)
    checked = dice().analyse(results).checked
    assert [(one.claim.key, one.finding) for one in checked] == [
        ("mean", ClaimFinding.REFUTED),
        ("gravity", ClaimFinding.NOT_TESTABLE),
    ]

"""Lookup of results by their settings, and the choice of those that count."""

from __future__ import annotations

import pathlib
from types import SimpleNamespace

import pytest

from ps_trainer.experiments.harness.base import Level, Results, Run, RunResult
from ps_trainer.experiments.harness.claims import Finding
from ps_trainer.experiments.harness.cpu import CONTENDED_SHARE, CpuUse


def result(n, dist="exp", seed=0, *, level=Level.PROCESSES, share=0.1):
    run = Run(key=f"{dist}-{n}-{seed}", level=level, settings=SimpleNamespace(n=n, dist=dist), seed=seed)
    return RunResult(run, SimpleNamespace(mean=10 * n + seed), 1.0, CpuUse(share, 0.0, 0.0), pathlib.Path("nowhere"))


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
    ("share", "level", "is_contended"),
    [
        (CONTENDED_SHARE + 0.01, Level.PROCESSES, True),
        (CONTENDED_SHARE, Level.PROCESSES, False),
        (1.0, Level.VIRTUAL, False),
        (1.0, Level.SHAPED, True),
    ],
)
def test_real_runs_that_keep_the_cores_busy_are_contended(share, level, is_contended):
    one = result(2, share=share, level=level)
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
        ("mean", Finding.REFUTED),
        ("gravity", Finding.NOT_TESTABLE),
    ]

"""The experiment on backup workers among many workers: its claims hold, and fail for contrary results."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ps_trainer.experiments.backups_at_scale import experiment as experiment_module
from ps_trainer.experiments.backups_at_scale.cases import (
    LARGE_BATCH,
    SMALL_BATCH,
    AtScaleSettings,
    Delays,
    TrafficSettings,
    UpdateKind,
)
from ps_trainer.experiments.backups_at_scale.experiment import BackupsAtScale, TrafficTimings, TrainingsAtScale
from ps_trainer.experiments.harness.cases import find
from ps_trainer.experiments.harness.claims import ClaimFinding
from ps_trainer.experiments.harness.runs import Results, RunResult
from ps_trainer.experiments.toolkit.pilots import PilotSettings
from tests.experiments.executed import drawn, findings_of, refuted, results_of


def as_claimed(run):
    """The figures of a run if every claim were true."""
    settings, noise = run.settings, 0.001 * run.seed
    if isinstance(settings, PilotSettings):
        return {"rate": 0.1, "cost": 0.05, "costs": {"0.1": [0.05, 0.05]}}
    if isinstance(settings, TrafficSettings):
        is_slower = settings.has_transfers and settings.delays == Delays.STRAGGLERS and settings.b == 5
        median = (1.93 if settings.b > 3 else 2.2) + (0.02 if is_slower else -0.01 * settings.b) + noise / 10
        return {"p50": median, "step": median}
    time = {UpdateKind.ASYNC: 300.0, UpdateKind.SYNC: 200.0, UpdateKind.BACKUP: 120.0}[settings.updates] * (1 + noise)
    accuracy = 0.96 + noise - (settings.n / 1000 if settings.updates == UpdateKind.ASYNC else 0)
    return {
        "rate": 0.1,
        "accuracy": accuracy,
        "is_reached": True,
        "time": time,
        "times": [time / 2, time],
        "accuracies": [0.7, accuracy],
    }


def given(figures_of=as_claimed, *, quick=False):
    runs = BackupsAtScale().runs(range(4), quick=quick)
    return Results(RunResult(run, SimpleNamespace(**figures_of(run)), 1.0, None, None) for run in runs)


def test_results_as_claimed_confirm_all_claims():
    found = findings_of(BackupsAtScale(), given())
    assert found.keys() == {claim.key for claim in BackupsAtScale.claims}
    assert set(found.values()) == {ClaimFinding.OK}
    assert drawn(BackupsAtScale().plots(given())) == ["accuracies", "curves", "traffic"]


def changed(change, **selected):
    """Results of which some are changed: those whose settings have these values."""

    def figures_of(run):
        figures = as_claimed(run)
        is_changed = all(getattr(run.settings, name, None) == value for name, value in selected.items())
        return figures | (change(figures) if is_changed else {})

    return given(figures_of)


@pytest.mark.parametrize(
    ("claims", "results"),
    [
        (
            {"accuracy"},
            changed(lambda f: {"accuracy": f["accuracy"] - 0.1}, updates=UpdateKind.BACKUP, batch_size=1),
        ),
        (
            {"accuracy_of_large", "same"},
            changed(lambda f: {"accuracy": f["accuracy"] - 0.1}, updates=UpdateKind.BACKUP, n=64, batch_size=4),
        ),
        ({"accuracy_of_some"}, changed(lambda f: {"accuracy": f["accuracy"] - 0.1}, updates=UpdateKind.BACKUP, n=16)),
        ({"sooner_than_async"}, changed(lambda f: {"time": f["time"] / 4}, updates=UpdateKind.ASYNC, batch_size=1)),
        (
            {"sooner_of_large"},
            changed(lambda f: {"time": f["time"] / 4}, updates=UpdateKind.ASYNC, n=64, batch_size=4),
        ),
        ({"sooner_than_sync"}, changed(lambda f: {"time": f["time"] / 4}, updates=UpdateKind.SYNC, n=64)),
        ({"falls"}, changed(lambda f: {"accuracy": f["accuracy"] - 0.3}, updates=UpdateKind.ASYNC, n=4)),
        ({"same"}, changed(lambda f: {"accuracy": f["accuracy"] - 0.02}, updates=UpdateKind.SYNC, n=64)),
        ({"fifth"}, changed(lambda f: {"p50": f["p50"] - 0.1}, delays=Delays.STRAGGLERS, has_transfers=True, b=5)),
        (
            {"without_traffic"},
            changed(lambda f: {"p50": f["p50"] + 0.1}, delays=Delays.STRAGGLERS, has_transfers=False, b=5),
        ),
        ({"varied"}, changed(lambda f: {"p50": f["p50"] + 0.1}, delays=Delays.VARIED, b=5)),
        (
            {"published_median"},
            changed(lambda f: {"p50": 2 * f["p50"]}, delays=Delays.STRAGGLERS, has_transfers=True),
        ),
    ],
)
def test_contrary_results_refute_a_claim(claims, results):
    assert refuted(findings_of(BackupsAtScale(), results)) == claims


def test_equal_accuracies_within_their_spread_decide_nothing():
    def figures_of(run):
        is_async = getattr(run.settings, "updates", None) == UpdateKind.ASYNC
        return as_claimed(run) | ({"accuracy": 0.96 + 0.001 * run.seed + 0.01 * (-1) ** run.seed} if is_async else {})

    assert findings_of(BackupsAtScale(), given(figures_of))["accuracy"] is ClaimFinding.UNDECIDED


def test_without_transfers_a_fifth_backup_worker_costs_nothing(tmp_path, monkeypatch):
    runs = TrafficTimings().runs(range(3), quick=True)
    monkeypatch.setattr(experiment_module, "_NUM_UPDATES", 120)
    measured = findings_of(BackupsAtScale(), results_of(BackupsAtScale(), runs, tmp_path))
    assert measured["without_traffic"] is not ClaimFinding.REFUTED
    # Broken on purpose: links that are never shared take the traffic's cost away.
    monkeypatch.setattr(experiment_module, "_TRANSFERS", {})
    broken = results_of(BackupsAtScale(), runs, tmp_path)
    assert findings_of(BackupsAtScale(), broken)["published_median"] is ClaimFinding.REFUTED
    cases = TrafficTimings.cases(broken)
    assert (
        find(cases, delays=Delays.STRAGGLERS, b=5, has_transfers=True).medians
        == find(cases, delays=Delays.STRAGGLERS, b=5, has_transfers=False).medians
    )


@pytest.mark.parametrize("updates", list(UpdateKind))
def test_a_training_learns_and_its_time_is_that_of_the_schedule(updates, monkeypatch):
    monkeypatch.setattr(experiment_module, "TARGET", 0.7)
    settings = AtScaleSettings(
        updates=updates, n=4, b=1 if updates == UpdateKind.BACKUP else 0, batch_size=4, num_epochs=3
    )
    figures = TrainingsAtScale().train(settings, 0.1, 0)
    assert figures.is_reached
    assert figures.accuracy > 0.8
    assert 0 < figures.time < figures.times[-1]
    # Four workers make a step of batch 4 in about a mean step, or longer where they wait for the slowest.
    epoch_steps = 3 * 1437 / (4 * 4)
    assert epoch_steps * 0.9 < figures.times[-1] < epoch_steps * (1.3 if updates == UpdateKind.ASYNC else 2.5)


def test_full_runs_have_four_backup_workers_among_64():
    arms = {arm.settings for arm in TrainingsAtScale().arms(quick=False)}
    assert {arm.n for arm in arms} == {4, 16, 64}
    assert {arm.n for arm in arms if arm.batch_size == 1} == {64}
    assert AtScaleSettings(updates=UpdateKind.BACKUP, n=64, b=4, batch_size=4, num_epochs=20) in arms
    runs = TrainingsAtScale().runs(range(10), quick=False)
    seeds = {size: {run.seed for run in runs if run.settings.batch_size == size} for size in (LARGE_BATCH, SMALL_BATCH)}
    assert seeds == {LARGE_BATCH: set(range(10)), SMALL_BATCH: set(range(10, 50))}  # new ones for small batches

"""The experiment on linear scaling: its claims hold, and fail for results that contradict them."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from ps_trainer.experiments.harness.claims import ClaimFinding
from ps_trainer.experiments.harness.runs import Results, RunResult
from ps_trainer.experiments.linear_scaling.experiment import LinearScaling
from ps_trainer.experiments.linear_scaling.runs import NUM_EXAMPLES, RATE, Scaling
from tests.experiments.executed import drawn


def as_claimed(run):
    """Examples of a run if every claim were true; None = not reached."""
    settings = run.settings
    base = 10_000 + 100 * run.seed
    by_scaling = {Scaling.NONE: settings.k, Scaling.ROOT: settings.k**0.5, Scaling.LINEAR: 1.2, Scaling.WARM: 1.0}
    factor = 1.0 if settings.k == 1 else by_scaling[settings.scaling] * (3 if settings.k == 32 else 1)
    return None if base * factor >= NUM_EXAMPLES else base * factor


def results_of(examples_of, *, quick=False):
    runs = LinearScaling().runs(range(4), quick=quick)
    figures = [SimpleNamespace(examples=examples_of(run), losses=[2.0, 1.0, 0.1 + run.settings.k / 10]) for run in runs]
    return Results(RunResult(run, one, 1.0, None, None) for run, one in zip(runs, figures, strict=True))


def findings(results):
    return {check.claim.key: check.finding for check in LinearScaling().analyse(results).checked}


def test_results_as_claimed_confirm_all_claims():
    results = results_of(as_claimed)
    assert set(findings(results).values()) == {ClaimFinding.OK}
    assert drawn(LinearScaling().plots(results)) == ["examples", "losses"]


def test_the_quick_form_names_the_claim_that_it_cannot_test():
    found = findings(results_of(as_claimed, quick=True))
    assert [key for key, finding in found.items() if finding is ClaimFinding.NOT_TESTABLE] == ["breaks"]


@pytest.mark.parametrize(
    ("claim", "scaling", "factor"),
    [
        ("same", Scaling.WARM, 2.0),
        ("further", Scaling.WARM, 2.0),
        ("unscaled", Scaling.NONE, 0.1),
        ("breaks", Scaling.WARM, 0.3),
        ("warmup", Scaling.LINEAR, 0.5),
        ("root", Scaling.ROOT, 0.2),
    ],
)
def test_contrary_runs_refute_a_claim(claim, scaling, factor):
    def examples_of(run):
        examples = as_claimed(run)
        is_changed = run.settings.scaling == scaling and run.settings.k > 1 and examples is not None
        return examples * factor if is_changed else examples

    assert findings(results_of(examples_of))[claim] is ClaimFinding.REFUTED


def test_where_both_miss_the_target_neither_is_said_to_need_more():
    missed = results_of(lambda run: None if run.settings.k == 32 else as_claimed(run))
    (check,) = [one for one in LinearScaling().analyse(missed).checked if one.claim.key == "warmup"]
    assert [measure.case for measure in check.measured] == ["k=8", "k=16"]


def test_the_rates_are_those_of_the_rules():
    rates = {(run.settings.k, run.settings.scaling): run.settings.lr for run in LinearScaling().runs([0], quick=False)}
    assert rates[4, Scaling.NONE] == RATE
    assert rates[4, Scaling.ROOT] == 2 * RATE
    assert rates[4, Scaling.LINEAR] == rates[4, Scaling.WARM] == 4 * RATE


def test_four_workers_at_four_times_the_rate_need_fewer_updates_than_one(monkeypatch):
    monkeypatch.setattr("ps_trainer.experiments.linear_scaling.runs.TARGET", 0.8)  # after few windows
    found = {}
    for run in LinearScaling().runs([0], quick=False):
        settings = run.settings
        if settings.k == 1 or (settings.k == 4 and settings.scaling in (Scaling.NONE, Scaling.LINEAR)):
            faster = dataclasses.replace(settings, lr=2 * settings.lr)
            figures = LinearScaling().execute(dataclasses.replace(run, settings=faster), None).figures
            found[settings.k, settings.scaling] = figures.examples
    assert found[4, Scaling.LINEAR] < 1.6 * found[1, Scaling.NONE]
    assert found[4, Scaling.NONE] > 2 * found[1, Scaling.NONE]

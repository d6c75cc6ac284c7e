"""Pilot runs: each arm gets the rate that is best on seeds of its own."""

from __future__ import annotations

import dataclasses

import pytest

from ps_trainer.experiments.harness.base import Experiment
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.toolkit.pilots import PILOT_SEEDS, Pilots, TunedArm, TunedPart, choose


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curved(Record):
    """Settings of a training whose cost is least at a rate."""

    best: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurvedFigures(Record):
    """Figures of such a training."""

    cost: float | None
    seed: int


class CurvedPart(TunedPart[Curved, CurvedFigures]):
    """Trainings that fail above twice their best rate."""

    figures_type = CurvedFigures

    def arms(self, *, quick):
        return [TunedArm(f"best={best:g}", Curved(best=best), (1.0, 2.0, 4.0, 8.0), 0.1) for best in (1.0, 3.0)]

    def train(self, settings, rate, seed):
        return CurvedFigures(cost=None if rate > 2 * settings.best else abs(rate - settings.best), seed=seed)

    def cost_of(self, figures):
        return figures.cost


class Tuned(Experiment):
    """A tuned part with its pilots."""

    name = "tuned"
    parts = (Pilots(CurvedPart()), CurvedPart())


def test_each_arm_is_trained_at_the_rate_of_its_pilot_run():
    experiment = Tuned()
    runs = experiment.runs([0, 1], quick=False)
    pilots, trainings = runs[:2], runs[2:]
    assert [run.key for run in pilots] == ["L0-pilot-best=1", "L0-pilot-best=3"]
    assert [(run.settings.best, run.seed) for run in trainings] == [(1.0, 0), (1.0, 1), (3.0, 0), (3.0, 1)]
    figures = {run.key: experiment.execute(run, None).figures for run in pilots}
    assert [one.rate for one in figures.values()] == [1.0, 2.0]  # 2 is as good as 4 for the second, and comes first
    assert figures["L0-pilot-best=1"].costs == {"1": [0, 0], "2": [1, 1], "4": [None, None], "8": [None, None]}
    for run in trainings:
        needed = figures[experiment.needed_by(run).key]
        assert experiment.execute(run, None, needed).figures == CurvedFigures(
            cost=abs(needed.rate - run.settings.best), seed=run.seed
        )


def test_no_claim_is_judged_on_a_pilot_seed():
    assert min(PILOT_SEEDS) > 100  # runs have the seeds 0, 1, 2, …


def test_a_rate_at_which_a_training_fails_comes_last():
    assert choose({1.0: [5.0, 7.0], 2.0: [1.0, None], 4.0: [4.0, 9.0]}).rate == 1.0
    failed = choose({1.0: [None, None], 2.0: [1.0, None]})
    assert (failed.rate, failed.cost) == (2.0, None)


def test_a_tuned_run_is_not_made_without_its_pilot():
    run = CurvedPart().runs([0], quick=True)[0]
    with pytest.raises(NotImplementedError, match="needs the learning rate of a pilot run"):
        CurvedPart().execute(run, None)

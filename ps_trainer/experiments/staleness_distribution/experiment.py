"""Experiment: the distribution of gradient staleness; its runs."""

from __future__ import annotations

import pathlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ps_trainer.experiments.harness.base import Experiment, Part
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Measured, Results, Run, run_key, runs_of_seeds
from ps_trainer.experiments.toolkit import calibration, real_clusters, virtual_run
from ps_trainer.experiments.toolkit.delayed_training import StepCost
from ps_trainer.experiments.toolkit.step_times import Shape

from . import claims, plots, tables
from .cases import (
    PAPER_LEARNERS,
    SHAPES,
    Staleness,
    StalenessFigures,
    StalenessSettings,
    compute_of,
    histograms_as_json,
    staleness_of,
)
from .texts import TEXTS

_COUNTS = (2, 4, 8, 16)
_VIRTUAL_MEAN_MS = 100.0
_NUM_LOGGED_STEPS = 500
# The claim on the tail needs these numbers of updates from five seeds. More workers make more updates in a second.
_NUM_UPDATES = {
    (2, Shape.EVEN): 1000,
    (4, Shape.EVEN): 1500,
    (8, Shape.EVEN): 2000,
    (16, Shape.EVEN): 2300,
}
_NUM_SLOW_UPDATES = 1700  # with one slow worker, which makes few of them
_VIRTUAL_SECS_PER_UPDATE = 1.5e-5


class VirtualStaleness(Part[StalenessSettings, StalenessFigures]):
    """Asynchronous workers and n-softsync in virtual time."""

    figures_type = StalenessFigures
    selects = {"level": Level.VIRTUAL}

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[StalenessSettings]]:
        def of(n: int, shape: Shape, *, splits: int | None = None, is_slow: bool | None = None) -> StalenessSettings:
            num_updates = 12_000 if quick else 20_000
            return StalenessSettings(
                n=n, shape=shape, splits=splits, is_slow=is_slow, mean_ms=_VIRTUAL_MEAN_MS, num_updates=num_updates
            )

        settings = [of(n, shape) for n in ((2, 4, 8) if quick else _COUNTS) for shape in SHAPES]
        settings += [of(4, shape, is_slow=True) for shape in SHAPES]
        settings += [of(8, Shape.MODERATE, splits=8 // c) for c in (2, 4, 8)]
        if not quick:
            settings += [of(n, shape) for n in (10, 20, 30, 60) for shape in (Shape.EVEN, Shape.EXPONENTIAL)]
            settings += [of(PAPER_LEARNERS, Shape.EVEN, splits=splits) for splits in (1, 15)]
        return [run for one in settings for run in _virtual_runs(seeds, one)]

    def execute(self, run: Run[StalenessSettings], folder: pathlib.Path) -> Measured[StalenessFigures]:
        update, options, compute = _rule_of(run.settings)
        n, num_updates = run.settings.n, run.settings.num_updates
        done = virtual_run.run(
            update,
            options,
            num_workers=n,
            compute=compute,
            num_updates=num_updates,
            seed=run.seed,
            start_secs=_start_secs(run.settings),
        )
        steps = done.step_records(_NUM_LOGGED_STEPS) if run.seed == 0 else ()
        return Measured(StalenessFigures(staleness=histograms_as_json(done.staleness_by_worker())), steps)


class RealStaleness(Part[StalenessSettings, StalenessFigures]):
    """Asynchronous workers and n-softsync on real clusters, and the claims about all runs."""

    figures_type = StalenessFigures
    claims = claims.CLAIMS
    sees_all = True

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[StalenessSettings]]:
        def of(n: int, shape: Shape, *, splits: int | None = None, is_slow: bool | None = None) -> StalenessSettings:
            num_updates = 400 if quick else _NUM_UPDATES.get((n, shape), _NUM_SLOW_UPDATES if is_slow else 700)
            return StalenessSettings(
                n=n,
                shape=shape,
                splits=splits,
                is_slow=is_slow,
                mean_ms=real_clusters.mean_ms(n),
                num_updates=num_updates,
            )

        if quick:
            return _real_runs(seeds, of(4, Shape.MODERATE))
        settings = [of(n, shape) for n in _COUNTS for shape in SHAPES]
        settings.append(of(4, Shape.EXPONENTIAL, is_slow=True))
        settings += [of(8, Shape.MODERATE, splits=8 // c) for c in (2, 4)]
        return [run for one in settings for run in _real_runs(seeds, one)]

    def needed_by(self, run: Run[StalenessSettings]) -> Run[Any] | None:
        """Returns the calibration run with the same rule."""
        return calibration.run_for(_delayed_training(run.settings), run.level)

    def execute(self, run: Run[StalenessSettings], folder: pathlib.Path) -> Measured[StalenessFigures]:
        return self._execute(run, folder, StepCost())

    def execute_with(
        self, run: Run[StalenessSettings], folder: pathlib.Path, needed: calibration.Calibration
    ) -> Measured[StalenessFigures]:
        return self._execute(run, folder, needed.cost)

    def _execute(self, run: Run[StalenessSettings], folder: pathlib.Path, cost: StepCost) -> Measured[StalenessFigures]:
        training = _delayed_training(run.settings).train(run, folder)
        by_worker = {
            worker: Counter(step.staleness for step in steps if step.staleness is not None)
            for worker, steps in training.by_worker().items()
        }
        delayed = _delayed_training(run.settings)
        simulated = delayed.simulate(run, cost, _start_secs(run.settings)).staleness_by_worker()
        figures = StalenessFigures(
            staleness=histograms_as_json(by_worker),
            steps_per_sec=training.steps_per_sec,
            simulated=histograms_as_json(simulated),
        )
        return Measured(figures, training.steps_as_json() if run.seed == 0 else (), training.window, run.settings.n)

    def cases(self, results: Results) -> list[Staleness]:
        """Returns the cases of the runs whose times count."""
        return staleness_of(results.uncontended())

    tables = staticmethod(tables.tables)
    plots = plots.PLOTS


class StalenessDistribution(Experiment):
    """The staleness of gradients: its mean and its distribution, by step times and numbers of workers."""

    name = "staleness_distribution"
    source = (
        "Zhang, Gupta, Lian and Liu 2016, section 2.4, Fig. 1; Hermans 2017, thesis; TensorFlow's docstring of"
        " SyncReplicasOptimizer; Mitliagkas et al. 2016"
    )
    texts = TEXTS
    published = claims.PUBLISHED
    parts = (calibration.Calibrations(), VirtualStaleness(), RealStaleness())


def _rule_of(settings: StalenessSettings) -> tuple[str, list[str], list[str]]:
    """Returns update rule, options and step times."""
    compute = compute_of(settings.shape, settings.mean_ms, is_slow=bool(settings.is_slow))
    return ("softsync", [f"splits={settings.splits}"], compute) if settings.splits else ("async", [], compute)


def _start_secs(settings: StalenessSettings) -> float:
    """Returns the time in which simulated workers begin, one after the other: a step.

    Those of a cluster do not begin at one moment, and nearly even steps keep the order in which workers begin.
    """
    return settings.mean_ms / 1000


def _delayed_training(settings: StalenessSettings) -> real_clusters.DelayedTraining:
    """Returns the training of a real cluster."""
    update, options, compute = _rule_of(settings)
    return real_clusters.DelayedTraining(update, options, settings.n, settings.num_updates, compute)


def _virtual_runs(seeds: Sequence[int], settings: StalenessSettings) -> list[Run[StalenessSettings]]:
    secs = _VIRTUAL_SECS_PER_UPDATE * settings.num_gradients
    return runs_of_seeds(seeds, _key("L0", settings), settings, secs)


def _real_runs(seeds: Sequence[int], settings: StalenessSettings) -> list[Run[StalenessSettings]]:
    secs = real_clusters.expected_secs(settings.n, settings.num_gradients / settings.n * settings.mean_ms / 1000)
    return runs_of_seeds(seeds, _key("L2", settings), settings, secs, real_clusters.LEVEL)


def _key(level: str, settings: StalenessSettings) -> str:
    return run_key(level, settings, without=("mean_ms", "num_updates"))

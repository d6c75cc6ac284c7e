"""Runs of the experiment on bulk synchronous, stale synchronous, and asynchronous workers."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ps_trainer.experiments.harness.base import Experiment, Part
from ps_trainer.experiments.harness.cases import case_factory
from ps_trainer.experiments.harness.claims import Elsewhere
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.runs import Measured, Run, runs_of_seeds
from ps_trainer.experiments.toolkit import real_clusters, virtual_run, virtual_training
from ps_trainer.experiments.toolkit.calibration import Calibrations
from ps_trainer.experiments.toolkit.clusters import Training
from ps_trainer.experiments.toolkit.step_times import Shape, with_mean

from . import cases, claims, plots, records, tables
from .cases import RealBound, TrainedBound
from .records import (
    BoundRun,
    BoundTrainingFigures,
    BoundTrainingSettings,
    ClockFigures,
    ClockModelFigures,
    ClockSettings,
    ClusterClockFigures,
    RealClockFigures,
    RealClockSettings,
)
from .texts import TEXTS

_NUM_LOGGED_STEPS = 300
_SECS_PER_STEP = 1e-5
_CLUSTERS = (
    *(
        (shape, n, False)
        for shape, n in ((Shape.EXPONENTIAL, 4), (Shape.EXPONENTIAL, 8), (Shape.MODERATE, 8), (Shape.SHIFTED, 8))
    ),
    (Shape.MODERATE, 4, True),
)

_BATCH_SIZE = 32
_TRAINED_BOUNDS = (0, 1, 3, 10, None)
_MAX_UPDATES = 480
_UPDATES_BETWEEN_TESTS = 8
_EXPECTED_SECS = 3.0

_REAL_BOUNDS = (0, 1, 3, 10, None)
_NUM_REAL_CLOCKS = 100
_QUICK_BOUND = 1


class BoundedTiming(Part[ClockSettings, Any]):
    """Clock rates, waiting and leads in virtual time, and the model's predictions."""

    claims = claims.OF_TIMING

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[ClockSettings]]:
        num_clocks = 500 if quick else 3000
        runs = []
        for (shape, n, is_slow), bound, what in itertools.product(
            _CLUSTERS, records.BOUNDS, (BoundRun.RULE, BoundRun.MODEL)
        ):
            key = f"{what}-n={n}-{shape.replace(' ', '_')}{'-slow' * is_slow}-s={bound}"
            settings = ClockSettings(what=what, shape=shape, n=n, is_slow=is_slow, bound=bound, num_clocks=num_clocks)
            runs += runs_of_seeds(seeds, key, settings, _SECS_PER_STEP * n * num_clocks)
        return runs

    def owns(self, run: Run[Any]) -> bool:
        return run.settings.what in (BoundRun.RULE, BoundRun.MODEL)

    def figures_type_of(self, settings: ClockSettings) -> type[Record]:
        return ClockModelFigures if settings.what is BoundRun.MODEL else ClockFigures

    def execute(self, run: Run[ClockSettings], folder: pathlib.Path) -> Measured[Any]:
        settings = run.settings
        n, bound, num_clocks = settings.n, settings.bound, settings.num_clocks
        compute = records.compute_of(settings.shape, n, is_slow=settings.is_slow)
        if settings.what is BoundRun.MODEL:
            return Measured(records.predict(compute, n, bound, num_clocks, run.seed))
        update, options = records.rule_of(bound)
        done = virtual_run.run(
            update, options, num_workers=n, compute=compute, num_updates=n * num_clocks, seed=run.seed
        )
        steps = done.step_records(_NUM_LOGGED_STEPS) if run.seed == 0 else ()
        return Measured(records.figures_of(done.schedule), steps)

    cases = staticmethod(cases.timed_bounds)
    tables = staticmethod(tables.of_timing)
    plots = plots.OF_TIMING


class BoundedTraining(Part[BoundTrainingSettings, BoundTrainingFigures]):
    """Updates and virtual time to a test loss, by bound and learning rate."""

    figures_type = BoundTrainingFigures
    selects = {"what": BoundRun.TRAINING}
    claims = claims.OF_TRAINING

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[BoundTrainingSettings]]:
        """Plans every bound with every learning rate; the quick form has no runs."""
        n, what = records.NUM_TRAINED_WORKERS, BoundRun.TRAINING
        return [
            run
            for bound, rate in itertools.product(() if quick else _TRAINED_BOUNDS, records.RATES)
            for settings in [BoundTrainingSettings(what=what, n=n, max_updates=_MAX_UPDATES, bound=bound, rate=rate)]
            for run in runs_of_seeds(seeds, f"{what}-s={bound}-rate={rate:g}", settings, _EXPECTED_SECS)
        ]

    def execute(self, run: Run[BoundTrainingSettings], folder: pathlib.Path) -> Measured[BoundTrainingFigures]:
        """Trains softmax regression on digits along a schedule with exponential steps. Imports TensorFlow."""
        from ps_trainer.simulation.replay.train import train

        settings = run.settings
        update, options = records.rule_of(settings.bound)
        schedule = virtual_run.run(
            update,
            options,
            num_workers=records.NUM_TRAINED_WORKERS,
            compute=records.compute_of(Shape.EXPONENTIAL, records.NUM_TRAINED_WORKERS, is_slow=False),
            num_updates=settings.max_updates,
            seed=run.seed,
        ).schedule
        training = virtual_training.setup_of("softmax", settings.rate, batch_size=_BATCH_SIZE, seed=run.seed)
        trained = train(
            training,
            schedule,
            update,
            options,
            evaluate_every=_UPDATES_BETWEEN_TESTS,
            stop_when=lambda evaluation: evaluation.metrics["loss"] <= records.TARGET_LOSS,
        )
        end = trained.evaluations[-1]
        has_reached = not trained.has_diverged and end.metrics["loss"] <= records.TARGET_LOSS
        figures = BoundTrainingFigures(
            updates=end.version if has_reached else None,
            time=end.secs / records.MEAN_SECS if has_reached else None,
            has_diverged=trained.has_diverged,
        )
        return Measured(figures)

    cases = staticmethod(case_factory(TrainedBound, "bound"))  # by rising bound, None last

    def why_none(self, cases: Sequence[TrainedBound]) -> str:
        return "" if cases else "the quick form trains nothing"

    tables = staticmethod(tables.of_training)
    plots = plots.OF_TRAINING


class RealBoundedClusters(real_clusters.RealPart[RealClockSettings]):
    """Shares of the time of real processes that sleep, and their largest leads."""

    figures_type = RealClockFigures
    claims = claims.OF_REAL_CLUSTERS

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[RealClockSettings]]:
        """Plans exponential steps under every bound; the quick form has one bound."""
        n, shape = records.NUM_REAL_WORKERS, Shape.EXPONENTIAL
        unbounded = RealClockSettings(
            what=BoundRun.REAL,
            shape=shape,
            n=n,
            is_slow=False,
            bound=None,
            num_clocks=_NUM_REAL_CLOCKS,
            mean_ms=records.REAL_MEAN_MS,
        )
        secs = real_clusters.expected_secs(n, 2 * _NUM_REAL_CLOCKS * records.REAL_MEAN_MS / 1000)
        return [
            run
            for bound in ((_QUICK_BOUND,) if quick else _REAL_BOUNDS)
            for run in runs_of_seeds(
                seeds,
                f"L2-n={n}-{shape}-s={bound}",
                dataclasses.replace(unbounded, bound=bound),
                secs,
                real_clusters.LEVEL,
            )
        ]

    def training_of(self, settings: RealClockSettings) -> real_clusters.DelayedTraining:
        update, options = records.rule_of(settings.bound)
        n, delays = settings.n, [with_mean(Shape(settings.shape).text, settings.mean_ms)]
        return real_clusters.DelayedTraining(update, options, n, n * settings.num_clocks, delays)

    def measured_figures(self, run: Run[RealClockSettings], training: Training) -> ClusterClockFigures:
        settings = run.settings
        return records.figures_of_training(training, settings.n, settings.bound, settings.mean_ms / 1000)

    def simulated_figures(self, run: Run[RealClockSettings], done: virtual_run.VirtualRun) -> ClockFigures:
        figures = records.figures_of(done.schedule, run.settings.mean_ms / 1000)
        return dataclasses.replace(figures, waits=float(np.mean(figures.wait_by_worker)))

    cases = staticmethod(case_factory(RealBound, "bound"))
    tables = staticmethod(tables.of_real_clusters)
    plots = plots.OF_REAL_CLUSTERS


class BoundedStaleness(Experiment):
    """The gain of a bound on the lead: waiting and clock rates from bulk synchronous to asynchronous workers."""

    name = "bounded_staleness"
    source = "Ho et al. 2013 (stale synchronous parallel); Li et al. 2014 (OSDI), section 3.5 (bounded delay)"
    texts = TEXTS
    tested_elsewhere = (
        Elsewhere("Ho et al.'s larger share of computing with cached reads", "client_cache", "computes"),
        Elsewhere("their shorter time than behind a barrier", "client_cache", "sooner_than_barrier"),
        Elsewhere("their shorter time than without a bound", "client_cache", "sooner_than_async"),
    )
    parts = (Calibrations(), BoundedTiming(), BoundedTraining(), RealBoundedClusters())
    num_quick_seeds = 1

"""Experiment: bulk synchronous, stale synchronous, and asynchronous workers. What is run, and how."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ps_trainer.experiments.harness.base import Experiment, Level, Measured, Part, Results, Run
from ps_trainer.experiments.harness.cases import cases_by
from ps_trainer.experiments.toolkit import real, virtual, virtual_training
from ps_trainer.experiments.toolkit.step_times import Shape, with_mean

from . import claims, plots, tables
from .cases import (
    BOUNDS,
    MEAN_SECS,
    NUM_REAL_WORKERS,
    NUM_TRAINED_WORKERS,
    RATES,
    REAL_MEAN_MS,
    TARGET_LOSS,
    BoundRun,
    RealBound,
    TimedBound,
    TrainedBound,
    compute_of,
    figures_of,
    figures_of_training,
    predict,
    rule_of,
    timed_bounds,
)

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


class BoundedTiming(Part):
    """Clock rates, waiting and leads in virtual time, and the model of them."""

    claims = claims.OF_TIMING

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run]:
        num_clocks = 500 if quick else 3000
        return [
            Run(
                key=f"{what}-n={n}-{shape.replace(' ', '_')}{'-slow' * is_slow}-s={bound}-seed={seed}",
                level=Level.VIRTUAL,
                settings={
                    "what": what,
                    "shape": shape,
                    "n": n,
                    "is_slow": is_slow,
                    "bound": bound,
                    "num_clocks": num_clocks,
                },
                seed=seed,
                expected_secs=_SECS_PER_STEP * n * num_clocks,
            )
            for shape, n, is_slow in _CLUSTERS
            for bound in BOUNDS
            for what in (BoundRun.RULE, BoundRun.MODEL)
            for seed in seeds
        ]

    def owns(self, run: Run) -> bool:
        return run.settings["what"] in (BoundRun.RULE, BoundRun.MODEL)

    def execute(self, run: Run, folder: pathlib.Path) -> Measured:
        settings = run.settings
        n, bound, num_clocks = settings["n"], settings["bound"], settings["num_clocks"]
        compute = compute_of(settings["shape"], n, is_slow=settings["is_slow"])
        if settings["what"] == BoundRun.MODEL:
            return Measured(predict(compute, n, bound, num_clocks, run.seed))
        update, options = rule_of(bound)
        done = virtual.run(update, options, num_workers=n, compute=compute, num_updates=n * num_clocks, seed=run.seed)
        steps = done.step_records(_NUM_LOGGED_STEPS) if run.seed == 0 else ()
        return Measured(figures_of(done.schedule), steps)

    cases = staticmethod(timed_bounds)

    def notes(self, cases: Sequence[TimedBound]) -> Sequence[str]:
        return tables.ON_TIMING

    tables = staticmethod(tables.of_timing)
    plots = plots.OF_TIMING


class BoundedTraining(Part):
    """Updates and virtual time to a test loss, by bound and learning rate."""

    selects = {"what": BoundRun.TRAINING}
    claims = claims.OF_TRAINING

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run]:
        """Every bound with every learning rate; none in the quick form."""
        return [
            Run(
                key=f"{BoundRun.TRAINING}-s={bound}-rate={rate:g}-seed={seed}",
                level=Level.VIRTUAL,
                settings={
                    "what": BoundRun.TRAINING,
                    "n": NUM_TRAINED_WORKERS,
                    "bound": bound,
                    "rate": rate,
                    "max_updates": _MAX_UPDATES,
                },
                seed=seed,
                expected_secs=_EXPECTED_SECS,
            )
            for bound in (() if quick else _TRAINED_BOUNDS)
            for rate in RATES
            for seed in seeds
        ]

    def execute(self, run: Run, folder: pathlib.Path) -> Measured:
        """Softmax regression on digits along a schedule with exponential steps. Imports TensorFlow."""
        from ps_trainer.simulation.replay.run import train

        settings = run.settings
        update, options = rule_of(settings["bound"])
        schedule = virtual.run(
            update,
            options,
            num_workers=NUM_TRAINED_WORKERS,
            compute=compute_of(Shape.EXPONENTIAL, NUM_TRAINED_WORKERS, is_slow=False),
            num_updates=settings["max_updates"],
            seed=run.seed,
        ).schedule
        training = virtual_training.digits("softmax", settings["rate"], batch_size=_BATCH_SIZE, seed=run.seed)
        trained = train(
            training,
            schedule,
            update,
            options,
            evaluate_every=_UPDATES_BETWEEN_TESTS,
            stop_when=lambda evaluation: evaluation.metrics["loss"] <= TARGET_LOSS,
        )
        end = trained.evaluations[-1]
        has_reached = not trained.has_diverged and end.metrics["loss"] <= TARGET_LOSS
        return Measured(
            {
                "updates": end.version if has_reached else None,
                "time": end.secs / MEAN_SECS if has_reached else None,
                "has_diverged": trained.has_diverged,
            }
        )

    def cases(self, results: Results) -> list[TrainedBound]:
        """By rising bound, that without one last."""
        return cases_by(TrainedBound, results, "bound")

    def notes(self, cases: Sequence[TrainedBound]) -> Sequence[str]:
        return tables.ON_TRAINING if cases else ()

    def why_none(self, cases: Sequence[TrainedBound]) -> str:
        return "" if cases else "the quick form trains nothing"

    tables = staticmethod(tables.of_training)
    plots = plots.OF_TRAINING


class RealBoundedClusters(real.RealPart):
    """Where the time of processes that sleep goes, and how far they drift apart."""

    claims = claims.OF_REAL_CLUSTERS

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run]:
        """Exponential steps under every bound; one of them in the quick form."""
        return [
            Run(
                key=f"L2-n={NUM_REAL_WORKERS}-{Shape.EXPONENTIAL}-s={bound}-seed={seed}",
                level=real.LEVEL,
                settings={
                    "what": BoundRun.REAL,
                    "shape": Shape.EXPONENTIAL,
                    "n": NUM_REAL_WORKERS,
                    "is_slow": False,
                    "bound": bound,
                    "num_clocks": _NUM_REAL_CLOCKS,
                    "mean_ms": REAL_MEAN_MS,
                },
                seed=seed,
                expected_secs=real.expected_secs(NUM_REAL_WORKERS, 2 * _NUM_REAL_CLOCKS * REAL_MEAN_MS / 1000),
            )
            for bound in ((_QUICK_BOUND,) if quick else _REAL_BOUNDS)
            for seed in seeds
        ]

    def execute(self, run: Run, folder: pathlib.Path) -> Measured:
        """Trains on a cluster, and simulates the same delays."""
        settings = run.settings
        n, mean_ms = settings["n"], settings["mean_ms"]
        setup: dict[str, Any] = {"num_workers": n, "num_updates": n * settings["num_clocks"]}
        update, options = rule_of(settings["bound"])
        shape = Shape(settings["shape"]).text
        training = real.train(run, folder, update=update, options=options, compute=[with_mean(shape, mean_ms)], **setup)
        schedule = virtual.run(update, options, compute=[shape], seed=run.seed, **setup).schedule
        simulated = figures_of(schedule)
        measured = figures_of_training(training, n, settings["bound"], mean_ms / 1000)
        figures = real.both(training, measured, simulated | {"waits": float(np.mean(simulated["wait_by_worker"]))})
        return Measured(figures, training.steps if run.seed == 0 else (), training.window)

    def cases(self, results: Results) -> list[RealBound]:
        return cases_by(RealBound, results, "bound")

    def notes(self, cases: Sequence[RealBound]) -> Sequence[str]:
        return tables.ON_REAL_CLUSTERS if cases else ()

    tables = staticmethod(tables.of_real_clusters)
    plots = plots.OF_REAL_CLUSTERS


class BoundedStaleness(Experiment):
    """What a bound on the lead buys: waiting and clock rates from bulk synchronous to asynchronous workers."""

    name = "bounded_staleness"
    source = "Ho et al. 2013 (stale synchronous parallel); Li et al. 2014 (OSDI), section 5 (bounded delay)"
    scale_down = (
        "In virtual time nothing but the drawn step times takes time. What a step is worth is measured in the full"
        f" form only: softmax regression on digits, {NUM_TRAINED_WORKERS} workers, batch {_BATCH_SIZE}, the best of"
        f" {len(RATES)} learning rates. The real clusters are {NUM_REAL_WORKERS} processes on one machine that sleep"
        " between pull and push. The sources trained far larger models on up to 1,000 machines."
    )
    published = claims.PUBLISHED
    parts = (BoundedTiming(), BoundedTraining(), RealBoundedClusters())
    num_quick_seeds = 1

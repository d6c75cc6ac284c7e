"""Runs of the experiment on stale synchronous parallel with a cache on each worker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ps_trainer.experiments.harness.base import Experiment
from ps_trainer.experiments.toolkit import virtual_run, virtual_training
from ps_trainer.experiments.toolkit.pilots import Pilots, TunedArm, TunedPart
from ps_trainer.experiments.toolkit.step_times import Shape
from ps_trainer.simulation.schedule import Schedule

from . import cases, claims, plots, tables
from .cases import BOUNDS, FRESH_BOUND, NUM_WORKERS, CacheFigures, CacheSettings, Problem, Reads
from .texts import TEXTS

MEAN_SECS = 0.1  # mean of step times whose text names no mean
_QUICK_BOUNDS = (0, 3)
_MAX_GRADIENTS = 4000
_QUICK_GRADIENTS = 2000
_QUICK_RATES = slice(1, 3)
_GRADIENTS_BETWEEN_TESTS = 40
_EXPECTED_SECS = 4.0
# A pull or a push alone takes an eighth of a mean step. If all 8 workers pull at once, it takes a whole one.
_LINK = {"model_bytes": 1_000_000, "ps_bytes_per_sec": 8_000_000 / MEAN_SECS}
_UPDATES = {Reads.CACHED: "ssp_cache", Reads.FRESH: "ssp", Reads.BARRIER: "sync", Reads.NONE: "async"}


class ProblemSetup(NamedTuple):
    """A problem's training and objective."""

    training: dict[str, Any]  # arguments of `virtual_training.setup_of`
    objective: float  # test loss
    rates: Sequence[float]  # grid of learning rates of a single gradient
    barrier_factor: int  # of these rates for the barrier, whose updates average the gradients of all workers


PROBLEM_SETUPS = {
    Problem.RATINGS: ProblemSetup(
        {
            "model": "matrix_factorization",
            "model_options": ("decay=0",),
            "dataset": "planted_ratings",
            "dataset_options": ("num_test=2000",),
            "optimizer": "sgd",
            "batch_size": 64,
        },
        objective=0.1,
        rates=(1.0, 1.4, 2.0, 2.8, 4.0, 5.6),
        barrier_factor=NUM_WORKERS,
    ),
    Problem.CLICKS: ProblemSetup(
        {
            "model": "logistic_regression",
            "model_options": (f"num_features={26 * 128}",),
            "dataset": "ps_trainer.experiments.toolkit.sparse_clicks:SparseClicks",
            "dataset_options": ("num_values=100", "num_buckets=128", "num_train=20000", "num_test=4000"),
            "optimizer": "ftrl",
            "optimizer_options": ("l1=0.1", "initial_accumulator_value=0.0001"),
            "batch_size": 64,
        },
        objective=0.62,
        rates=(0.04, 0.06, 0.08, 0.12, 0.16, 0.24),
        barrier_factor=2,  # the steps of FTRL depend little on the size of a gradient
    ),
}


class CachedReads(TunedPart[CacheSettings, CacheFigures]):
    """Time to an objective, by the rule and its bound."""

    figures_type = CacheFigures
    cost = "time (mean steps)"
    sees_all = True  # the pilot runs choose a bound
    claims = claims.OF_READS

    def arms(self, *, quick: bool) -> list[TunedArm]:
        kinds: list[tuple[Reads, int | None]] = [
            (Reads.CACHED, bound) for bound in (_QUICK_BOUNDS if quick else BOUNDS)
        ]
        kinds += [] if quick else [(Reads.FRESH, FRESH_BOUND)]
        kinds += [(Reads.BARRIER, None), (Reads.NONE, None)]
        limit, rates = (_QUICK_GRADIENTS, _QUICK_RATES) if quick else (_MAX_GRADIENTS, slice(None))
        return [
            TunedArm(
                f"{problem.name.lower()}-{reads.name.lower()}{'' if bound is None else f'-s={bound}'}",
                CacheSettings(problem=problem, reads=reads, bound=bound, max_gradients=limit),
                [
                    rate * (PROBLEM_SETUPS[problem].barrier_factor if reads == Reads.BARRIER else 1)
                    for rate in PROBLEM_SETUPS[problem].rates[rates]
                ],
                _EXPECTED_SECS,
            )
            for problem in (list(Problem)[:1] if quick else Problem)
            for reads, bound in kinds
        ]

    def train(self, settings: CacheSettings, rate: float, seed: int) -> CacheFigures:
        """Trains until the test loss reaches the objective. Imports TensorFlow."""
        from ps_trainer.simulation.replay.train import train

        setup, update = PROBLEM_SETUPS[settings.problem], _UPDATES[settings.reads]
        options = () if settings.bound is None else (f"staleness={settings.bound}",)
        per_update = NUM_WORKERS if settings.reads == Reads.BARRIER else 1
        schedule = virtual_run.run(
            update,
            options,
            num_workers=NUM_WORKERS,
            compute=[Shape.MODERATE.text],
            num_updates=settings.max_gradients // per_update,
            seed=seed,
            **_LINK,
        ).schedule
        trained = train(
            virtual_training.setup_of(learning_rate=rate, seed=seed, **setup.training),
            schedule,
            update,
            options,
            evaluate_every=_GRADIENTS_BETWEEN_TESTS // per_update,
            stop_when=lambda evaluation: evaluation.metrics["loss"] <= setup.objective,
        )
        times = [one.secs / MEAN_SECS for one in trained.evaluations]
        losses = [one.metrics["loss"] for one in trained.evaluations]
        is_reached = not trained.has_diverged and losses[-1] <= setup.objective
        # The loss between two tests is interpolated, so that the time does not depend on their distance.
        time, version = (
            virtual_training.crossing(values, losses, setup.objective) if is_reached else values[-1]
            for values in (times, [float(one.version) for one in trained.evaluations])
        )
        return CacheFigures(
            rate=rate,
            is_reached=is_reached,
            time=time,
            gradients=version * per_update,
            computes=_computing_share(schedule),
            pulls=cases.pulls_per_step(schedule),
            age=cases.largest_age(schedule),
            times=times,
            losses=[loss if math.isfinite(loss) else 1e9 for loss in losses],
        )

    def cost_of(self, figures: CacheFigures) -> float | None:
        return figures.time if figures.is_reached else None

    cases = staticmethod(cases.comparisons)
    tables = staticmethod(tables.of_reads)
    plots = plots.OF_READS


class ClientCache(Experiment):
    """Stale synchronous parallel with a cache on each worker, against a barrier and asynchronous workers."""

    name = "client_cache"
    source = "Ho et al. 2013 (stale synchronous parallel), abstract and sections 2 and 3"
    texts = TEXTS
    parts = (Pilots(CachedReads()), CachedReads())
    num_seeds = 10
    num_quick_seeds = 2


def _computing_share(schedule: Schedule) -> float:
    """Returns the share of the workers' time until the last update in which they compute."""
    steps = schedule.steps
    computed = float((steps.t_compute_done - steps.t_pull_done).sum())
    return computed / (schedule.num_workers * float(schedule.update_secs[-1]))

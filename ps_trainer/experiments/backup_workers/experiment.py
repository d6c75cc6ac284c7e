"""Runs of the experiment on stragglers and backup workers."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ps_trainer.experiments.harness.base import Experiment, Part
from ps_trainer.experiments.harness.cases import case_factory, cases_by
from ps_trainer.experiments.harness.claims import Elsewhere
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.runs import Measured, Results, Run, runs_of_seeds
from ps_trainer.experiments.toolkit import calibration, real_clusters, stock_calibration, virtual_run, virtual_training
from ps_trainer.experiments.toolkit.calibration import Calibrations
from ps_trainer.experiments.toolkit.clusters import Training
from ps_trainer.experiments.toolkit.delayed_training import IDLE, StepCost
from ps_trainer.experiments.toolkit.step_times import Shape, with_mean
from ps_trainer.experiments.toolkit.stock_calibration import StockCalibrations
from ps_trainer.experiments.toolkit.stock_clusters import StockCluster

from . import cases, claims, plots, records, tables
from .cases import RealBarrier, TrainedRule
from .records import (
    BackupStepFigures,
    BackupTrainingFigures,
    BackupTrainingSettings,
    ModelFigures,
    RealBarrierFigures,
    RealBarrierSettings,
    Rule,
    SweepSettings,
)
from .texts import TEXTS

REAL_BACKUPS = (0, 1, 2, 4)
# Backup workers with which other rules run beside the true barrier: with exponential steps, and with one slow worker.
COMPARED_BACKUPS = {Shape.EXPONENTIAL: (0, 1, 2), Shape.PERSISTENT: (1, 2)}
_REAL_RULES = (Rule.BARRIER, Rule.REPLICAS, Rule.STOCK)

_RULES = (Rule.TOKENS, Rule.BARRIER)
_NUM_LOGGED_STEPS = 300
_SECS_PER_GRADIENT = 1e-5


class _SweepPlan(NamedTuple):
    """Runs of several numbers of backup workers."""

    size: str  # value of `Sweep.size`
    num_workers: int  # N, or N + b where `is_total`
    backups: Sequence[int]
    shapes: Sequence[str]
    rules: Sequence[Rule]
    num_updates: int
    is_total: bool = False  # whether backup workers are taken from `num_workers`
    num_model_seeds: int = 5  # largest number of repetitions of the models


_SMALL_SHAPES = tuple(shape for shape in Shape if shape not in (Shape.NEARLY_EVEN, Shape.NARROW))
_LARGE_SHAPES = (Shape.EVEN, Shape.SHIFTED, Shape.NARROW, Shape.MODERATE, Shape.SPIKES)
_PLANS = (
    _SweepPlan("N = 4", 4, range(5), _SMALL_SHAPES, _RULES, 2000),
    _SweepPlan("N = 8", 8, range(7), _SMALL_SHAPES, _RULES, 2000),
    _SweepPlan(records.OF_50, 50, range(6), _LARGE_SHAPES, _RULES, 800, num_model_seeds=1),
    _SweepPlan(
        records.OF_100,
        100,
        (0, 2, 4, 6, 8, 10, 15),
        (Shape.NARROW, Shape.MODERATE),
        _RULES,
        600,
        is_total=True,
        num_model_seeds=1,
    ),
)
_QUICK_PLANS = (
    _SweepPlan("N = 8", 8, (0, 1, 2, 4, 6), _SMALL_SHAPES, _RULES, 800),
    _SweepPlan(records.OF_50, 50, (0, 3, 5), (Shape.SHIFTED, Shape.NARROW), (Rule.TOKENS,), 300),
    _SweepPlan(records.OF_100, 100, (0, 4, 10), (Shape.NARROW,), (Rule.TOKENS,), 400, is_total=True),
)

_BATCH_SIZE = 8
_LEARNING_RATE = 0.2
_MODEL_OPTIONS = ("hidden=32",)
_MAX_UPDATES = 250
_TRAINING_SECS = 3.0

# Mean steps of real clusters at which their tasks wait for two cores for less than 2 % of a step. The stock class, and
# ours of the same name, take more messages for each update.
_MEAN_MS, _COMPARED_MS, _FEW_MS = 1000.0, 1450.0, 800.0
_NUM_REAL_UPDATES = {0: 25, 1: 25, 2: 30, 4: 30}  # by b
_NUM_COMPARED_UPDATES = {0: 20, 1: 20, 2: 25, 4: 25}  # by b, with exponential steps
_NUM_SLOW_UPDATES = 8  # with one slow worker and no backup worker, because an update then takes ten mean steps
_NUM_FEW_UPDATES = 40
_NUM_QUICK_UPDATES = 15
# Upper bounds of the mean steps per update, for the estimate of the remaining time.
_LONGEST_STEPS: dict[str, float] = {
    Shape.EXPONENTIAL: 2.7,
    Shape.MODERATE: 1.9,
    Shape.PERSISTENT: 1.5,
    Shape.SHIFTED: 1.4,
}
_SLOWEST_STEPS = 10.0


class BackupTiming(Part[SweepSettings, Any]):
    """Time per update in virtual time: both rules and their models, by number of workers and shape of step times."""

    figures_type = BackupStepFigures
    selects = {"level": Level.VIRTUAL, "what": None}
    claims = claims.OF_TIMING

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[SweepSettings]]:
        return [run for plan in (_QUICK_PLANS if quick else _PLANS) for run in _runs_of(plan, seeds)]

    def figures_type_of(self, settings: SweepSettings) -> type[Record]:
        return ModelFigures if settings.rule is Rule.MODELS else BackupStepFigures

    def execute(self, run: Run[SweepSettings], folder: pathlib.Path) -> Measured[Any]:
        settings = run.settings
        n, num_updates, rule = settings.n, settings.num_updates, settings.rule
        if rule is Rule.MODELS:
            return Measured(records.predict(settings.shape, settings.num_needed, settings.b, num_updates, run.seed))
        options = records.options_of(rule, n, settings.b)
        compute = [Shape(settings.shape).text]
        done = virtual_run.run(rule, options, num_workers=n, compute=compute, num_updates=num_updates, seed=run.seed)
        steps = done.step_records(_NUM_LOGGED_STEPS) if run.seed == 0 and n <= 10 else ()
        has_arrivals = rule is Rule.TOKENS and not settings.b
        return Measured(records.figures_of(done, settings.num_needed, has_arrivals=has_arrivals), steps)

    cases = staticmethod(cases.timings_of)
    tables = staticmethod(tables.of_timings)
    plots = plots.OF_TIMINGS


class BackupTraining(Part[BackupTrainingSettings, BackupTrainingFigures]):
    """Updates to a training accuracy in virtual time, by number of backup workers."""

    figures_type = BackupTrainingFigures
    selects = {"what": records.TRAINING}
    claims = claims.OF_TRAINING

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[BackupTrainingSettings]]:
        """Plans both rules with every number of backup workers; the quick form has the token queue with 0 and 2."""
        kinds = list(itertools.product((Shape.EXPONENTIAL, Shape.PERSISTENT), _RULES, REAL_BACKUPS))
        quick_kinds = [(Shape.EXPONENTIAL, Rule.TOKENS, b) for b in (0, 2)]
        runs = []
        for shape, rule, b in quick_kinds if quick else kinds:
            settings = BackupTrainingSettings(
                what=records.TRAINING,
                shape=shape,
                rule=rule,
                n=records.NUM_NEEDED + b,
                b=b,
                lr=_LEARNING_RATE,
                batch_size=_BATCH_SIZE,
            )
            runs += runs_of_seeds(
                seeds, f"{records.TRAINING}-{rule}-b={b}-{shape.replace(' ', '_')}", settings, _TRAINING_SECS
            )
        return runs

    def execute(self, run: Run[BackupTrainingSettings], folder: pathlib.Path) -> Measured[BackupTrainingFigures]:
        """Trains a perceptron on digits along a schedule. Imports TensorFlow."""
        settings = run.settings
        rule, n, batch_size = settings.rule, settings.n, settings.batch_size
        options, compute = records.options_of(rule, n, settings.b), [Shape(settings.shape).text]
        done = virtual_run.run(rule, options, num_workers=n, compute=compute, num_updates=_MAX_UPDATES, seed=run.seed)
        course = virtual_training.course_of(
            done.schedule,
            rule,
            options,
            model="mlp",
            model_options=_MODEL_OPTIONS,
            learning_rate=settings.lr,
            batch_size=batch_size,
            seed=run.seed,
        )
        return Measured(BackupTrainingFigures(updates=course.target_version, accuracy=course.accuracy))

    cases = staticmethod(case_factory(TrainedRule, "shape", "rule", "b"))
    tables = staticmethod(tables.of_training)


class RealBackupClusters(real_clusters.RealPart[RealBarrierSettings]):
    """The true barrier on real processes that sleep, beside TensorFlow's own class, and ours of the same name."""

    figures_type = RealBarrierFigures
    claims = claims.OF_REAL_CLUSTERS

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[RealBarrierSettings]]:
        """Plans N = 8 workers with 0 to 4 backup workers, with the same seeds; the quick form has two short runs."""
        if quick:
            return [
                *_real_runs(seeds[:1], Shape.MODERATE, Rule.BARRIER, 4, 1, _NUM_QUICK_UPDATES, _COMPARED_MS),
                *_real_runs(seeds[:1], Shape.MODERATE, Rule.STOCK, 4, 1, _NUM_QUICK_UPDATES, _COMPARED_MS),
            ]
        needed = records.NUM_NEEDED
        runs = _real_runs(seeds, Shape.SHIFTED, Rule.BARRIER, needed, 0, _NUM_REAL_UPDATES[0], _MEAN_MS)
        for b in REAL_BACKUPS:
            for rule in _REAL_RULES if b in COMPARED_BACKUPS[Shape.EXPONENTIAL] else (Rule.BARRIER,):
                updates = _NUM_COMPARED_UPDATES[b]
                runs += _real_runs(seeds, Shape.EXPONENTIAL, rule, needed, b, updates, _COMPARED_MS)
        for shape, b in itertools.product((Shape.MODERATE, Shape.PERSISTENT), REAL_BACKUPS):
            updates = _NUM_SLOW_UPDATES if shape == Shape.PERSISTENT and not b else _NUM_REAL_UPDATES[b]
            runs += _real_runs(seeds, shape, Rule.BARRIER, needed, b, updates, _MEAN_MS)
        # With one slow worker, the rules differ most among few workers.
        for b, rule in itertools.product(COMPARED_BACKUPS[Shape.PERSISTENT], _REAL_RULES):
            runs += _real_runs(seeds, Shape.PERSISTENT, rule, records.NUM_FEW, b, _NUM_FEW_UPDATES, _FEW_MS)
        return runs

    def training_of(self, settings: RealBarrierSettings) -> real_clusters.DelayedTraining:
        rule, n, text = settings.rule, settings.n, Shape(settings.shape).text
        options, delays = records.options_of(rule, n, settings.b), [with_mean(text, settings.mean_ms)]
        layout = {"layout": "per_variable"} if rule is Rule.REPLICAS else {}  # as TensorFlow's class has it
        return real_clusters.DelayedTraining(rule, options, n, settings.num_updates, delays, {**IDLE, **layout})

    def needed_by(self, run: Run[RealBarrierSettings]) -> Run[Any]:
        """Returns the calibration run with the same rule and model; of the stock class, that of the script."""
        if run.settings.rule is Rule.STOCK:
            return stock_calibration.run_for(IDLE)
        training = self.training_of(run.settings)
        return calibration.run_for(training._replace(options=()), run.level)  # with one worker

    def train(self, run: Run[RealBarrierSettings], folder: pathlib.Path) -> Training:
        """Trains on the cluster; the stock class by the hand-written script."""
        if run.settings.rule is not Rule.STOCK:
            return super().train(run, folder)
        delayed = self.training_of(run.settings)
        flags = {**delayed.settings, "straggler": delayed.compute, "seed": run.seed}
        return StockCluster(
            num_workers=delayed.num_workers,
            num_updates=delayed.num_updates,
            settings={**flags, "replicas_to_aggregate": run.settings.num_needed},
            deadline_secs=10 * run.expected_secs,
        ).train(folder)

    def measured_figures(self, run: Run[RealBarrierSettings], training: Training) -> BackupStepFigures:
        figures_of = records.figures_of_stock if run.settings.rule is Rule.STOCK else records.figures_of_training
        return figures_of(training, run.settings.mean_ms / 1000)

    def simulated_figures(self, run: Run[RealBarrierSettings], done: virtual_run.VirtualRun) -> BackupStepFigures:
        mean_secs = run.settings.mean_ms / 1000
        return records.figures_of(done, run.settings.num_needed, has_arrivals=False, mean_secs=mean_secs)

    def figures_of(
        self, run: Run[RealBarrierSettings], training: Training, done: virtual_run.VirtualRun, cost: StepCost
    ) -> RealBarrierFigures:
        """Returns the figures of a run, with the models' times for the same delays."""
        settings = run.settings
        return RealBarrierFigures(
            measured=self.measured_figures(run, training),
            simulated=self.simulated_figures(run, done),
            overhead_secs=cost.overhead_secs,
            models=records.predict(settings.shape, settings.num_needed, settings.b, settings.num_updates, run.seed),
        )

    def cases(self, results: Results) -> list[RealBarrier]:
        """Returns the cases of the runs whose times count."""
        return cases_by(RealBarrier, results.uncontended(), "shape", "n", "b", "rule")

    tables = staticmethod(tables.of_real_clusters)
    plots = plots.OF_REAL_CLUSTERS


class BackupWorkers(Experiment):
    """The gain of backup workers, by rule and by the tail of the step times: token queue, true barrier, theory."""

    name = "backup_workers"
    source = (
        "Chen, Pan, Monga, Bengio and Jozefowicz 2016, on arrivals and the choice of N and b; Abadi et al. 2016 (OSDI),"
        " section 6.3, Fig. 8c"
    )
    texts = TEXTS
    tested_elsewhere = (
        Elsewhere("Chen et al.'s better final accuracy with backup workers", "backups_at_scale", "accuracy"),
        Elsewhere("Abadi et al.'s loss by the traffic of a fifth backup worker", "backups_at_scale", "fifth"),
    )
    published = claims.PUBLISHED
    parts = (Calibrations(), StockCalibrations(), BackupTiming(), BackupTraining(), RealBackupClusters())
    num_quick_seeds = 1


def _runs_of(plan: _SweepPlan, seeds: Sequence[int]) -> Iterator[Run[SweepSettings]]:
    for shape, num_backup in itertools.product(plan.shapes, plan.backups):
        n = plan.num_workers + (0 if plan.is_total else num_backup)
        for rule in (*plan.rules, Rule.MODELS):
            settings = SweepSettings(
                shape=shape, size=plan.size, n=n, b=num_backup, rule=rule, num_updates=plan.num_updates
            )
            yield from runs_of_seeds(
                seeds[: plan.num_model_seeds] if rule == Rule.MODELS else seeds,
                f"{rule}-n={n}-b={num_backup}-{shape.replace(' ', '_')}",
                settings,
                _SECS_PER_GRADIENT * n * plan.num_updates,
            )


def _real_runs(
    seeds: Sequence[int], shape: str, rule: Rule, needed: int, b: int, num_updates: int, mean_ms: float
) -> list[Run[RealBarrierSettings]]:
    n = needed + b
    settings = RealBarrierSettings(
        shape=shape, size=f"N = {needed}", n=n, b=b, rule=rule, num_updates=num_updates, mean_ms=mean_ms
    )
    steps = _SLOWEST_STEPS if shape == Shape.PERSISTENT and not b else _LONGEST_STEPS[shape]
    return runs_of_seeds(
        seeds,
        f"L2-{rule}-n={n}-b={b}-{shape.replace(' ', '_')}",
        settings,
        real_clusters.expected_secs(n, num_updates * steps * mean_ms / 1000),
        real_clusters.LEVEL,
    )

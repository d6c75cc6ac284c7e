"""Runs of the experiment on backup workers among many workers."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Sequence

import numpy as np

from ps_trainer.experiments.harness.base import Experiment, Part
from ps_trainer.experiments.harness.cases import case_factory
from ps_trainer.experiments.harness.runs import Measured, Run, runs_of_seeds, unseen_seeds
from ps_trainer.experiments.toolkit import virtual_run, virtual_training
from ps_trainer.experiments.toolkit.pilots import Pilots, TunedArm, TunedPart
from ps_trainer.experiments.toolkit.statistics import without_warmup
from ps_trainer.experiments.toolkit.step_times import Shape, with_mean

from . import claims, plots, tables
from .cases import (
    LARGE_BATCH,
    NUM_NEEDED,
    SMALL_BATCH,
    TARGET,
    TRAFFIC,
    AtScale,
    AtScaleFigures,
    AtScaleSettings,
    Delays,
    TimedTraffic,
    TrafficFigures,
    TrafficSettings,
    UpdateKind,
)
from .texts import TEXTS

# Stale gradients of many workers need smaller rates, and large batches larger ones.
RATES = {
    UpdateKind.ASYNC: (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4),
    UpdateKind.SYNC: (0.1, 0.2, 0.4, 0.8, 1.6, 3.2),
    UpdateKind.BACKUP: (0.1, 0.2, 0.4, 0.8, 1.6, 3.2),
}
_RATES_OF_SMALL = {  # of batches of 1
    UpdateKind.ASYNC: (0.003125, 0.00625, 0.0125, 0.025, 0.05, 0.1),
    UpdateKind.SYNC: RATES[UpdateKind.SYNC],
    UpdateKind.BACKUP: RATES[UpdateKind.BACKUP],
}
_QUICK_RATES = (0.1, 0.2)
_MEAN_SECS = 0.1  # mean of step times whose text names no mean
_COUNTS = (4, 16, 64)
_QUICK_SIZES = ((LARGE_BATCH, 4),)  # batch of a worker, number of workers
_NUM_TRAIN = 1437
_NUM_EPOCHS = 20
_QUICK_EPOCHS = 3
_SECS_PER_GRADIENT = 0.001
_RULES = {UpdateKind.ASYNC: "async", UpdateKind.SYNC: "sync", UpdateKind.BACKUP: "backup"}

# Inception-v3: batches of 32 that a K40 computes in 32/28 s, 23.8 million parameters, 17 ps tasks, links of 1 GB/s.
_COMPUTE_MS = 1000 * 32 / 28
_TRANSFERS = {"model_bytes": 95_200_000, "num_ps": 17, "worker_bytes_per_sec": 1e9, "ps_bytes_per_sec": 1e9}
# As many stragglers among 50 workers as the source's best number of backup workers. They take a quarter longer, since
# the published numbers allow a median without backup workers of at most 2.28 s.
_SHAPES = {Delays.STRAGGLERS: "spike:p=0.08,factor=1.25", Delays.VARIED: Shape.NARROW.text}
_NUM_UPDATES = 400


class TrainingsAtScale(TunedPart[AtScaleSettings, AtScaleFigures]):
    """Final test accuracy, and time to a test accuracy, by the number of workers."""

    figures_type = AtScaleFigures
    cost = "test error at the end"
    selects = {"what": None}
    claims = claims.OF_TRAINING

    def arms(self, *, quick: bool) -> list[TunedArm]:
        arms = []
        sizes = [(LARGE_BATCH, n) for n in _COUNTS] + [(SMALL_BATCH, _COUNTS[-1])]
        for (batch_size, n), updates in itertools.product(_QUICK_SIZES if quick else sizes, UpdateKind):
            b = max(1, n // 16) if updates == UpdateKind.BACKUP else 0  # 4 of 64, as Chen et al. have 4 of 100
            name = f"{updates.name.lower()}-n={n}-batch={batch_size}"
            num_epochs = _QUICK_EPOCHS if quick else _NUM_EPOCHS
            settings = AtScaleSettings(updates=updates, n=n, b=b, batch_size=batch_size, num_epochs=num_epochs)
            secs = 0.5 + _SECS_PER_GRADIENT * num_epochs * _NUM_TRAIN / batch_size
            rates = _RATES_OF_SMALL if batch_size == SMALL_BATCH else RATES
            arms.append(TunedArm(name, settings, _QUICK_RATES if quick else rates[updates], secs))
        return arms

    def seeds_of(self, arm: TunedArm, seeds: Sequence[int]) -> Sequence[int]:
        """Returns those of the experiment; for batches of 1, which these left undecided, more that nobody has seen."""
        return unseen_seeds(seeds) if arm.settings.batch_size == SMALL_BATCH else seeds

    def train(self, settings: AtScaleSettings, rate: float, seed: int) -> AtScaleFigures:
        """Trains a perceptron on digits for a number of used gradients. Imports TensorFlow."""
        from ps_trainer.simulation.replay.train import train

        n, batch_size, update = settings.n, settings.batch_size, _RULES[settings.updates]
        per_update = 1 if settings.updates == UpdateKind.ASYNC else n - settings.b
        options = (f"backup_workers={settings.b}",) if settings.updates == UpdateKind.BACKUP else ()
        updates_per_epoch = _NUM_TRAIN / (batch_size * per_update)
        schedule = virtual_run.run(
            update,
            options,
            num_workers=n,
            compute=[Shape.MODERATE.text],
            num_updates=round(settings.num_epochs * updates_per_epoch),
            seed=seed,
        ).schedule
        setup = virtual_training.setup_of("mlp", rate, model_options=("hidden=32",), batch_size=batch_size, seed=seed)
        trained = train(setup, schedule, update, options, evaluate_every=max(1, round(updates_per_epoch / 2)))
        times = [one.secs / _MEAN_SECS for one in trained.evaluations]
        accuracies = [one.metrics["accuracy"] for one in trained.evaluations]
        if trained.has_diverged:
            accuracies[-1] = 0.0
        errors = [1 - accuracy for accuracy in accuracies]
        is_reached = min(errors) <= 1 - TARGET
        return AtScaleFigures(
            rate=rate,
            accuracy=0.0 if trained.has_diverged else float(np.mean(accuracies[-(len(accuracies) // 4) :])),
            is_reached=is_reached,
            time=virtual_training.crossing(times, errors, 1 - TARGET) if is_reached else times[-1],
            times=times,
            accuracies=accuracies,
        )

    def cost_of(self, figures: AtScaleFigures) -> float | None:
        return 1 - figures.accuracy

    cases = staticmethod(case_factory(AtScale, "updates", "n", "batch_size"))
    tables = staticmethod(tables.of_training)
    plots = plots.OF_TRAINING


class TrafficTimings(Part[TrafficSettings, TrafficFigures]):
    """Time per update of TensorFlow's token queue, by the number of backup workers, with and without transfers."""

    figures_type = TrafficFigures
    selects = {"what": TRAFFIC}
    claims = claims.OF_TRAFFIC

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[TrafficSettings]]:
        kinds = [(Delays.STRAGGLERS, True), (Delays.STRAGGLERS, False), (Delays.VARIED, True)]
        return [
            run
            for (delays, has_transfers), b in itertools.product(kinds, (4, 5) if quick else range(7))
            for settings in [TrafficSettings(delays=delays, has_transfers=has_transfers, b=b)]
            for name in [f"{delays.name.lower()}-{'with' if has_transfers else 'without'}_transfers-b={b}"]
            for run in runs_of_seeds(seeds, f"L0-{TRAFFIC}-{name}", settings, 1.0)
        ]

    def execute(self, run: Run[TrafficSettings], folder: pathlib.Path) -> Measured[TrafficFigures]:
        settings = run.settings
        updates = virtual_run.run(
            "token_queue",
            [f"replicas_to_aggregate={NUM_NEEDED}"],
            num_workers=NUM_NEEDED + settings.b,
            compute=[with_mean(_SHAPES[settings.delays], _COMPUTE_MS)],
            num_updates=_NUM_UPDATES,
            seed=run.seed,
            **(_TRANSFERS if settings.has_transfers else {}),
        ).schedule.update_secs
        secs, _ = without_warmup(np.diff(updates))
        return Measured(TrafficFigures(p50=float(np.median(secs)), step=float(np.mean(secs))))

    cases = staticmethod(case_factory(TimedTraffic, "delays", "has_transfers", "b"))
    tables = staticmethod(tables.of_traffic)
    plots = plots.OF_TRAFFIC


class BackupsAtScale(Experiment):
    """Backup workers among many workers: final accuracy, time to an accuracy, and one backup worker too many."""

    name = "backups_at_scale"
    source = "Chen et al. 2016, abstract; Abadi et al. 2016 (OSDI), section 6.3, Fig. 8c"
    texts = TEXTS
    parts = (Pilots(TrainingsAtScale()), TrainingsAtScale(), TrafficTimings())
    published = claims.PUBLISHED
    num_seeds = 10
    num_quick_seeds = 2

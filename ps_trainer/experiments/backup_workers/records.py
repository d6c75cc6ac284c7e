"""Settings and figures of runs with backup workers, and how a run or a model gives its figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ps_trainer.experiments.harness.labels import Label
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.toolkit import monte_carlo, real_clusters, step_times
from ps_trainer.experiments.toolkit.clusters import Training
from ps_trainer.experiments.toolkit.statistics import WARMUP_SHARE, spread
from ps_trainer.experiments.toolkit.step_times import Shape
from ps_trainer.experiments.toolkit.virtual_run import VirtualRun
from ps_trainer.simulation.schedule import DROPPED


class Rule(Label):
    """Subject of a run: one update rule, or the models of both rules.

    `STOCK` is TensorFlow's own `SyncReplicasOptimizer` in a hand-written script, `TOKENS` its queue in virtual time.
    `REPLICAS` is the subclass that `--update=sync_replicas` runs, with a queue of tokens for each worker.
    """

    TOKENS = "token_queue"
    BARRIER = "backup"
    STOCK = "stock_sync"
    REPLICAS = "sync_replicas"
    MODELS = "models"

    @property
    def words(self) -> str:
        return {
            Rule.TOKENS: "token queue",
            Rule.BARRIER: "true barrier",
            Rule.STOCK: "stock class",
            Rule.REPLICAS: "token queue per worker",
        }.get(self, self.value)


OF_50, OF_100 = "N = 50", "N + b = 100"
SLOW_WORKER = 0  # index of the slow worker of `persistent`

TRAINING = "training"  # purpose of a run
NUM_NEEDED = 8  # N of the trainings and of the real clusters
NUM_FEW = 4  # N of the real clusters on which rules are compared with one slow worker

QUANTILES = tuple(range(0, 101, 5))
_SHOWN_OF_MANY = (50, 90, 95, 98, 99, 100)  # percent of the workers, if there are too many to show all
MEAN_SECS = 0.1  # mean of step times whose text names no mean


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepSettings(Record):
    """Settings of a run that times a rule, or computes the models."""

    shape: str  # of the step times
    size: str  # "N = 8" or "N + b = 100"
    n: int  # number of workers, backup workers included
    b: int  # number of backup workers
    rule: Rule
    num_updates: int

    @property
    def num_needed(self) -> int:
        """N, gradients to an update."""
        return self.n - self.b


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealBarrierSettings(SweepSettings):
    """Settings of a run of a real cluster."""

    mean_ms: float  # mean step


@dataclasses.dataclass(frozen=True, kw_only=True)
class BackupTrainingSettings(Record):
    """Settings of a training in virtual time."""

    what: str  # `TRAINING`
    shape: str
    rule: Rule
    n: int
    b: int
    lr: float
    batch_size: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class BackupStepFigures(Record):
    """Figures of a run after warm-up, with times per update in mean steps."""

    step: float  # mean time per update, and percentiles
    p50: float
    p10: float
    p90: float
    dropped_share: float  # gradients dropped, of all, 0..1
    dropped_staleness: float | None = None  # mean; None = none was dropped, or not measured
    share_by_worker: Sequence[float]  # share of each worker in the used gradients
    arrivals: Mapping[str, Sequence[float]] | None = None  # k -> `QUANTILES` of the time to the k-th gradient


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelFigures(Record):
    """The models' times per update, in mean steps, and the dropped share of the true barrier."""

    cancelled: float  # cancelled stragglers, an order statistic
    backup: float  # true barrier
    token_queue: float
    dropped_share: float

    def of(self, rule: Rule) -> float:
        """Returns the time per update of a rule's model."""
        return self.token_queue if rule in (Rule.TOKENS, Rule.STOCK) else self.backup


@dataclasses.dataclass(frozen=True, kw_only=True)
class BackupTrainingFigures(Record):
    """Figures of a training in virtual time."""

    updates: int | None  # to the target; None = not reached
    accuracy: float  # training accuracy in the last window


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealBarrierFigures(real_clusters.RealFigures):
    """Figures of a cluster, of its simulation, and of the models with the same delays."""

    measured: BackupStepFigures
    simulated: BackupStepFigures
    models: ModelFigures


def figures_of(
    run: VirtualRun, num_needed: int, *, has_arrivals: bool, mean_secs: float = MEAN_SECS
) -> BackupStepFigures:
    """Returns the figures of a run after warm-up, with times in units of the mean step.

    `has_arrivals` says whether all workers begin each update together. Only then do arrivals count from a common start.
    """
    steps, updates = run.warm_steps, run.schedule.update_secs
    is_dropped = steps.update == DROPPED
    used = np.bincount(steps.worker[steps.update >= 0], minlength=run.schedule.num_workers)
    return BackupStepFigures(
        **_step_figures(updates, mean_secs),
        dropped_share=float(is_dropped.mean()),
        dropped_staleness=float(steps.staleness[is_dropped].mean()) if is_dropped.any() else None,
        share_by_worker=(used / used.sum()).tolist(),
        arrivals=_arrivals(run, num_needed) if has_arrivals else None,
    )


def options_of(rule: str, num_workers: int, num_backup: int) -> list[str]:
    """Returns the values of `--update_option` that give a rule this number of backup workers among all workers."""
    needed = num_workers - num_backup
    return [f"backup_workers={num_backup}" if rule == Rule.BARRIER else f"replicas_to_aggregate={needed}"]


def predict(shape: str, num_needed: int, num_backup: int, num_updates: int, seed: int) -> ModelFigures:
    """Returns the models' times per update, in mean steps: cancelled stragglers, true barrier, token queue.

    The models use the step times of the run with the same seed. A comparison therefore needs few steps, even if the
    step times have a heavy tail.
    """

    def samplers() -> list[monte_carlo.Sampler]:
        return step_times.samplers([Shape(shape).text], num_needed + num_backup, seed)

    barrier = monte_carlo.backup_not_cancelled(samplers(), num_needed, num_updates)
    return ModelFigures(
        cancelled=monte_carlo.order_statistic(samplers(), num_needed, num_updates).value / MEAN_SECS,
        backup=barrier.step_secs.value / MEAN_SECS,
        token_queue=monte_carlo.token_queue(samplers(), num_needed, num_updates).step_secs.value / MEAN_SECS,
        dropped_share=barrier.dropped_share,
    )


def figures_of_training(training: Training, mean_secs: float) -> BackupStepFigures:
    """Returns the figures of a cluster's run as of a simulated run, with times after warm-up in mean steps."""
    workers = [worker for _, worker in sorted(training.summary["workers"].items(), key=lambda item: int(item[0]))]
    used = [worker["pushes"] - worker["gradients_dropped"] for worker in workers]  # not every rule counts the used ones
    return BackupStepFigures(
        **_step_figures(real_clusters.update_secs(training), mean_secs),
        dropped_share=1.0 - sum(used) / sum(worker["pushes"] for worker in workers),
        share_by_worker=(np.array(used) / sum(used)).tolist(),
    )


def figures_of_stock(training: Training, mean_secs: float) -> BackupStepFigures:
    """Returns the figures of a run of the stock class, whose gradients count from an update after warm-up to the last.

    Its first tokens let each worker compute a gradient that must be dropped, so the whole run drops a larger share.
    """
    updates = _warm_updates(real_clusters.update_secs(training))
    pushed = [step for step in training.steps if updates[0] < step.t_start + step.injected_delay <= updates[-1]]
    used = np.bincount([step.worker for step in pushed if not step.dropped], minlength=len(training.summary["workers"]))
    return dataclasses.replace(
        figures_of_training(training, mean_secs),
        dropped_share=1.0 - float(used.sum()) / len(pushed),
        share_by_worker=(used / used.sum()).tolist(),
    )


def _step_figures(update_secs: np.ndarray, mean_secs: float) -> dict[str, Any]:
    """Returns the mean and percentiles of the time per update after warm-up, in mean steps."""
    secs = np.diff(_warm_updates(update_secs)) / mean_secs
    return {"step": float(secs.mean()), **dict(zip(("p50", "p10", "p90"), spread(secs), strict=True))}


def _warm_updates(update_secs: np.ndarray) -> np.ndarray:
    """Returns the times of the updates, from the last one of warm-up on."""
    return update_secs[max(0, int(WARMUP_SHARE * len(update_secs)) - 1) :]


def _arrivals(run: VirtualRun, num_needed: int) -> dict[str, list[float]]:
    """Returns quantiles of the time from an update to the k-th gradient of the next, by k."""
    updates = run.schedule.update_secs
    begins = np.concatenate([[0.0], updates[:-1]])
    ends = run.schedule.steps.t_push_done
    arrivals = np.stack([ends[pushes] for pushes in run.schedule.pushes_by_update()])  # [updates, N], in order
    arrivals = (arrivals - begins[:, np.newaxis]) / MEAN_SECS
    percents = [num_needed * percent // 100 for percent in _SHOWN_OF_MANY]
    shown = percents if num_needed > 10 else range(1, num_needed + 1)
    return {str(k): np.percentile(arrivals[:, k - 1], QUANTILES).tolist() for k in shown}

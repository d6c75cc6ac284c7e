"""What a run with backup workers measures, what the models predict, and the cases that the runs make."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.experiments.harness.base import Results
from ps_trainer.experiments.harness.cases import Case, described, figures, median, setting
from ps_trainer.experiments.harness.labels import Label
from ps_trainer.experiments.toolkit import monte_carlo, real, step_times, theory
from ps_trainer.experiments.toolkit.clusters import Training
from ps_trainer.experiments.toolkit.statistics import WARMUP_SHARE, spread
from ps_trainer.experiments.toolkit.step_times import Shape
from ps_trainer.experiments.toolkit.virtual import VirtualRun
from ps_trainer.simulation.schedule import DROPPED


# TensorFlow's queue is simulated only: `--update=sync` of a real cluster is the same barrier as `backup`.
class Rule(Label):
    """What a run is of: an update rule, or the models of both."""

    TOKENS = "token_queue"
    BARRIER = "backup"
    MODELS = "models"

    @property
    def words(self) -> str:
        return {Rule.TOKENS: "token queue", Rule.BARRIER: "true barrier"}.get(self, self.value)


OF_50, OF_100 = "N = 50", "N + b = 100"
SLOW_WORKER = 0  # of `persistent`

TRAINING = "training"  # what a run is of
NUM_NEEDED = 8  # N of the trainings and of the real clusters
MEAN_MS = 120.0  # of real clusters: with up to 12 workers at most 85 gradients per second, which leave cores idle

# Chen et al.'s 2 s in units of the mean step. Of independent steps a share F(2 s) are over by then, which decides
# both recalled quantiles: P(100th < 2 s) = F^100 and P(98th < 2 s) = P(at most 2 of 100 are later). F = 0.9865 comes
# equally near to both; of a lognormal with sigma = 0.2 that is the point exp(0.2 · 2.2115 − 0.2²/2).
DEADLINE = math.exp(0.2 * 2.2115 - 0.2**2 / 2)
RECALLED_ARRIVALS = {98: 0.8, 100: 0.3}

QUANTILES = tuple(range(0, 101, 5))
_SHOWN_OF_MANY = (50, 90, 95, 98, 99, 100)  # percent of the workers, where there are too many to show all
_MEAN_SECS = 0.1  # of step times without a mean


def figures_of(run: VirtualRun, num_needed: int, *, has_arrivals: bool) -> dict[str, Any]:
    """Figures of a run after warm-up; times in units of the mean step.

    `has_arrivals` says whether all workers begin each update together, so that arrivals can be counted from there.
    """
    steps, updates = run.warm_steps, run.schedule.update_secs
    is_dropped = steps.update == DROPPED
    used = np.bincount(steps.worker[steps.update >= 0], minlength=run.schedule.num_workers)
    figures = {
        **_step_figures(updates, _MEAN_SECS),
        "dropped_share": float(is_dropped.mean()),
        "dropped_staleness": float(steps.staleness[is_dropped].mean()) if is_dropped.any() else None,
        "share_by_worker": (used / used.sum()).tolist(),
    }
    if has_arrivals:
        figures |= _arrivals(run, num_needed)
    return figures


def options_of(rule: str, num_workers: int, num_backup: int) -> list[str]:
    """Values of `--update_option` with which a rule has this number of backup workers among all workers."""
    needed = num_workers - num_backup
    return [f"replicas_to_aggregate={needed}" if rule == Rule.TOKENS else f"backup_workers={num_backup}"]


def predict(shape: str, num_needed: int, num_backup: int, num_updates: int, seed: int) -> dict[str, Any]:
    """The models' times per update, in units of the mean step: cancelled stragglers, true barrier, token queue.

    The models take the step times that the run with the same seed takes. So a few steps suffice for a comparison,
    even where the step times have a heavy tail.
    """

    def samplers() -> list[monte_carlo.Sampler]:
        return step_times.samplers([Shape(shape).text], num_needed + num_backup, seed)

    barrier = monte_carlo.backup_not_cancelled(samplers(), num_needed, num_updates)
    return {
        "cancelled": monte_carlo.order_statistic(samplers(), num_needed, num_updates).value / _MEAN_SECS,
        Rule.BARRIER: barrier.step_secs.value / _MEAN_SECS,
        Rule.TOKENS: monte_carlo.token_queue(samplers(), num_needed, num_updates).step_secs.value / _MEAN_SECS,
        "dropped_share": barrier.dropped_share,
    }


def figures_of_training(training: Training, mean_secs: float) -> dict[str, Any]:
    """What a cluster's run gives: the same figures as a simulated one, times after warm-up and in mean steps."""
    workers = [worker for _, worker in sorted(training.summary["workers"].items(), key=lambda item: int(item[0]))]
    used = [worker["gradients_used"] for worker in workers]
    return {
        **_step_figures(real.update_secs(training), mean_secs),
        "dropped_share": 1.0 - sum(used) / sum(worker["pushes"] for worker in workers),
        "share_by_worker": (np.array(used) / sum(used)).tolist(),
    }


def _num_needed(case: Case) -> int:
    return case.runs.setting("n") - case.runs.setting("b")


@dataclasses.dataclass(frozen=True)
class TimedRule(Case):
    """One rule with one number of backup workers; medians over its seeds, times in units of the mean step."""

    models: Results  # of the models with the same workers and step times; may be empty

    rule = setting("rule", Rule)
    num_backups = setting("b")
    num_needed = property(_num_needed)  # N, gradients to an update
    step = median("step")
    p10 = median("p10")
    p50 = median("p50")
    p90 = median("p90")
    dropped_share = median("dropped_share")  # gradients dropped, of all, 0..1

    @property
    def dropped_staleness(self) -> float | None:
        """Mean staleness of the dropped gradients; None = none was dropped."""
        stale = [value for value in self.runs.figures("dropped_staleness") if value is not None]
        return spread(stale).median if stale else None

    @property
    def share_by_worker(self) -> list[float]:
        """Of the gradients used, each worker's."""
        return np.mean(self.runs.figures("share_by_worker"), axis=0).tolist()

    @property
    def predicted(self) -> float | None:
        """Time per update that the rule's model gives; None = not computed."""
        return self._model(self.rule)

    @property
    def cancelled(self) -> float | None:
        """Time per update where stragglers are cancelled, an order statistic; None = not computed."""
        return self._model("cancelled")

    @property
    def predicted_dropped_share(self) -> float | None:
        """Dropped share that the true barrier's model gives; None for the other rule."""
        return self._model("dropped_share") if self.rule == Rule.BARRIER else None

    @property
    def token_drop_share(self) -> float:
        """B / (N + b): what is dropped when every update is made of N + b gradients."""
        return self.num_backups / (self.num_needed + self.num_backups)

    @property
    def barrier_drop_share(self) -> float:
        """B / (b + N τ), τ the mean staleness of the dropped gradients.

        At every update b workers are computing, and what they compute is dropped: that is b per update, each
        dropped gradient counted once for every update in its step, of which its staleness is the number.
        """
        return self.num_backups / (self.num_backups + self.num_needed * (self.dropped_staleness or 1.0))

    def _model(self, name: str) -> float | None:
        return self.models.median(name) if self.models else None


class Sweep(NamedTuple):
    """One rule with several numbers of backup workers."""

    shape: str  # of the step times
    size: str  # "N = 8" or "N + b = 100"
    rule: Rule  # `TOKENS` or `BARRIER`
    cases: Sequence[TimedRule]  # by rising number of backup workers, the first without any

    @property
    def name(self) -> str:
        return f"{self.rule.words}, {self.size}, {self.shape}"

    def case_name(self, case: TimedRule) -> str:
        return f"{self.name}, b = {case.num_backups}"

    def at(self, num_backup: int) -> TimedRule | None:
        """With this number of backup workers, if that was run."""
        return next((case for case in self.cases if case.num_backups == num_backup), None)

    def speedup(self, case: TimedRule) -> float:
        """Normalised by the workers that are paid for."""
        return theory.normalised_speedup(self.cases[0].step, case.step, case.num_needed, case.num_backups)

    @property
    def best(self) -> TimedRule:
        """With the largest normalised speed-up."""
        return max(self.cases, key=self.speedup)

    @property
    def best_with_backups(self) -> float:
        """The largest normalised speed-up of any number of backup workers but none."""
        return max(map(self.speedup, self.cases[1:]))

    def lost_gains(self) -> list[tuple[TimedRule, float]]:
        """For each case but the first two how much less its backup workers save, each, than those before: of t(0)."""
        gains = [
            (before.step - case.step) / (case.num_backups - before.num_backups) for before, case in pairwise(self.cases)
        ]
        losses = [(before - now) / self.cases[0].step for before, now in pairwise(gains)]
        return list(zip(self.cases[2:], losses, strict=True))


class Timings(NamedTuple):
    """The runs in virtual time."""

    sweeps: Sequence[Sweep]  # in the order of the runs
    alone: Results  # runs of the token queue without backup workers, whose arrivals are known

    def where(self, *, sizes: Sequence[str] = (), shapes: Sequence[str] = (), rule: str = "") -> list[Sweep]:
        """The sweeps of these sizes, shapes and rule; empty = any."""
        return [
            sweep
            for sweep in self.sweeps
            if (not sizes or sweep.size in sizes)
            and (not shapes or sweep.shape in shapes)
            and (not rule or sweep.rule == rule)
        ]


def timings_of(results: Results) -> Timings:
    """The sweeps that begin without backup workers and have some."""
    sweeps = []
    for (shape, size, rule), group in results.by("shape", "size", "rule").items():
        if rule != Rule.MODELS:
            models = results.where(shape=shape, size=size, rule=Rule.MODELS)
            own = sorted(group.by("b").items(), key=lambda item: item[0])
            cases = [TimedRule(runs, models.where(b=num_backup)) for (num_backup,), runs in own]
            if len(cases) > 1 and not cases[0].num_backups:
                sweeps.append(Sweep(shape, size, Rule(rule), cases))
    return Timings(sweeps, results.where(rule=Rule.TOKENS, b=0))


class TrainedRule(Case):
    """Trainings with a rule and a number of backup workers."""

    shape = setting("shape")
    rule = setting("rule", Rule)
    num_backups = setting("b")

    updates = figures("updates", missing=math.inf)  # to the target, of each seed
    name = described("{0.rule.words}, {0.shape}, b = {0.num_backups}")

    @property
    def mean(self) -> float:
        """Updates to the target, of the seeds."""
        return float(np.mean(self.updates))


class RealBarrier(real.RealCase):
    """The true barrier of a real cluster with a number of backup workers."""

    shape = setting("shape")
    num_backups = setting("b")

    num_needed = property(_num_needed)  # N, gradients to an update
    name = described("L2, true barrier, N = {0.num_needed}, {0.shape}, b = {0.num_backups}")

    def model(self, name: str) -> float:
        """What a model says of the same delays, in mean steps: "cancelled" stragglers, or the true `Rule.BARRIER`."""
        return spread([one[name] for one in self.runs.figures("models")]).median

    @property
    def share_by_worker(self) -> list[float]:
        """Of the gradients used, each worker's; means over the seeds."""
        return np.mean([one["share_by_worker"] for one in self.runs.figures("measured")], axis=0).tolist()


def real_speedups(cases: Sequence[RealBarrier], shape: str, of: str = "measured") -> dict[int, float]:
    """Normalised speed-up in mean time per update by number of backup workers above 0; empty without a run of 0."""
    own = {case.num_backups: case for case in cases if case.shape == shape}
    if 0 not in own:
        return {}
    times = {b: getattr(case.pair("step"), of) for b, case in own.items()}
    return {b: theory.normalised_speedup(times[0], time, own[b].num_needed, b) for b, time in times.items() if b}


def _step_figures(update_secs: np.ndarray, mean_secs: float) -> dict[str, float]:
    """Mean and percentiles of the time per update after warm-up, in mean steps."""
    num_warmup = int(WARMUP_SHARE * len(update_secs))
    secs = np.diff(update_secs[max(0, num_warmup - 1) :]) / mean_secs
    return {"step": float(secs.mean()), **dict(zip(("p50", "p10", "p90"), spread(secs), strict=True))}


def _arrivals(run: VirtualRun, num_needed: int) -> dict[str, Any]:
    """Quantiles of the time from an update to the k-th gradient of the next; and how often some come in time."""
    updates = run.schedule.update_secs
    begins = np.concatenate([[0.0], updates[:-1]])
    ends = run.schedule.steps.t_push_done
    arrivals = np.stack([ends[pushes] for pushes in run.schedule.pushes_by_update()])  # [updates, N], in order
    arrivals = (arrivals - begins[:, np.newaxis]) / _MEAN_SECS
    percents = [num_needed * percent // 100 for percent in _SHOWN_OF_MANY]
    shown = percents if num_needed > 10 else range(1, num_needed + 1)
    figures = {"arrivals": {str(k): np.percentile(arrivals[:, k - 1], QUANTILES).tolist() for k in shown}}
    if num_needed == max(RECALLED_ARRIVALS):
        figures["in_time"] = {str(k): float((arrivals[:, k - 1] < DEADLINE).mean()) for k in RECALLED_ARRIVALS}
    return figures

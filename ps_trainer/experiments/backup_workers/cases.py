"""Cases of the experiment on backup workers: what a run measures, what the models predict, and seeds put together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.experiments.frame.base import Level, Results
from ps_trainer.experiments.lab import monte_carlo, step_times, theory
from ps_trainer.experiments.lab.statistics import WARMUP_SHARE, spread
from ps_trainer.experiments.lab.virtual import VirtualRun
from ps_trainer.simulation.schedule import DROPPED

# TensorFlow's queue is simulated only: `--update=sync` of a real cluster is the same barrier as `backup`.
TOKENS, BARRIER, MODELS = "token_queue", "backup", "models"
RULE_NAMES = {TOKENS: "token queue", BARRIER: "true barrier"}

EVEN, SHIFTED, FITTED, MODERATE = "even", "shifted exponential", "fitted lognormal", "lognormal"
SPIKES, EXPONENTIAL, PARETO, PERSISTENT = "spikes", "exponential", "Pareto", "one slow worker"
SHAPES = {
    EVEN: "det:jitter=0.02",
    SHIFTED: "shifted_exp:alpha=0.2",
    FITTED: "lognormal:sigma=0.2",
    MODERATE: "lognormal:sigma=0.5",
    SPIKES: "spike:p=0.05,factor=5",
    EXPONENTIAL: "exp",
    PARETO: "pareto:alpha=2.1",
    PERSISTENT: "persistent:factor=10,alpha=0.2",
}
HEAVY = (MODERATE, SPIKES, EXPONENTIAL, PARETO)
SLOW_WORKER = 0  # of `persistent`

# Chen et al.'s 2 s in units of the mean step. Of independent steps a share F(2 s) are over by then, which decides
# both recalled quantiles: P(100th < 2 s) = F^100 and P(98th < 2 s) = P(at most 2 of 100 are later). F = 0.9865 comes
# equally near to both; of a lognormal with sigma = 0.2 that is the point exp(0.2 · 2.2115 − 0.2²/2).
DEADLINE = math.exp(0.2 * 2.2115 - 0.2**2 / 2)
RECALLED_ARRIVALS = {98: 0.8, 100: 0.3}

QUANTILES = tuple(range(0, 101, 5))
_SHOWN_OF_MANY = (50, 90, 95, 98, 99, 100)  # percent of the workers, where there are too many to show all
_MEAN_SECS = 0.1  # of `SHAPES`


def figures_of(run: VirtualRun, num_needed: int, has_arrivals: bool) -> dict[str, Any]:
    """What a run gives, after warm-up; times in units of the mean step.

    Args:
        run: of either rule.
        num_needed: N.
        has_arrivals: whether all workers begin each update together, so that arrivals can be told by it.
    """
    steps, updates = run.warm_steps, run.schedule.update_secs
    num_warmup = int(WARMUP_SHARE * len(updates))
    secs = np.diff(updates[max(0, num_warmup - 1) :]) / _MEAN_SECS
    is_dropped = steps.update == DROPPED
    used = np.bincount(steps.worker[steps.update >= 0], minlength=run.schedule.num_workers)
    figures = {
        "step": float(secs.mean()),
        **dict(zip(("p50", "p10", "p90"), spread(secs), strict=True)),
        "dropped_share": float(is_dropped.mean()),
        "dropped_staleness": float(steps.staleness[is_dropped].mean()) if is_dropped.any() else None,
        "share_by_worker": (used / used.sum()).tolist(),
    }
    if has_arrivals:
        figures |= _arrivals(run, num_needed)
    return figures


def options_of(rule: str, num_workers: int, num_backup: int) -> list[str]:
    """Values of `--update_option` with which a rule has so many backup workers among all workers."""
    needed = num_workers - num_backup
    return [f"replicas_to_aggregate={needed}" if rule == TOKENS else f"backup_workers={num_backup}"]


def predict(shape: str, num_needed: int, num_backup: int, num_updates: int, seed: int) -> dict[str, Any]:
    """The models' times per update, in units of the mean step: A3, A4 and the token queue.

    They take the step times that the run with the same seed takes, so that few of them suffice for a comparison,
    also where they have a heavy tail.
    """

    def samplers() -> list[monte_carlo.Sampler]:
        return step_times.samplers([SHAPES[shape]], num_needed + num_backup, seed)

    barrier = monte_carlo.backup_not_cancelled(samplers(), num_needed, num_updates)
    return {
        "cancelled": monte_carlo.order_statistic(samplers(), num_needed, num_updates).value / _MEAN_SECS,
        BARRIER: barrier.step_secs.value / _MEAN_SECS,
        TOKENS: monte_carlo.token_queue(samplers(), num_needed, num_updates).step_secs.value / _MEAN_SECS,
        "dropped_share": barrier.dropped_share,
    }


class Case(NamedTuple):
    """One rule with one number of backup workers; medians over its seeds, times in units of the mean step.

    Attributes:
        needed: N, gradients to an update.
        backups: b.
        step: mean time per update.
        p10, p50, p90: percentiles of that time.
        dropped_share: gradients dropped, of all, 0..1.
        dropped_staleness: mean staleness of those; None = none was dropped.
        share_by_worker: of the gradients used, each worker's.
        predicted: time per update that the rule's model gives; None = not computed.
        cancelled: that of A3.
        predicted_dropped_share: of A4; of the barrier only.
    """

    needed: int
    backups: int
    step: float
    p10: float
    p50: float
    p90: float
    dropped_share: float
    dropped_staleness: float | None
    share_by_worker: Sequence[float]
    predicted: float | None
    cancelled: float | None
    predicted_dropped_share: float | None

    @property
    def token_drop_share(self) -> float:
        """b / (N + b): what is dropped when every update is made of N + b gradients."""
        return self.backups / (self.needed + self.backups)

    @property
    def barrier_drop_share(self) -> float:
        """b / (b + N τ), τ the mean staleness of what is dropped.

        At every update b workers are computing, and what they compute is dropped: that is b per update, each
        dropped gradient counted once for every update in its step, of which its staleness is the number.
        """
        return self.backups / (self.backups + self.needed * (self.dropped_staleness or 1.0))


class Sweep(NamedTuple):
    """One rule with several numbers of backup workers.

    Attributes:
        shape: of the step times.
        size: "N = 8" or "N + b = 100".
        rule: `TOKENS` or `BARRIER`.
        cases: by rising number of backup workers, the first without any.
    """

    shape: str
    size: str
    rule: str
    cases: Sequence[Case]

    @property
    def name(self) -> str:
        """For tables and claims."""
        return f"{RULE_NAMES[self.rule]}, {self.size}, {self.shape}"

    def case_name(self, case: Case) -> str:
        """For claims."""
        return f"{self.name}, b = {case.backups}"

    def at(self, num_backup: int) -> Case | None:
        """With so many backup workers, if that was run."""
        return next((case for case in self.cases if case.backups == num_backup), None)

    def speedup(self, case: Case) -> float:
        """A5, normalised by the workers that are paid for."""
        return theory.normalised_speedup(self.cases[0].step, case.step, case.needed, case.backups)

    @property
    def best(self) -> Case:
        """With the largest normalised speed-up."""
        return max(self.cases, key=self.speedup)

    @property
    def best_with_backups(self) -> float:
        """The largest normalised speed-up of any number of backup workers but none."""
        return max(map(self.speedup, self.cases[1:]))

    def lost_gains(self) -> list[tuple[Case, float]]:
        """For each case but the first two how much less its backup workers save, each, than those before: of t(0)."""
        gains = [
            (before.step - case.step) / (case.backups - before.backups)
            for before, case in zip(self.cases, self.cases[1:], strict=False)
        ]
        losses = [(before - now) / self.cases[0].step for before, now in zip(gains, gains[1:], strict=False)]
        return list(zip(self.cases[2:], losses, strict=True))


def sweeps_of(results: Results) -> list[Sweep]:
    """The sweeps in virtual time, in the order of the runs."""
    sweeps = []
    results = results.where(level=Level.VIRTUAL, what=None)
    for (shape, size, rule), group in results.by("shape", "size", "rule").items():
        if rule != MODELS:
            models = results.where(shape=shape, size=size, rule=MODELS)
            cases = [
                _case(own, models.where(b=num_backup), rule)
                for (num_backup,), own in sorted(group.by("b").items(), key=lambda item: item[0])
            ]
            if len(cases) > 1 and not cases[0].backups:
                sweeps.append(Sweep(shape, size, rule, cases))
    return sweeps


def _case(own: Results, models: Results, rule: str) -> Case:
    medians = {name: spread(own.figures(name)).median for name in ("step", "p10", "p50", "p90", "dropped_share")}
    stale = [value for value in own.figures("dropped_staleness") if value is not None]
    settings = own[0].run.settings
    return Case(
        needed=settings["n"] - settings["b"],
        backups=settings["b"],
        **medians,
        dropped_staleness=spread(stale).median if stale else None,
        share_by_worker=np.mean(own.figures("share_by_worker"), axis=0).tolist(),
        predicted=_median(models, rule),
        cancelled=_median(models, "cancelled"),
        predicted_dropped_share=_median(models, "dropped_share") if rule == BARRIER else None,
    )


def _median(results: Results, name: str) -> float | None:
    return spread(results.figures(name)).median if results else None


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

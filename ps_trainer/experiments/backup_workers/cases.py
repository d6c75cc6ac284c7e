"""Sweeps, trainings and real clusters with backup workers: finished runs, grouped for claims, tables and plots."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ps_trainer.experiments.harness.cases import Case, figures, median, setting, text_property
from ps_trainer.experiments.harness.runs import Results
from ps_trainer.experiments.toolkit import real_clusters, theory
from ps_trainer.experiments.toolkit.statistics import (
    IntervalEstimate,
    bootstrap_interval,
    chosen_by_other_seeds,
    mean_estimate,
    mean_ratio,
    ratio_by_seed,
    resampled_medians,
    spread,
)
from ps_trainer.experiments.toolkit.step_times import SPIKE_SHARE, Shape

from .records import NUM_NEEDED, ModelFigures, Rule


def _num_needed(case: Case) -> int:
    return case.runs.setting("n") - case.runs.setting("b")


@dataclasses.dataclass(frozen=True)
class TimedRule(Case):
    """One rule with one number of backup workers; medians over its seeds, times in units of the mean step."""

    models: Results  # of the models with the same workers and step times; may be empty

    rule = setting("rule")
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
        """Share of each worker in the used gradients."""
        return np.mean(self.runs.figures("share_by_worker"), axis=0).tolist()

    @property
    def predicted(self) -> float | None:
        """Time per update of the rule's model; None = not computed."""
        return spread([models.of(self.rule) for models in self._models]).median if self.models else None

    @property
    def over_predicted(self) -> IntervalEstimate:
        """Time per update over that of the rule's model, which must be there."""
        return self._over(lambda models: models.of(self.rule))

    @property
    def over_cancelled(self) -> IntervalEstimate:
        """Time per update over that with cancelled stragglers, which must be there."""
        return self._over(lambda models: models.cancelled)

    @property
    def cancelled(self) -> float | None:
        """Time per update with cancelled stragglers, an order statistic; None = not computed."""
        return spread([models.cancelled for models in self._models]).median if self.models else None

    @property
    def predicted_dropped_share(self) -> float | None:
        """Dropped share of the true barrier's model; None for the token queue."""
        if self.rule is not Rule.BARRIER or not self.models:
            return None
        return spread([models.dropped_share for models in self._models]).median

    @property
    def token_drop_share(self) -> float:
        """Dropped share b / (N + b) if workers compute N + b gradients per update."""
        return self.num_backups / (self.num_needed + self.num_backups)

    @property
    def barrier_drop_share(self) -> float:
        """Dropped share b / (b + N τ), where τ is the mean staleness of the dropped gradients.

        At every update b workers are computing, and their gradients will be dropped. Counting b per update counts a
        gradient once for every update during its step, so τ times on average. The real number is b/τ per update.
        """
        return self.num_backups / (self.num_backups + self.num_needed * (self.dropped_staleness or 1.0))

    @property
    def over_token_drop(self) -> IntervalEstimate:
        """Dropped share minus `token_drop_share`, mean over the seeds."""
        return mean_estimate([share - self.token_drop_share for share in self.runs.figures("dropped_share")])

    @property
    def over_barrier_drop(self) -> IntervalEstimate:
        """Dropped share minus `barrier_drop_share`, mean over the seeds."""
        alone = [dataclasses.replace(self, runs=Results([result])) for result in self.runs]
        return mean_estimate([one.dropped_share - one.barrier_drop_share for one in alone])

    @property
    def _models(self) -> list[ModelFigures]:
        return [result.figures for result in self.models]

    def _over(self, model: Callable[[ModelFigures], float]) -> IntervalEstimate:
        return ratio_by_seed(self.by_seed("step"), {one.run.seed: model(one.figures) for one in self.models})


class Sweep(NamedTuple):
    """One rule with several numbers of backup workers."""

    shape: str  # of the step times
    size: str  # "N = 8" or "N + b = 100"
    rule: Rule  # `TOKENS` or `BARRIER`
    cases: Sequence[TimedRule]  # by rising number of backup workers, from none

    @property
    def name(self) -> str:
        return f"{self.rule.words}, {self.size}, {self.shape}"

    def case_name(self, case: TimedRule) -> str:
        return f"{self.name}, b = {case.num_backups}"

    def at(self, num_backup: int) -> TimedRule | None:
        """Returns the case with this number of backup workers, or None if no run has it."""
        return next((case for case in self.cases if case.num_backups == num_backup), None)

    def speedup(self, case: TimedRule) -> float:
        """Returns the speed-up of a case, normalised by its number of workers."""
        return theory.normalised_speedup(self.cases[0].step, case.step, case.num_needed, case.num_backups)

    @property
    def best(self) -> TimedRule:
        """Case with the largest normalised speed-up."""
        return max(self.cases, key=self.speedup)

    @property
    def best_number(self) -> IntervalEstimate:
        """Number of backup workers of `best`; a bootstrap of the seeds gives the interval, none for a single seed."""
        best = self.best.num_backups
        if len(self.cases[0].runs) < 2:
            return IntervalEstimate(best)
        steps = resampled_medians([case.runs.figures("step") for case in self.cases])
        shares = np.array([case.num_needed / (case.num_needed + case.num_backups) for case in self.cases])
        numbers = np.array([case.num_backups for case in self.cases])
        drawn = numbers[np.argmax(shares[:, np.newaxis] / steps, axis=0)]
        return IntervalEstimate(best, bootstrap_interval(drawn, drawn))

    @property
    def best_with_backups(self) -> IntervalEstimate:
        """Largest normalised speed-up of the cases with backup workers; for each seed the others choose the case."""
        without = self.cases[0].by_seed("step")
        return chosen_by_other_seeds(
            {case.num_backups: _speedups(without, case.by_seed("step"), case) for case in self.cases[1:]}
        )

    def num_stragglers(self, case: TimedRule) -> float:
        """Returns the mean number of long steps of an update; 0 where no step is much longer than the others."""
        return SPIKE_SHARE * (case.num_needed + case.num_backups) if self.shape == Shape.SPIKES else 0.0

    def speedup_estimate(self, case: TimedRule) -> IntervalEstimate:
        """Returns `speedup`, geometric mean over the seeds."""
        return mean_ratio([*_speedups(self.cases[0].by_seed("step"), case.by_seed("step"), case).values()], 1.0)

    def lost_gains(self) -> list[tuple[TimedRule, IntervalEstimate]]:
        """Returns how much less each backup worker of a case saves than of the case before, as a share of t(0).

        Means over the seeds. The first two cases have no such number.
        """
        steps = np.array([case.runs.figures("step") for case in self.cases])  # [cases, seeds]
        added = np.diff([case.num_backups for case in self.cases])
        gains = -np.diff(steps, axis=0) / added[:, np.newaxis]
        losses = -np.diff(gains, axis=0) / steps[0]
        return [(case, mean_estimate(own.tolist())) for case, own in zip(self.cases[2:], losses, strict=True)]


class Timings(NamedTuple):
    """The runs in virtual time."""

    sweeps: Sequence[Sweep]  # in the order of the runs
    alone: Results  # runs of the token queue without backup workers, whose arrivals are known

    def where(self, *, sizes: Sequence[str] = (), shapes: Sequence[str] = (), rule: str = "") -> list[Sweep]:
        """Returns the sweeps of these sizes, shapes and rule; an empty argument admits all."""
        return [
            sweep
            for sweep in self.sweeps
            if (not sizes or sweep.size in sizes)
            and (not shapes or sweep.shape in shapes)
            and (not rule or sweep.rule == rule)
        ]


def timings_of(results: Results) -> Timings:
    """Returns the sweeps that have a case without and a case with backup workers."""
    sweeps = []
    for (shape, size, rule), group in results.by("shape", "size", "rule").items():
        if rule != Rule.MODELS:
            models = results.where(shape=shape, size=size, rule=Rule.MODELS)
            sorted_groups = sorted(group.by("b").items(), key=lambda item: item[0])
            cases = [TimedRule(runs, models.where(b=num_backup)) for (num_backup,), runs in sorted_groups]
            if len(cases) > 1 and not cases[0].num_backups:
                sweeps.append(Sweep(shape, size, Rule(rule), cases))
    return Timings(sweeps, results.where(rule=Rule.TOKENS, b=0))


class TrainedRule(Case):
    """Trainings with a rule and a number of backup workers."""

    shape = setting("shape")
    rule = setting("rule")
    num_backups = setting("b")

    updates = figures("updates", missing=math.inf)  # of each seed to the target
    name = text_property("{0.rule.words}, {0.shape}, b = {0.num_backups}")

    @property
    def mean(self) -> float:
        """Mean over the seeds of the updates to the target."""
        return float(np.mean(self.updates))


class RealBarrier(real_clusters.RealCase):
    """A rule of a real cluster with a number of backup workers."""

    shape = setting("shape")
    rule = setting("rule")
    num_backups = setting("b")

    num_needed = property(_num_needed)  # N, gradients to an update
    name = text_property("L2, {0.rule.words}, N = {0.num_needed}, {0.shape}, b = {0.num_backups}")

    @property
    def models(self) -> list[ModelFigures]:
        """The models' times of each run, for the same delays."""
        return self.runs.figures("models")

    @property
    def predicted(self) -> float:
        """Time per update of the rule's model, in mean steps."""
        return spread([models.of(self.rule) for models in self.models]).median

    @property
    def cancelled(self) -> float:
        """Time per update with cancelled stragglers, in mean steps."""
        return spread([models.cancelled for models in self.models]).median

    @property
    def steps(self) -> dict[int, float]:
        """Seed -> time per update, in mean steps."""
        return {result.run.seed: result.figures.measured.step for result in self.runs}

    @property
    def dropped_over_tokens(self) -> list[float]:
        """Dropped share of each seed minus b/(N + b), which a queue of tokens drops."""
        expected = self.num_backups / (self.num_needed + self.num_backups)
        return [one.dropped_share - expected for one in self.runs.figures("measured")]

    @property
    def share_by_worker(self) -> list[float]:
        """Share of each worker in the used gradients, mean over the seeds."""
        return np.mean([one.share_by_worker for one in self.runs.figures("measured")], axis=0).tolist()


def real_gain(
    cases: Sequence[RealBarrier], shape: str, rule: Rule, num_needed: int = NUM_NEEDED
) -> IntervalEstimate | None:
    """Returns a rule's largest normalised speed-up of N workers; for each seed the others choose the number b.

    It is None without a case of b = 0, or seeds that it shares with one of b > 0.
    """
    kind = (shape, rule, num_needed)
    own = {case.num_backups: case for case in cases if (case.shape, case.rule, case.num_needed) == kind}
    if 0 not in own:
        return None
    speedups = {b: _speedups(own[0].steps, case.steps, case) for b, case in own.items() if b}
    known = {b: by_seed for b, by_seed in speedups.items() if by_seed}
    return chosen_by_other_seeds(known) if known else None


def _speedups(without: dict[int, float], times: dict[int, float], case: TimedRule | RealBarrier) -> dict[int, float]:
    """Returns the normalised speed-up of each seed that has a time without and a time with backup workers."""
    return {
        seed: theory.normalised_speedup(without[seed], time, case.num_needed, case.num_backups)
        for seed, time in times.items()
        if seed in without
    }


def real_speedups(
    cases: Sequence[RealBarrier],
    shape: str,
    rule: Rule = Rule.BARRIER,
    num_needed: int = NUM_NEEDED,
    of: str = "measured",
) -> dict[int, float]:
    """Returns a rule's normalised speed-up by number of backup workers above 0; empty without a case of 0."""
    kind = (shape, rule, num_needed)
    own = {case.num_backups: case for case in cases if (case.shape, case.rule, case.num_needed) == kind}
    if 0 not in own:
        return {}
    times = {b: getattr(case.pair("step"), of) for b, case in own.items()}
    return {b: theory.normalised_speedup(times[0], time, own[b].num_needed, b) for b, time in times.items() if b}

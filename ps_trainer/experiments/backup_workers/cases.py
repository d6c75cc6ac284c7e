"""Sweeps, trainings and real clusters with backup workers: finished runs, grouped for claims, tables and plots."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ps_trainer.experiments.harness.cases import Case, figures, median, setting, text_property
from ps_trainer.experiments.harness.runs import Results
from ps_trainer.experiments.toolkit import real_clusters, theory
from ps_trainer.experiments.toolkit.statistics import spread

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
    def _models(self) -> list[ModelFigures]:
        return [result.figures for result in self.models]


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
    def best_with_backups(self) -> float:
        """Largest normalised speed-up of the cases with backup workers."""
        return max(map(self.speedup, self.cases[1:]))

    def lost_gains(self) -> list[tuple[TimedRule, float]]:
        """Returns how much less each backup worker of a case saves than of the case before, as a share of t(0).

        The first two cases have no such number.
        """
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

"""Cases of the experiment on bounded staleness: what a run measures, what the model predicts, seeds pooled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.experiments.frame.base import Results
from ps_trainer.experiments.lab import monte_carlo, step_times
from ps_trainer.experiments.lab.statistics import spread
from ps_trainer.simulation.schedule import Schedule
from ps_trainer.simulation.summary import summarise_schedule

EXPONENTIAL, MODERATE, SHIFTED = "exponential", "lognormal", "shifted exponential"
SHAPES = {EXPONENTIAL: "exp", MODERATE: "lognormal:sigma=0.5", SHIFTED: "shifted_exp:alpha=0.2"}
BOUNDS = (0, 1, 2, 3, 5, 10, None)
SLOWNESS = 4  # of the last worker, in the cases that have a slow one

RULE, MODEL = "rule", "model"  # what a run is of

_MEAN_SECS = 0.1  # of `SHAPES`


def compute_of(shape: str, n: int, is_slow: bool) -> list[str]:
    """Step times as for `--compute`, of all workers, and then of the slow one."""
    slow = step_times.with_mean(SHAPES[shape], 1000 * SLOWNESS * _MEAN_SECS, n - 1)
    return [SHAPES[shape], slow] if is_slow else [SHAPES[shape]]


def rule_of(bound: int | None) -> tuple[str, list[str]]:
    """Values of `--update` and `--update_option`."""
    return ("async", []) if bound is None else ("ssp", [f"staleness={bound}"])


def figures_of(schedule: Schedule) -> dict[str, Any]:
    """What a run gives, after warm-up but for the leads; rates in clocks per mean step of a worker that is not slow."""
    summary = summarise_schedule(schedule)
    at_begin, when_done = largest_leads(schedule)
    return {
        "rate": summary.updates_per_sec / schedule.num_workers * _MEAN_SECS,
        "wait_by_worker": summary.wait_share.tolist(),
        "mean_staleness": summary.staleness_mean(),
        "lead_at_begin": at_begin,
        "lead_when_done": when_done,
    }


def predict(compute: Sequence[str], n: int, bound: int | None, num_clocks: int, seed: int) -> dict[str, Any]:
    """A17's clock rate, and that of a barrier after each step, 1/E[max]; units as of `figures_of`.

    The step times are those that the run with the same seed takes.
    """

    def samplers() -> list[monte_carlo.Sampler]:
        return step_times.samplers(compute, n, seed)

    return {
        "rate": monte_carlo.ssp_clock_rate(samplers(), bound, num_clocks) * _MEAN_SECS,
        "barrier_rate": _MEAN_SECS / monte_carlo.order_statistic(samplers(), n, num_clocks).value,
    }


def largest_leads(schedule: Schedule) -> tuple[int, int]:
    """By how many completed steps a worker is ahead of the slowest at most: when it begins a step, when it ends one."""
    steps = schedule.steps
    ends = [steps.t_push_done[steps.worker == worker] for worker in range(schedule.num_workers)]

    def slowest(secs: np.ndarray) -> np.ndarray:
        return np.min([np.searchsorted(own, secs, side="right") for own in ends], axis=0)

    at_begin = steps.local_step - slowest(steps.t_start)
    when_done = steps.local_step + 1 - slowest(steps.t_push_done)
    return int(at_begin.max()), int(when_done.max())


class Case(NamedTuple):
    """One kind of cluster under one bound; medians over its seeds.

    Attributes:
        shape: of the step times.
        n: workers.
        is_slow: whether the last worker is `SLOWNESS` times slower.
        bound: s; None = nobody waits.
        rate: clocks of a worker per mean step of one that is not slow; the mean over the workers.
        wait_by_worker: share of its time that each worker waits, 0..1.
        mean_staleness: in updates.
        lead_at_begin: completed steps by which a worker is ahead of the slowest when it begins one; the largest
            of all seeds.
        lead_when_done: the same when it has just completed one.
        predicted: the rate by A17.
        barrier_rate: the rate of a barrier after each step.
    """

    shape: str
    n: int
    is_slow: bool
    bound: int | None
    rate: float
    wait_by_worker: Sequence[float]
    mean_staleness: float
    lead_at_begin: int
    lead_when_done: int
    predicted: float
    barrier_rate: float

    @property
    def cluster(self) -> str:
        """Its name without the bound."""
        return f"n = {self.n}, {self.shape}{', one slow worker' if self.is_slow else ''}"

    @property
    def name(self) -> str:
        """For tables and claims."""
        return f"{self.cluster}, {bound_name(self.bound)}"

    @property
    def wait_share(self) -> float:
        """Share of the workers' time that they wait, 0..1."""
        return float(np.mean(self.wait_by_worker))

    @property
    def free_rate(self) -> float:
        """The rate when nobody waits."""
        return (self.n - 1 + 1 / SLOWNESS) / self.n if self.is_slow else 1.0

    @property
    def predicted_wait_share(self) -> float:
        """By A17: a worker waits while it does not compute, and under a bound all make the same number of steps."""
        if self.bound is None:
            return 0.0
        steps = self.n - 1 + SLOWNESS if self.is_slow else self.n  # mean steps that one clock of every worker takes
        return 1.0 - self.predicted * steps / self.n


def bound_name(bound: int | None) -> str:
    """For tables and plots."""
    return "no bound" if bound is None else f"s = {bound}"


def cases_of(results: Results) -> list[Case]:
    """The cases, in the order of the runs."""
    cases = []
    for (shape, n, is_slow, bound), group in results.by("shape", "n", "is_slow", "bound").items():
        own, models = group.where(what=RULE), group.where(what=MODEL)
        if not own or not models:
            continue
        cases.append(
            Case(
                shape=shape,
                n=n,
                is_slow=is_slow,
                bound=bound,
                rate=spread(own.figures("rate")).median,
                wait_by_worker=np.median(own.figures("wait_by_worker"), axis=0).tolist(),
                mean_staleness=spread(own.figures("mean_staleness")).median,
                lead_at_begin=max(own.figures("lead_at_begin")),
                lead_when_done=max(own.figures("lead_when_done")),
                predicted=spread(models.figures("rate")).median,
                barrier_rate=spread(models.figures("barrier_rate")).median,
            )
        )
    return cases


def by_cluster(cases: Sequence[Case]) -> dict[str, dict[int | None, Case]]:
    """The cases of each cluster by bound, rising, None last."""
    groups: dict[str, dict[int | None, Case]] = {}
    for case in cases:
        groups.setdefault(case.cluster, {})[case.bound] = case
    return groups

"""Figures of runs under a bound, predictions of the model, and the cases that group the runs."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence

import numpy as np

from ps_trainer.experiments.harness.base import Results
from ps_trainer.experiments.harness.cases import Case, largest, median, setting
from ps_trainer.experiments.harness.labels import Label
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.toolkit import monte_carlo, real, step_times
from ps_trainer.experiments.toolkit.clusters import Training
from ps_trainer.experiments.toolkit.statistics import spread
from ps_trainer.experiments.toolkit.step_times import Shape
from ps_trainer.simulation.schedule import Schedule
from ps_trainer.simulation.summary import summarise_schedule

BOUNDS = (0, 1, 2, 3, 5, 10, None)
SLOWNESS = 4  # factor of the last worker's step times in clusters with a slow worker

MEAN_SECS = 0.1  # mean of step times whose text names no mean
RATES = (0.5, 1.0, 2.0)  # learning rates of the trainings
SAME_RATE = 0.5  # learning rate at which all bounds are stable
TARGET_LOSS = 0.25
NUM_TRAINED_WORKERS = 8
NUM_REAL_WORKERS = 4
REAL_MEAN_MS = 100.0


class BoundRun(Label):
    """Purpose of a run."""

    RULE = "rule"
    MODEL = "model"
    TRAINING = "training"
    REAL = "real"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClockSettings(Record):
    """Settings of a run that counts clocks: under a bound, or in the model of clocks."""

    what: BoundRun
    shape: str  # of the step times
    n: int  # number of workers
    is_slow: bool  # whether the last worker is `SLOWNESS` times slower
    bound: int | None  # s; None = no bound, so no worker waits
    num_clocks: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealClockSettings(ClockSettings):
    """Settings of a run of a real cluster."""

    mean_ms: float  # mean step


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundTrainingSettings(Record):
    """Settings of a training in virtual time."""

    what: BoundRun
    n: int
    max_updates: int
    bound: int | None
    rate: float  # learning rate


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClockFigures(Record):
    """Figures of a run under a bound. Leads cover the whole run; all other figures leave out the warm-up."""

    rate: float  # clocks per mean step of a worker that is not slow
    wait_by_worker: Sequence[float]  # share of each worker's time that it waits, 0..1
    mean_staleness: float  # in updates
    lead_at_begin: int  # largest lead over the slowest worker in completed steps, at the begin of a step
    lead_when_done: int  # the same just after the end of a step
    waits: float | None = None  # mean of `wait_by_worker`, beside a real run


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClockModelFigures(Record):
    """Rates of the model of clocks, in the unit of `ClockFigures.rate`."""

    rate: float
    barrier_rate: float  # 1/E[max], with a barrier after each step


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundTrainingFigures(Record):
    """Way to the target loss; None if it was not reached."""

    updates: int | None
    time: float | None  # in mean steps
    has_diverged: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterClockFigures(Record):
    """Figures of a real cluster's run: its rate, and shares of a worker's time."""

    rate: float  # clocks per mean step
    computes: float
    communicates: float
    waits: float
    lead_at_begin: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealClockFigures(real.RealFigures):
    """Figures of a cluster and of its simulation."""

    measured: ClusterClockFigures
    simulated: ClockFigures


def compute_of(shape: str, n: int, *, is_slow: bool) -> list[str]:
    """Return the step times of all workers and then of the slow worker, as values of `--compute`."""
    slow = step_times.with_mean(Shape(shape).text, 1000 * SLOWNESS * MEAN_SECS, n - 1)
    return [Shape(shape).text, slow] if is_slow else [Shape(shape).text]


def rule_of(bound: int | None) -> tuple[str, list[str]]:
    """Return the values of `--update` and `--update_option` for a bound."""
    return ("async", []) if bound is None else ("ssp", [f"staleness={bound}"])


def figures_of(schedule: Schedule) -> ClockFigures:
    """Return the figures of a run."""
    summary = summarise_schedule(schedule)
    at_begin, when_done = largest_leads(schedule)
    return ClockFigures(
        rate=summary.updates_per_sec / schedule.num_workers * MEAN_SECS,
        wait_by_worker=summary.wait_share.tolist(),
        mean_staleness=summary.staleness_mean(),
        lead_at_begin=at_begin,
        lead_when_done=when_done,
    )


def predict(compute: Sequence[str], n: int, bound: int | None, num_clocks: int, seed: int) -> ClockModelFigures:
    """Return the model's clock rates.

    The model uses the step times of the run with the same seed.
    """

    def samplers() -> list[monte_carlo.Sampler]:
        return step_times.samplers(compute, n, seed)

    return ClockModelFigures(
        rate=monte_carlo.ssp_clock_rate(samplers(), bound, num_clocks) * MEAN_SECS,
        barrier_rate=MEAN_SECS / monte_carlo.order_statistic(samplers(), n, num_clocks).value,
    )


def largest_leads(schedule: Schedule) -> tuple[int, int]:
    """Return the largest leads over the slowest worker in completed steps, at the begin and at the end of a step."""
    steps = schedule.steps
    ends = [steps.t_push_done[steps.worker == worker] for worker in range(schedule.num_workers)]

    def slowest(secs: np.ndarray) -> np.ndarray:
        return np.min([np.searchsorted(own, secs, side="right") for own in ends], axis=0)

    at_begin = steps.local_step - slowest(steps.t_start)
    when_done = steps.local_step + 1 - slowest(steps.t_push_done)
    return int(at_begin.max()), int(when_done.max())


def figures_of_training(
    training: Training, num_workers: int, bound: int | None, mean_secs: float
) -> ClusterClockFigures:
    """Return the figures of a cluster's run."""
    own = list(training.by_worker().values())
    periods = [(steps[-1]["t_end"] - steps[0]["t_end"]) / (len(steps) - 1) for steps in own]
    computes = np.array([np.mean([step["injected_delay"] for step in steps[1:]]) for steps in own]) / periods
    # A worker does not wait between two steps, but its work there is not computing, so it counts in the rest.
    rest = 1.0 - computes
    communicates = rest if bound is None else np.minimum(rest, real.overhead_secs(training) / np.array(periods))
    return ClusterClockFigures(
        rate=float(np.mean(1 / np.array(periods))) * mean_secs,
        computes=float(np.mean(computes)),
        communicates=float(np.mean(communicates)),
        waits=float(np.mean(rest - communicates)),
        lead_at_begin=largest_leads(real.as_schedule(training, num_workers))[0],
    )


@dataclasses.dataclass(frozen=True)
class TimedBound(Case):
    """One kind of cluster under one bound in virtual time; medians over its seeds."""

    models: Results  # of the model with the same step times

    shape = setting("shape")  # of the step times
    n = setting("n")
    is_slow = setting("is_slow")  # whether the last worker is `SLOWNESS` times slower
    bound = setting("bound")  # s; None = no bound, so no worker waits
    rate = median("rate")  # clocks per mean step of a worker that is not slow, mean over the workers
    predicted = median("rate", of="models")  # the same rate by the model of clocks
    barrier_rate = median("barrier_rate", of="models")  # the same rate with a barrier after each step
    mean_staleness = median("mean_staleness")  # in updates
    # Largest lead over the slowest worker in completed steps, at the begin and just after the end of a step.
    lead_at_begin = largest("lead_at_begin")
    lead_when_done = largest("lead_when_done")

    @property
    def wait_by_worker(self) -> list[float]:
        """Share of each worker's time that it waits, 0..1."""
        return np.median(self.runs.figures("wait_by_worker"), axis=0).tolist()

    @property
    def cluster(self) -> str:
        return f"n = {self.n}, {self.shape}{', one slow worker' if self.is_slow else ''}"

    @property
    def name(self) -> str:
        return f"{self.cluster}, {bound_name(self.bound)}"

    @property
    def wait_share(self) -> float:
        """Share of the workers' time that they wait, 0..1."""
        return float(np.mean(self.wait_by_worker))

    @property
    def free_rate(self) -> float:
        """Rate if no worker waits."""
        return (self.n - 1 + 1 / SLOWNESS) / self.n if self.is_slow else 1.0

    @property
    def predicted_wait_share(self) -> float:
        """Share of waiting by the model of clocks.

        Under a bound all workers make the same number of steps, and a worker waits whenever it does not compute.
        """
        if self.bound is None:
            return 0.0
        steps = self.n - 1 + SLOWNESS if self.is_slow else self.n  # mean steps that one clock of every worker takes
        return 1.0 - self.predicted * steps / self.n


class TrainedBound(Case):
    """Trainings under a bound; medians over the seeds, inf if the target was not reached."""

    bound = setting("bound")

    @property
    def updates_by_rate(self) -> dict[float, float]:
        """Updates to the target by learning rate."""
        return {rate: _median_or_later(own, "updates") for (rate,), own in self.runs.by("rate").items()}

    @property
    def rate(self) -> float:
        """Learning rate that reaches the target soonest."""
        groups = {rate: own for (rate,), own in self.runs.by("rate").items()}
        return min(groups, key=lambda rate: [_median_or_later(groups[rate], name) for name in ("time", "updates")])

    @property
    def updates(self) -> float:
        """Updates to the target at the best learning rate."""
        return self.updates_by_rate[self.rate]

    @property
    def time(self) -> float:
        """Time to the target at the best learning rate, in mean steps."""
        return _median_or_later(self.runs.where(rate=self.rate), "time")


class RealBound(real.RealCase):
    """Runs of all seeds under one bound on real clusters, CPU-contended runs included."""

    bound = setting("bound")

    @property
    def name(self) -> str:
        return f"L2, n = {NUM_REAL_WORKERS}, {Shape.EXPONENTIAL}, {bound_name(self.bound)}"

    @property
    def largest_lead(self) -> int:
        """Largest lead over the slowest worker at the begin of a step, in completed steps, over all runs."""
        return max(one.lead_at_begin for one in self.runs.figures("measured"))

    def timed(self) -> Results:
        """Return the runs whose times count."""
        return self.runs.uncontended()

    def pair(self, figure: str) -> real.Pair:
        """Return a figure of the cluster and of the simulator, from the runs whose times count."""
        return real.pair(self.name, self.timed(), figure)

    def median(self, name: str) -> float:
        """Return a figure of the cluster alone, from the runs whose times count."""
        return spread([getattr(one, name) for one in self.timed().figures("measured")]).median


def bound_name(bound: int | None) -> str:
    """Return the name of a bound for tables and plots."""
    return "no bound" if bound is None else f"s = {bound}"


def timed_bounds(results: Results) -> list[TimedBound]:
    """Return the cases in virtual time, in the order of the runs."""
    groups = results.by("shape", "n", "is_slow", "bound").values()
    pairs = [(group.where(what=BoundRun.RULE), group.where(what=BoundRun.MODEL)) for group in groups]
    return [TimedBound(own, models) for own, models in pairs if own and models]


def by_cluster(cases: Sequence[TimedBound]) -> dict[str, dict[int | None, TimedBound]]:
    """Return the cases of each cluster by rising bound, with None last."""
    groups: dict[str, dict[int | None, TimedBound]] = {}
    for case in cases:
        groups.setdefault(case.cluster, {})[case.bound] = case
    return groups


def _median_or_later(results: Results, name: str) -> float:
    """Return the median over the runs; a run that missed the target counts as later than all others."""
    return statistics.median_high(math.inf if value is None else value for value in results.figures(name))

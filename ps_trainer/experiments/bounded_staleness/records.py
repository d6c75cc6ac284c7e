"""Settings and figures of runs under a bound, and how a run or the model gives its figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ps_trainer.experiments.harness.labels import Label
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.toolkit import monte_carlo, real_clusters, step_times
from ps_trainer.experiments.toolkit.clusters import Training
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
REAL_MEAN_MS = 500.0


class BoundRun(Label):
    """Purpose of a run."""

    RULE = "rule"
    MODEL = "model"
    TRAINING = "training"
    REAL = "real"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClockSettings(Record):
    """Settings of a run that counts worker clocks: under a bound, or in the model of clocks."""

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

    rate: float  # worker clocks per mean step, of a worker that is not slow
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
class RealClockFigures(real_clusters.RealFigures):
    """Figures of a cluster and of its simulation."""

    measured: ClusterClockFigures
    simulated: ClockFigures


def compute_of(shape: str, n: int, *, is_slow: bool) -> list[str]:
    """Returns the step times of all workers and then of the slow worker, as values of `--compute`."""
    slow = step_times.with_mean(Shape(shape).text, 1000 * SLOWNESS * MEAN_SECS, n - 1)
    return [Shape(shape).text, slow] if is_slow else [Shape(shape).text]


def rule_of(bound: int | None) -> tuple[str, list[str]]:
    """Returns the values of `--update` and `--update_option` for a bound."""
    return ("async", []) if bound is None else ("ssp", [f"staleness={bound}"])


def figures_of(schedule: Schedule, mean_secs: float = MEAN_SECS) -> ClockFigures:
    """Returns the figures of a run."""
    summary = summarise_schedule(schedule)
    at_begin, when_done = largest_leads(schedule)
    return ClockFigures(
        rate=summary.updates_per_sec / schedule.num_workers * mean_secs,
        wait_by_worker=summary.wait_share.tolist(),
        mean_staleness=summary.staleness_mean(),
        lead_at_begin=at_begin,
        lead_when_done=when_done,
    )


def predict(compute: Sequence[str], n: int, bound: int | None, num_clocks: int, seed: int) -> ClockModelFigures:
    """Returns the model's clock rates.

    The model uses the step times of the run with the same seed.
    """

    def samplers() -> list[monte_carlo.Sampler]:
        return step_times.samplers(compute, n, seed)

    return ClockModelFigures(
        rate=monte_carlo.ssp_clock_rate(samplers(), bound, num_clocks) * MEAN_SECS,
        barrier_rate=MEAN_SECS / monte_carlo.order_statistic(samplers(), n, num_clocks).value,
    )


def largest_leads(schedule: Schedule) -> tuple[int, int]:
    """Returns the largest leads over the slowest worker in completed steps, at the begin and at the end of a step."""
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
    """Returns the figures of a cluster's run."""
    worker_steps = list(training.by_worker().values())
    periods = [(steps[-1].t_end - steps[0].t_end) / (len(steps) - 1) for steps in worker_steps]
    computes = np.array([np.mean([step.injected_delay for step in steps[1:]]) for steps in worker_steps]) / periods
    # A worker does not wait between two steps, but its work there is not computing, so it counts in the rest.
    rest = 1.0 - computes
    communicates = (
        rest if bound is None else np.minimum(rest, real_clusters.overhead_secs(training) / np.array(periods))
    )
    return ClusterClockFigures(
        rate=float(np.mean(1 / np.array(periods))) * mean_secs,
        computes=float(np.mean(computes)),
        communicates=float(np.mean(communicates)),
        waits=float(np.mean(rest - communicates)),
        lead_at_begin=largest_leads(real_clusters.as_schedule(training, num_workers))[0],
    )

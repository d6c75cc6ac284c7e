"""Clusters of the scaling curve, their settings and figures, and their predictions by closed forms."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.experiments.harness.published import Published, Tag
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.toolkit import shaped_clusters, theory, virtual_run
from ps_trainer.experiments.toolkit.calibration import Calibration
from ps_trainer.experiments.toolkit.delayed_training import StepCost
from ps_trainer.experiments.toolkit.monte_carlo import order_statistic
from ps_trainer.experiments.toolkit.shaped_clusters import ShapedCluster
from ps_trainer.experiments.toolkit.shaped_hosts import SHORT_QUEUE_SECS
from ps_trainer.experiments.toolkit.statistics import WARMUP_SHARE, Interval
from ps_trainer.experiments.toolkit.step_times import add_pacing, samplers, with_mean

SYNC, ASYNC = "sync", "async"
EVEN, RARE = "lognormal:sigma=0.2", "spike:p=0.001,factor=5,jitter=0.05"
FREQUENT = "spike:p=0.02,factor=5,jitter=0.05"
SHAPE_NAMES = {
    EVEN: "lognormal 0.2",
    RARE: "one in 1,000 is 5 times as long",
    FREQUENT: "one in 50 is 5 times as long",
}
PERCENTILES = (10, 50, 90, 99)

IMAGES_PER_STEP = 32
ROUNDS = 7  # steps of each worker of a real cluster
QUICK_ROUNDS = 5
ALONE_FACTOR = 3  # times as many steps of a worker that is alone, as they calibrate the simulator
NUM_REAL_SEEDS = 5

# The paper's cluster: two points that calibrate the costs of a step, and one that they predict.
_OSDI = "Abadi et al. 2016 (OSDI), Fig. 8"
RATE_1 = Published("images/s of one worker, Inception-v3, about", 28, "", Tag.SUMMARY, _OSDI)
RATE_50 = Published("the same of each of 50 workers, about", 22, "", Tag.SUMMARY, _OSDI)
RATES_200 = {
    SYNC: Published("images/s of 200 synchronous workers together, about", 2300, "", Tag.SUMMARY, _OSDI),
    ASYNC: Published("images/s of 200 asynchronous workers together, about", 2850, "", Tag.SUMMARY, _OSDI),
}
NUM_TOGETHER, NUM_TOGETHER_PS = 50, 7  # workers and ps tasks of the second point
NUM_LARGEST = 200
NUM_PAPER_PS = 17
_READING_ERROR = 0.5  # images/s; the two points are whole numbers, read off a figure
_PAPER_BYTES = 23_800_000 * 4  # of Inception-v3

_MIN_UPDATES = 40
_VIRTUAL_STEPS = 8_000
_DRAWS = 4_000
_FREE = StepCost()


class ClusterSetting(NamedTuple):
    """A cluster."""

    update: str  # `SYNC` or `ASYNC`
    n: int  # workers
    p: int  # ps tasks
    num_bytes: int  # M, bytes of the model
    bytes_per_sec: float  # B, payload, of each link and direction
    mean_ms: float  # T, mean compute time
    shape: str = EVEN  # distribution of compute times, as for `--compute` without a mean
    begins_together: bool = True  # whether all workers begin at one moment, not one after the other within a round

    @property
    def name(self) -> str:
        return f"{self.update}, n={self.n}, p={self.p}, {self.num_bytes / 1e6:g} MB"

    @property
    def compute(self) -> str:
        """Value for `--compute` and `--straggler`."""
        return with_mean(self.shape, self.mean_ms)

    @property
    def mean_secs(self) -> float:
        """Mean compute time T in seconds."""
        return self.mean_ms / 1000

    def cluster(self, rate: str, queue_secs: float, rounds: int, seed: int) -> ShapedCluster:
        """Returns the same cluster on shaped hosts; each worker makes `rounds` steps."""
        return ShapedCluster(
            num_workers=self.n,
            num_ps=self.p,
            rate=rate,
            queue_secs=queue_secs,
            settings={
                **shaped_clusters.dense_model(self.num_bytes),
                "update": self.update,
                "straggler": (add_pacing(self.compute),),
                "max_steps": self.num_updates(rounds),
                "seed": seed,
            },
        )

    def num_updates(self, rounds: int) -> int:
        """Returns global_step when each worker has made `rounds` steps on average."""
        return rounds * (1 if self.update == SYNC else self.n)

    def simulate(self, rounds: int, seed: int, cost: StepCost = _FREE) -> StepTimes:
        """Returns the step times of the same cluster in virtual time; the same seed gives the same compute times.

        Args:
            rounds: Steps of each worker.
            seed: Seed of the compute times.
            cost: Cost of a step besides its compute time and its transfers.
        """
        run = virtual_run.run(
            self.update,
            num_workers=self.n,
            compute=[self.compute],
            num_updates=self.num_updates(rounds),
            seed=seed,
            num_ps=self.p,
            model_bytes=self.num_bytes,
            worker_bytes_per_sec=self.bytes_per_sec,
            ps_bytes_per_sec=self.bytes_per_sec,
            latency_secs=cost.latency_secs,
            ps_secs=cost.service_secs,
            start_secs=0.0 if self.begins_together else self.predicted_secs(),
        )
        updates = run.schedule.update_secs
        warm = updates[int(WARMUP_SHARE * len(updates)) :]
        update_secs = (warm[-1] - warm[0]) / (len(warm) - 1)
        if self.update == SYNC:
            return StepTimes(update_secs, percentiles(np.diff(warm)))
        steps = run.warm_steps
        worker_times = [np.diff(steps.t_push_done[steps.worker == worker]) for worker in range(self.n)]
        return StepTimes(update_secs * self.n, percentiles(np.concatenate(worker_times)))

    def simulate_long(self, seed: int, cost: StepCost = _FREE) -> StepTimes:
        """Returns the step times of a virtual run that is long enough for percentiles."""
        return self.simulate(max(_MIN_UPDATES, _VIRTUAL_STEPS // self.n), seed, cost)

    @property
    def transfer_secs(self) -> float:
        """Time of one worker's pull and push, if no other worker uses the links."""
        return 2 * self.num_bytes / self.bytes_per_sec

    def predicted_secs(self) -> float:
        """Returns the time of a round: compute, then all transfers at once; for async, of a closed queueing network."""
        if self.update == ASYNC:
            return theory.async_round_secs(self.mean_secs, self.num_bytes, self.n, self.p, self.bytes_per_sec)
        transfer_secs = theory.ps_round_secs(self.num_bytes, self.n, self.p, self.bytes_per_sec)
        return theory.step_secs(self.mean_secs * expected_max(self.shape, self.n), transfer_secs)

    def ceiling(self) -> float:
        """Returns the most steps per second of all workers together that the ps tasks' links carry.

        A synchronous round uses one direction at a time, pB/(2M); asynchronous workers can fill both, pB/M.
        """
        return self.p * self.bytes_per_sec / (self.num_bytes * (2 if self.update == SYNC else 1))

    def knee(self) -> float:
        """Returns n at which n times one worker's rate meets the ceiling: p(TB/(2M) + 1), asynchronous twice."""
        alone = self._replace(n=1)
        return alone.ceiling() * alone.predicted_secs()


class StepTimes(NamedTuple):
    """Times of steps after warm-up."""

    round_secs: float  # time in which each worker makes a step
    percentiles: Sequence[float]  # percentiles of single steps, at `PERCENTILES`


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScaleSettings(Record):
    """Settings of a run: a cluster of one scale. The JSON holds the fields of the cluster beside the others."""

    cluster: ClusterSetting
    scale: str  # "ours" or "paper"

    def as_json(self) -> dict[str, Any]:
        values = super().as_json()
        del values["cluster"]
        return {**self.cluster._asdict(), **values}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurveSettings(ScaleSettings):
    """Settings of a curve in virtual time."""

    counts: Sequence[int]  # number of workers of each point; `cluster.n` is 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealPointSettings(ScaleSettings):
    """Settings of a run on shaped hosts, which is one point."""

    rate: str  # rate of each host's link
    rounds: int  # steps of each worker
    queue_secs: float = SHORT_QUEUE_SECS  # longest queue at each end of a link


@dataclasses.dataclass(frozen=True, kw_only=True)
class PointFigures(Record):
    """Figures of one number of workers."""

    round_secs: float  # time in which each worker makes a step
    percentiles: Sequence[float]  # percentiles of single steps, at `PERCENTILES`
    simulated_secs: float  # the simulator's round, of a real cluster with the cost of a step that one worker has
    calibration: Calibration | None = None  # this cost, measured in the run with one worker; else None
    sent_again: float | None = None  # TCP segments that all hosts have sent again, per round; None in virtual time
    dropped: float | None = None  # packets to all hosts that found a queue full, per round; None in virtual time


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurveFigures(Record):
    """Figures of a run."""

    points: Mapping[str, PointFigures]  # number of workers -> figures


def percentiles(secs: Sequence[float] | np.ndarray) -> list[float]:
    """Returns the step times at `PERCENTILES`."""
    return np.percentile(np.asarray(secs, float), PERCENTILES).tolist()


@functools.cache
def expected_max(shape: str, n: int) -> float:
    """Returns the mean slowest of n compute times over the mean of one; drawn, as the lognormal has no closed form."""
    return order_statistic(samplers([with_mean(shape, 1000.0)], n, seed=0), n, _DRAWS).value


def paper_setting(
    update: str, shape: str, rate_1: float = RATE_1.value, rate_50: float = RATE_50.value
) -> ClusterSetting:
    """Returns the cluster of 17 ps tasks, with the costs of a step that give two rates of asynchronous workers.

    Its workers begin one after the other: with nearly even steps, those that begin together stay in step for long, all
    pull or all push, and half of each link is idle.

    Args:
        update: Rule.
        shape: Distribution of compute times.
        rate_1: Images per second of one worker.
        rate_50: Images per second of each of 50 workers with 7 ps tasks.
    """
    rounds = (IMAGES_PER_STEP / rate_1, IMAGES_PER_STEP / rate_50)
    compute_secs, bytes_per_sec = theory.async_costs(*rounds, _PAPER_BYTES, NUM_TOGETHER, NUM_TOGETHER_PS)
    costs = (_PAPER_BYTES, bytes_per_sec, 1000 * compute_secs)
    return ClusterSetting(update, 0, NUM_PAPER_PS, *costs, shape, begins_together=False)


def reading_range(update: str, shape: str = RARE) -> Interval:
    """Returns the range of the predicted throughput of 200 workers, over its value, as the readings may be wrong."""
    errors = itertools.product((-_READING_ERROR, _READING_ERROR), repeat=2)
    ends = [paper_setting(update, shape, RATE_1.value + one, RATE_50.value + other) for one, other in errors]
    secs = [one._replace(n=NUM_LARGEST).predicted_secs() for one in (paper_setting(update, shape), *ends)]
    ratios = [secs[0] / one for one in secs]
    return Interval(min(ratios), max(ratios))

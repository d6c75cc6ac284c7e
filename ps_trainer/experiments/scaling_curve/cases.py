"""Points and curves of throughput against the number of workers, from finished runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Results, RunResult
from ps_trainer.experiments.toolkit.shaped_hosts import SHORT_QUEUE_SECS
from ps_trainer.experiments.toolkit.statistics import IntervalEstimate, mean_estimate, mean_ratio, ratio_by_seed, spread

from .records import (
    ASYNC,
    PERCENTILES,
    SHAPE_NAMES,
    SYNC,
    ClusterSetting,
    PointFigures,
    RealPointSettings,
    StepTimes,
)


class CurvePoint(NamedTuple):
    """A setting and the results of its runs; medians over the seeds."""

    level: Level  # how real the point is
    setting: ClusterSetting  # simulated or real cluster
    times: StepTimes  # its step times
    simulated_secs: float  # the simulator's round; equal to `times.round_secs` for virtual points
    by_seed: Mapping[int, PointFigures]  # figures of its runs
    sent_again: float | None = None  # TCP segments that all hosts have sent again, per round; None in virtual time
    dropped: float | None = None  # packets to all hosts that found a queue full, per round; None in virtual time
    cpu_percent: float | None = None  # share of the cores that were busy, in percent; None where it is unknown
    queue_secs: float | None = None  # longest queue at each end of a link; None in virtual time

    def over_predicted(self) -> IntervalEstimate:
        """Returns the time of a round over the closed form's, geometric mean over the seeds."""
        rounds = [figures.round_secs for figures in self.by_seed.values()]
        return mean_ratio(rounds, self.setting.predicted_secs())

    def over_simulated(self) -> IntervalEstimate:
        """Returns the time of a round over the simulator's, geometric mean over the seeds."""
        return mean_ratio(*zip(*((one.round_secs, one.simulated_secs) for one in self.by_seed.values()), strict=True))

    def secs_over(self, other: CurvePoint) -> IntervalEstimate:
        """Returns the time of a round over that of another point, geometric mean over the seeds."""
        return other.rate_over(self).over(other.setting.n / self.setting.n)

    def rate_over(self, other: CurvePoint) -> IntervalEstimate:
        """Returns the steps per second over those of another point, geometric mean over the seeds."""
        return ratio_by_seed(self._rates, other._rates)

    @property
    def _rates(self) -> dict[int, float]:
        return {seed: self.setting.n / figures.round_secs for seed, figures in self.by_seed.items()}

    @property
    def mean_rate(self) -> IntervalEstimate:
        """Steps of all workers per second, mean over the seeds."""
        return mean_estimate([*self._rates.values()])

    @property
    def rate(self) -> float:
        """Steps of all workers per second."""
        return self.setting.n / self.times.round_secs

    @property
    def name(self) -> str:
        return f"{self.level.value[:2]}, {self.setting.name}"


class ThroughputCurve(NamedTuple):
    """Points that differ only in the number of workers, in increasing order."""

    points: Sequence[CurvePoint]

    @property
    def first(self) -> CurvePoint:
        return self.points[0]

    @property
    def name(self) -> str:
        one = self.first.setting
        return f"{self.first.level.value[:2]}, {one.update}, p={one.p}, {one.num_bytes / 1e6:g} MB"

    def at(self, n: int) -> CurvePoint | None:
        return next((point for point in self.points if point.setting.n == n), None)

    def efficiency(self, point: CurvePoint) -> float:
        """Returns the rate per worker, divided by the rate of one worker."""
        return point.rate / point.setting.n / (self.first.rate / self.first.setting.n)

    @property
    def passes_knee(self) -> bool:
        """Whether it reaches from one worker to twice the predicted knee or more."""
        return self.first.setting.n == 1 and self.points[-1].setting.n >= 2 * self.first.setting.knee()

    def measured_knee(self) -> IntervalEstimate:
        """Returns n at which n times one worker's rate meets the largest rate."""
        fastest = max(self.points, key=lambda point: point.rate)
        return fastest.rate_over(self.first).over(1 / self.first.setting.n)


class SyncAndAsync(NamedTuple):
    """Synchronous and asynchronous workers on the same cluster."""

    sync: CurvePoint
    other: CurvePoint

    @property
    def name(self) -> str:
        one = self.sync.setting
        return f"{self.sync.level.value[:2]}, n={one.n}, p={one.p}, {SHAPE_NAMES[one.shape]}"

    def ratio(self, percent: int) -> float:
        """Returns a percentile of sync step times over the same percentile of async; one of `PERCENTILES`."""
        place = PERCENTILES.index(percent)
        return self.sync.times.percentiles[place] / self.other.times.percentiles[place]

    def over_seeds(self, percent: int, other_percent: int | None = None) -> IntervalEstimate:
        """Returns `ratio` of a percentile, perhaps over that of another one, geometric mean over the seeds."""

        def value(figures: PointFigures) -> float:
            secs = dict(zip(PERCENTILES, figures.percentiles, strict=True))
            return secs[percent] / (secs[other_percent] if other_percent else 1.0)

        return ratio_by_seed(*({s: value(one) for s, one in p.by_seed.items()} for p in (self.sync, self.other)))

    def is_(self, shape: str, n: int) -> bool:
        """Returns whether the pair has this distribution and this number of workers."""
        return (self.sync.setting.shape, self.sync.setting.n) == (shape, n)


class Scale(NamedTuple):
    """All points of one scale: ours, or the papers'."""

    points: Sequence[CurvePoint]  # real ones with short queues, and virtual ones
    curves: Sequence[ThroughputCurve]  # made of them
    with_long_queues: Sequence[CurvePoint] = ()  # real ones that differ from one of the others by their queues

    @property
    def real(self) -> list[CurvePoint]:
        """The points of real clusters with short queues."""
        return [point for point in self.points if point.level is Level.SHAPED]

    @property
    def by_queues(self) -> list[tuple[CurvePoint, CurvePoint]]:
        """Real points with long queues, each with the same one with short queues."""
        short = {point.setting: point for point in self.real}
        return [(one, short[one.setting]) for one in self.with_long_queues if one.setting in short]

    @property
    def pairs(self) -> list[SyncAndAsync]:
        """Pairs of synchronous and asynchronous workers on the same cluster."""
        return pairs_of(self.points)


def scale_of(results: Results) -> Scale:
    """Returns the points and curves that results of one scale make."""
    points = points_of(results)
    usual = [point for point in points if point.queue_secs in (None, SHORT_QUEUE_SECS)]
    return Scale(usual, curves_of(usual), [point for point in points if point not in usual])


def points_of(results: Results) -> list[CurvePoint]:
    """Returns the points whose times count; seeds pooled by their medians."""
    groups: dict[tuple[Level, ClusterSetting, float | None], list[tuple[RunResult, PointFigures]]] = {}
    for result in results.uncontended():
        settings = result.run.settings
        queue_secs = settings.queue_secs if isinstance(settings, RealPointSettings) else None
        for n, figures in result.figures.points.items():
            key = (result.run.level, settings.cluster._replace(n=int(n)), queue_secs)
            groups.setdefault(key, []).append((result, figures))
    return [_point(*key, group) for key, group in groups.items()]


def pairs_of(points: Sequence[CurvePoint]) -> list[SyncAndAsync]:
    """Returns the pairs with more than one worker, in the order of the synchronous points."""
    others = {(p.level, p.setting): p for p in points if p.setting.update == ASYNC}
    found = []
    for point in points:
        other = others.get((point.level, point.setting._replace(update=ASYNC)))
        if point.setting.update == SYNC and point.setting.n > 1 and other:
            found.append(SyncAndAsync(point, other))
    return found


def curves_of(points: Sequence[CurvePoint]) -> list[ThroughputCurve]:
    """Returns the points joined to curves; one worker alone is synchronous and asynchronous, so it is in both."""
    groups: dict[tuple[Level, ClusterSetting], list[CurvePoint]] = {}
    for point in points:
        groups.setdefault((point.level, point.setting._replace(n=0)), []).append(point)
    for (level, key), group in groups.items():
        if all(point.setting.n > 1 for point in group):
            group += _alone(points, level, key)
    return [ThroughputCurve(sorted(group, key=lambda point: point.setting.n)) for group in groups.values()]


def _alone(points: Sequence[CurvePoint], level: Level, key: ClusterSetting) -> list[CurvePoint]:
    """Returns one worker's point of another rule or number of ps tasks; only its own link limits one worker."""
    alone = [point for point in points if point.level is level and point.setting.n == 1]
    like = [point for point in alone if point.setting._replace(update=key.update, p=key.p, n=key.n) == key]
    return [point._replace(setting=key._replace(n=1)) for point in like[:1]]


def _point(
    level: Level,
    setting: ClusterSetting,
    queue_secs: float | None,
    runs: Sequence[tuple[RunResult, PointFigures]],
) -> CurvePoint:
    group = [figures for _, figures in runs]
    times = [spread([figures.percentiles[i] for figures in group]).median for i in range(len(PERCENTILES))]
    return CurvePoint(
        level,
        setting,
        StepTimes(spread([figures.round_secs for figures in group]).median, times),
        spread([figures.simulated_secs for figures in group]).median,
        {result.run.seed: figures for result, figures in runs},
        sent_again=_median_if_known([figures.sent_again for figures in group]),
        dropped=_median_if_known([figures.dropped for figures in group]),
        cpu_percent=Results(result for result, _ in runs).cpu_percent,
        queue_secs=queue_secs,
    )


def _median_if_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return spread(known).median if known else None

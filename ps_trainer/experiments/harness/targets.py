"""Runs up to a target that some seeds miss: what claims, tables and plots say of them.

A seed that misses the target gave up. Its examples, updates or time are then a lower bound. Where most seeds of a case
miss the target, so is their median.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.experiments.harness.cases import Case
from ps_trainer.experiments.harness.claims import Measure
from ps_trainer.experiments.harness.plots import Axes
from ps_trainer.experiments.harness.tables import LowerBound
from ps_trainer.experiments.toolkit.statistics import median_ratio_interval, ratio_interval, spread


class Samples(NamedTuple):
    """A value of each seed; where it is not known, infinity and a lower bound."""

    values: Sequence[float]  # infinite where not known
    bounds: Sequence[float]  # the values, or their lower bounds

    @property
    def is_open(self) -> bool:
        """Whether the median is not known, because half of the values or more are not."""
        return not math.isfinite(np.median(self.values))

    @property
    def median(self) -> float:
        """Median, or its lower bound."""
        return float(np.median(self.bounds))

    def percentile(self, percent: float) -> float | LowerBound:
        """Returns a percentile, or its lower bound where it is not known."""
        value = float(np.percentile(self.bounds, percent))
        is_known = math.isfinite(np.percentile(self.values, percent, method="higher"))
        return value if is_known else LowerBound(value)

    def over(self, others: Samples, name: str) -> list[Measure]:
        """Returns the ratio of the medians with its bootstrap interval, or a bound; nothing where neither is known."""
        if self.is_open and others.is_open:
            return []
        interval = median_ratio_interval((self.bounds, self.values), (others.bounds, others.values))
        sign = "≥" if self.is_open else "≤" if others.is_open else ""
        return [Measure(name, self.median / others.median, interval, sign)]


class TargetCase(Case):
    """Runs that differ only in their seed, and end at a target.

    Attributes:
        is_reached: Whether each seed reaches the target.
    """

    is_reached: Sequence[bool]

    @property
    def num_lost(self) -> int:
        """Number of seeds that miss the target."""
        return len(self.runs) - sum(self.is_reached)

    @property
    def is_lost(self) -> bool:
        """Whether most seeds miss the target."""
        return 2 * self.num_lost > len(self.runs)

    def curve(self, *names: str) -> tuple[np.ndarray, ...]:
        """Returns figures that are series, each the medians over the seeds until the first of them ends."""
        series = [self.runs.figures(name) for name in names]
        shortest = min(map(len, series[0]))
        return tuple(np.median([one[:shortest] for one in own], axis=0) for own in series)

    def samples(self, figure: str) -> Samples:
        """Returns a figure that grows until the target is reached: of a seed that misses it, a lower bound."""
        bounds = getattr(self, figure)
        return Samples([one if known else math.inf for one, known in zip(bounds, self.is_reached, strict=True)], bounds)

    def cells(self, figure: str) -> list[float | LowerBound]:
        """Returns median, 10th and 90th percentile of such a figure."""
        return [self.samples(figure).percentile(percent) for percent in (50, 10, 90)]


def ratio(name: str, case: TargetCase | None, other: TargetCase | None, figure: str) -> list[Measure]:
    """Returns a figure that grows until the target is reached, of a case over that of another.

    Where all seeds reach the target, it is the ratio of the geometric means, with Welch's interval. Otherwise it is
    that of the medians, or a bound of it, with a bootstrap interval as wide as the unknown values can make it. There is
    none where one of the two was not run. Where most seeds of both miss the target, neither is known to need more.
    """
    if case is None or other is None:
        return []
    if case.num_lost or other.num_lost:
        return case.samples(figure).over(other.samples(figure), name)
    return [Measure(name, *ratio_interval(getattr(case, figure), getattr(other, figure)))]


def draw_cases(axis: Axes, cases: Collection[TargetCase], x: str, y: str, /, **style: Any) -> None:
    """Draws a figure of each case against a setting as `draw_spreads` does; lower bounds where most seeds miss.

    Args:
        axis: Axis.
        cases: Cases, by rising setting.
        x: Attribute of a case, its place on the x axis.
        y: Attribute of a case, a value of each seed.
        **style: Arguments of `Axes.errorbar`.
    """
    samples, lost = [getattr(case, y) for case in cases], [case.is_lost for case in cases]
    draw_spreads(axis, [getattr(case, x) for case in cases], samples, lost, **style)


def draw_spreads(
    axis: Axes, places: Sequence[float], samples: Sequence[Sequence[float]], lost: Sequence[bool] = (), /, **style: Any
) -> None:
    """Draws medians, with bars from the 10th to the 90th percentile; large triangles are lower bounds.

    Args:
        axis: Axis.
        places: Place of each sample on the x axis.
        samples: Samples.
        lost: Whether the median of each sample is only a lower bound. Empty = none is.
        **style: Arguments of `Axes.errorbar`, with colour, marker and label.
    """
    medians, p10, p90 = np.array([spread(sample) for sample in samples]).T
    style = {"mfc": "none", "lw": 1, "capsize": 2} | style
    bars = axis.errorbar(places, medians, (medians - p10, p90 - medians), **style)
    bounds = [(place, median) for place, median, is_lost in zip(places, medians, lost, strict=False) if is_lost]
    if bounds:
        axis.plot(*zip(*bounds, strict=True), "^", ms=10, mfc="none", mew=1.5, color=bars.lines[0].get_color())

"""Runs up to a target that some seeds miss: what claims, tables and plots say of them.

A seed that misses the target gave up. Its examples, updates or time are then a lower bound. Where most seeds of a case
miss the target, so is their median.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ps_trainer.experiments.harness.cases import Case
from ps_trainer.experiments.harness.claims import Measure
from ps_trainer.experiments.harness.plots import Axes
from ps_trainer.experiments.toolkit.statistics import ratio_interval, spread


class TargetCase(Case):
    """Runs that differ only in their seed, and end at a target.

    Attributes:
        num_lost: Number of seeds that miss the target.
    """

    num_lost: int

    @property
    def is_lost(self) -> bool:
        """Whether most seeds miss the target."""
        return 2 * self.num_lost > len(self.runs)

    def curve(self, *names: str) -> tuple[np.ndarray, ...]:
        """Returns figures that are series, each the medians over the seeds until the first of them ends."""
        series = [self.runs.figures(name) for name in names]
        shortest = min(map(len, series[0]))
        return tuple(np.median([one[:shortest] for one in own], axis=0) for own in series)

    def cells(self, figure: str) -> list[float | None]:
        """Returns median, 10th and 90th percentile of a figure; nothing where most seeds miss the target."""
        return [None] * 3 if self.is_lost else list(spread(getattr(self, figure)))


def ratio(name: str, case: TargetCase | None, other: TargetCase | None, figure: str) -> list[Measure]:
    """Returns a figure of a case over that of another, with Welch's interval over their seeds.

    There is none where one of the two was not run. Where both miss the target, neither is known to need more.
    """
    if case is None or other is None or (case.is_lost and other.is_lost):
        return []
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

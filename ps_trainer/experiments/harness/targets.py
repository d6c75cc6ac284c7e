"""Runs up to a target that some seeds miss: what claims, tables and plots say of them.

A seed that misses the target gave up. Its examples, updates or time are then a lower bound. Where most seeds of a case
miss the target, so is their median.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.experiments.harness.cases import Case
from ps_trainer.experiments.harness.claims import Measure
from ps_trainer.experiments.harness.plots import Axes
from ps_trainer.experiments.harness.tables import Column, LowerBound, numbers
from ps_trainer.experiments.toolkit.statistics import mean_ratio, median_ratio_interval, ratio_interval, spread

_OR_MORE = "or more: runs gave up"


class Samples(NamedTuple):
    """A value of each seed; where it is not known, infinity and a lower bound."""

    values: Sequence[float]  # infinite where not known
    bounds: Sequence[float]  # the values, or their lower bounds

    @classmethod
    def known(cls, values: Sequence[float]) -> Samples:
        """Returns samples that are all known."""
        return cls(values, values)

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

    def samples(self, figure: str) -> Samples:
        """Returns a figure that grows until the target is reached: of a seed that misses it, a lower bound."""
        bounds = getattr(self, figure)
        return Samples([one if known else math.inf for one, known in zip(bounds, self.is_reached, strict=True)], bounds)

    def cells(self, figure: str) -> list[float | LowerBound | None]:
        """Returns the values for `target_columns`."""
        mean = None if self.num_lost else mean_ratio(getattr(self, figure), 1.0).value
        return [*(self.samples(figure).percentile(percent) for percent in (50, 10, 90)), mean]


def target_columns(form: str, name: str, unit: str = "") -> list[Column]:
    """Returns the columns of a figure that grows until the target is reached.

    They are median, 10th and 90th percentile, and the geometric mean, which `ratio` compares: none where a seed misses
    the target.
    """
    return numbers(form, name, "p10", "p90", "geometric mean", unit=unit)


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
    """Draws a figure of each case against a setting, as `draw_samples` does.

    Args:
        axis: Axis.
        cases: Cases, by rising setting.
        x: Attribute of a case, its place on the x axis.
        y: Figure of a case that grows until the target is reached.
        **style: Arguments of `draw_samples`.
    """
    draw_samples(axis, {getattr(case, x): case.samples(y) for case in cases}, **style)


def draw_samples(
    axis: Axes, samples: Mapping[int, Samples] | Mapping[float, Samples], size: float = 9, /, **style: Any
) -> None:
    """Draws medians, with bars from the 10th to the 90th percentile.

    An arrow, which is joined to nothing, is a median of which only a lower bound is known. A small one at the end of a
    bar is such a percentile. The legend explains them where there are any.

    Args:
        axis: Axis.
        samples: Place on the x axis -> samples.
        size: Size of an arrow in points.
        **style: Arguments of `Axes.errorbar`, with colour, marker and label.
    """
    known = {place: one for place, one in samples.items() if not one.is_open}
    medians, low, high = np.array([spread(one.bounds) for one in known.values()]).reshape(-1, 3).T
    style = {"mfc": "none", "lw": 1, "capsize": 2} | style
    colour = axis.errorbar(list(known), medians, (medians - low, high - medians), **style).lines[0].get_color()
    bounds = {place: one.median for place, one in samples.items() if one.is_open}
    ends = [(place, end.value) for place, one in known.items() if isinstance(end := one.percentile(90), LowerBound)]
    arrows = {"ls": "none", "marker": r"$\uparrow$"}
    axis.plot(list(bounds), list(bounds.values()), ms=size, color=colour, **arrows)
    axis.plot([place for place, _ in ends], [end for _, end in ends], ms=size / 2, color=colour, **arrows)
    is_explained = any(line.get_label() == _OR_MORE for line in axis.get_lines())
    if (bounds or ends) and not is_explained:
        axis.plot([], [], ms=9, color="0.4", label=_OR_MORE, **arrows)


def draw_course(axis: Axes, x: np.ndarray, course: np.ndarray, /, **style: Any) -> None:
    """Draws a median line with a pale band from the 10th to the 90th percentile.

    Args:
        axis: Axis.
        x: Place of each value on the x axis.
        course: Median, 10th and 90th percentile, as of `TargetCase.course`.
        **style: Arguments of `Axes.plot`.
    """
    median, low, high = course
    (line,) = axis.plot(x, median, **{"lw": 1} | style)
    axis.fill_between(x, low, high, color=line.get_color(), alpha=0.12, lw=0)

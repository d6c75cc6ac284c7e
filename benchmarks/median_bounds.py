"""`median_bounds`: a median of few values, and an exact interval of it that needs no assumption about their spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ps_trainer.experiments.toolkit.statistics import median_interval, median_ranks


class MedianBounds(NamedTuple):
    """A sample's median, and two of its values that bound the median of all such values.

    Attributes:
        median: Median of the sample.
        low: Lower bound.
        high: Upper bound.
        confidence: Probability, 0..1, that the bounds of such a sample have the median of all such values between them.
    """

    median: float
    low: float
    high: float
    confidence: float

    def interval_text(self, form: str) -> str:
        """Returns the interval in words, such as "94 % interval 0.84 to 1.03".

        Args:
            form: Format of the numbers, for the built-in `format`.
        """
        if not self.confidence:
            return "no interval"
        return f"{100 * self.confidence:.0f} % interval {self.low:{form}} to {self.high:{form}}"


def median_bounds(values: Sequence[float]) -> MedianBounds:
    """Returns the median of at least one value, with its interval by `median_ranks` and the confidence of that."""
    median, (low, high) = median_interval(values)
    return MedianBounds(median, low, high, median_ranks(len(values))[1])

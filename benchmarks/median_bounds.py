"""`median_bounds`: a median of few values, and an exact interval of it that needs no assumption about their spread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

CONFIDENCE = 0.9
"""Least confidence of the interval, where there are enough values."""


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
    """Returns the median of at least one value, with the narrowest interval of a confidence of at least `CONFIDENCE`.

    Each of n independent values lies below the median with probability ½. So the k-th lowest and the k-th highest
    value miss it only if fewer than k values are on one side of it: with probability 2 · P(B < k), where B is binomial
    with n trials. This is exact for any continuous distribution. A bootstrap of five values is not: with a probability
    of 5.8 % the median of a resample is the lowest value, so chance decides whether a 5 % quantile is this value.

    Even the lowest and the highest of fewer than five values have less confidence. Then the interval has these two
    ends, and its confidence: 75 % for three values, and 0 for one.
    """
    ordered = sorted(values)
    num_values = len(ordered)
    kept = max((k for k in range(1, (num_values + 1) // 2 + 1) if _confidence(num_values, k) >= CONFIDENCE), default=1)
    middle = (ordered[(num_values - 1) // 2] + ordered[num_values // 2]) / 2
    return MedianBounds(middle, ordered[kept - 1], ordered[num_values - kept], _confidence(num_values, kept))


def _confidence(num_values: int, kept: int) -> float:
    """Returns the probability that the `kept`-th lowest and the `kept`-th highest value enclose the median."""
    return 1 - 2 * sum(math.comb(num_values, below) for below in range(kept)) / 2**num_values

"""`Target`: a test metric and the bound at which training ends, as `--target_metric` gives it; no TensorFlow."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from ps_trainer.errors import OptionError

_FORM = re.compile(r"\s*([^<>=\s]+)\s*(>=|<=)\s*(\S+)\s*")


class Target(NamedTuple):
    """A bound for a test metric.

    Attributes:
        metric: Name of one of the model's test metrics, or "loss".
        sense: Direction of the bound, ">=" or "<=".
        bound: Value that the metric must reach.
    """

    metric: str
    sense: str
    bound: float

    def __str__(self) -> str:
        return f"{self.metric}{self.sense}{self.bound:g}"

    def is_met(self, metrics: Mapping[str, float]) -> bool:
        """Returns whether the metric of this target has reached the bound; NaN never has."""
        value = metrics[self.metric]
        return value >= self.bound if self.sense == ">=" else value <= self.bound


def parse(text: str) -> Target:
    """Returns the target that the flag's value describes.

    Raises:
        OptionError: The text is malformed, or the bound is not a finite number.
    """
    match = _FORM.fullmatch(text)
    try:
        bound = float(match[3]) if match else math.nan
    except ValueError:
        bound = math.nan
    if not match or not math.isfinite(bound):
        raise OptionError(
            f"--target_metric={text}: write a metric, >= or <=, and a number, as in --target_metric='accuracy>=0.97'"
        )
    return Target(match[1], match[2], bound)

"""`Target`: a test metric and the bound at which training ends, as `--target_metric` gives it; no TensorFlow."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from ps_trainer.errors import OptionError

_FORM = re.compile(r"\s*([^<>=\s]+)\s*(>=|<=)\s*(\S+)\s*")


class Target(NamedTuple):
    """What is to be reached.

    Attributes:
        metric: name of one of the model's test metrics, or "loss".
        sense: ">=" or "<=".
        bound: for the metric.
    """

    metric: str
    sense: str
    bound: float

    def __str__(self) -> str:
        return f"{self.metric}{self.sense}{self.bound:g}"

    def is_met(self, metrics: Mapping[str, float]) -> bool:
        """Whether `metrics`, which hold this one, have reached the bound; what is no number has not."""
        value = metrics[self.metric]
        return value >= self.bound if self.sense == ">=" else value <= self.bound


def parse(text: str) -> Target:
    """The target that the flag's value describes.

    Raises:
        OptionError: it has another form, or the bound is no finite number.
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

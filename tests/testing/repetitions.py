"""How often the longest tests repeat themselves: all of it by hand, a part where CI runs (`CI=true`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

IS_CI = os.environ.get("CI") == "true"


def repetitions(values: Sequence[T], *, every: int = 2, first: int = 0) -> list[T]:
    """All values; in CI `first` and each `every`-th after it.

    For parameters that repeat the same assertions in another setting, never for the assertions themselves.
    """
    return list(values[first::every] if IS_CI else values)

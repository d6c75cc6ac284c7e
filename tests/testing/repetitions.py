"""How often the longest tests repeat themselves: all of it by hand, a part where CI runs (`CI=true`)."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")

IS_CI = os.environ.get("CI") == "true"


def repetitions(values: Sequence[T], *, every: int = 2, first: int = 0) -> list[T]:
    """All values; in CI `first` and each `every`-th after it.

    For parameters that repeat the same assertions in another setting, never for the assertions themselves.
    """
    return list(values[first::every] if IS_CI else values)


def covering(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Of each test so many items, in order, that every value of every parameter occurs, though not with all others.

    Which ones is the same in every process, as long as the values' texts are.
    """
    tests: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        tests[item.nodeid.split("::")[0], item.nodeid.split("[")[0]].append(item)
    return [item for of_one in tests.values() for item in _covering(of_one)]


def _covering(items: list[pytest.Item]) -> list[pytest.Item]:
    """Takes what has the most values that are not there yet, until none is left."""
    values = [
        {(name, repr(value)) for name, value in item.callspec.params.items()}
        if hasattr(item, "callspec")
        else {item.nodeid}
        for item in items
    ]
    kept, there = [], set()
    while any(new := [len(of_one - there) for of_one in values]):
        best = new.index(max(new))
        kept.append(best)
        there |= values[best]
    return [items[index] for index in sorted(kept)]

"""Combinations of parameters for the longest tests: a covering part, or all with `PS_TRAINER_FULL_TESTS=true`."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")

IS_FULL = os.environ.get("PS_TRAINER_FULL_TESTS") == "true"  # `make test-full`


def repetitions(values: Sequence[T], *, every: int = 2, first: int = 0) -> list[T]:
    """The value at index `first` and each `every`-th after it; all values in a full run.

    It serves parameters that repeat the same assertions in another setting, never the assertions themselves.
    """
    return list(values if IS_FULL else values[first::every])


def covering(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Chooses items of each test such that every value of every parameter occurs, but not every combination.

    The items keep their order. Every process of a run chooses the same items, because the choice depends only on the
    values' texts.
    """
    tests: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        tests[item.nodeid.split("::")[0], item.nodeid.split("[")[0]].append(item)
    return [item for of_one in tests.values() for item in _covering(of_one)]


def _covering(items: list[pytest.Item]) -> list[pytest.Item]:
    """Takes the item with the most values that no earlier item has, until every value occurs."""
    values = [
        {(name, repr(value)) for name, value in item.callspec.params.items()}
        if hasattr(item, "callspec")
        else {item.nodeid}
        for item in items
    ]
    kept, seen = [], set()
    while any(new := [len(of_one - seen) for of_one in values]):
        best = new.index(max(new))
        kept.append(best)
        seen |= values[best]
    return [items[index] for index in sorted(kept)]

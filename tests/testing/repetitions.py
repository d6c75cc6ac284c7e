"""Parameters of the longest tests, and their combinations: a part, or all with `PS_TRAINER_FULL_TESTS=true`."""

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


def representatives(values: Iterable[T], chosen: Sequence[T]) -> list[T]:
    """The `chosen` ones of the values, in their order; all values in a full run.

    It serves values that share the code under test: the caller says which value represents which others.

    Raises:
        ValueError: A chosen value is not one of the values.
    """
    values = list(values)
    if unknown := set(chosen) - set(values):
        raise ValueError(f"{sorted(map(str, unknown))} are not among {list(map(str, values))}")
    return values if IS_FULL else [value for value in values if value in chosen]


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

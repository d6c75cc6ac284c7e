"""Tests of the choice of parameter combinations in a run that is not full."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

from tests.testing.repetitions import covering


def item(name, **params):
    return SimpleNamespace(
        nodeid=f"tests/test_a.py::{name}[{'-'.join(map(str, params.values()))}]",
        callspec=SimpleNamespace(params=params),
    )


def test_every_value_occurs_in_as_few_items_as_the_longest_parameter_has():
    items = [item("test", a=a, b=b, c=c) for a, b, c in itertools.product("xy", "123", "pq")]
    kept = covering(items)
    assert len(kept) == 3
    for name, values in (("a", "xy"), ("b", "123"), ("c", "pq")):
        assert {one.callspec.params[name] for one in kept} == set(values)


def test_items_with_at_most_one_parameter_are_kept_whole_and_in_order():
    items = [item("one", a=a) for a in range(4)] + [SimpleNamespace(nodeid="tests/test_a.py::none")]
    items += [item("two", a=a) for a in range(4)]
    assert covering(items) == items

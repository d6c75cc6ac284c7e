"""Tests of the choice of parameter combinations in a run that is not full."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from tests.testing import repetitions
from tests.testing.repetitions import covering, representatives


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


@pytest.mark.parametrize(("is_full", "wanted"), [(False, ["a", "c"]), (True, ["a", "b", "c"])])
def test_representatives_stand_for_all_values_except_in_a_full_run(monkeypatch, is_full, wanted):
    monkeypatch.setattr(repetitions, "IS_FULL", is_full)
    assert representatives({"a": 1, "b": 2, "c": 3}, ["c", "a"]) == wanted
    with pytest.raises(ValueError, match="'d'.* are not among"):
        representatives("abc", ["a", "d"])


def test_items_with_at_most_one_parameter_are_kept_whole_and_in_order():
    items = [item("one", a=a) for a in range(4)] + [SimpleNamespace(nodeid="tests/test_a.py::none")]
    items += [item("two", a=a) for a in range(4)]
    assert covering(items) == items

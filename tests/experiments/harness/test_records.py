"""Settings and figures as JSON, and back."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import json
from collections.abc import Mapping, Sequence

import pytest

from ps_trainer import component_tables
from ps_trainer.experiments.harness.base import Part
from ps_trainer.experiments.harness.cases import Accessor, Case
from ps_trainer.experiments.harness.labels import Label
from ps_trainer.experiments.harness.records import Record, from_json


class Colour(Label):
    """Names."""

    RED = "red"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner(Record):
    """A part of `Outer`."""

    mean: float
    note: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer(Record):
    """A record of everything that a record may hold."""

    colour: Colour
    bound: int | None
    inner: Inner
    other: Inner | None = None
    by: Mapping[str, Inner]
    rates: Sequence[float]


OUTER = Outer(colour=Colour.RED, bound=None, inner=Inner(mean=1.0), by={"4": Inner(mean=2.0, note="n")}, rates=[0.5])


def test_json_leaves_out_only_what_is_none_by_default():
    assert OUTER.as_json() == {
        "colour": "red",
        "bound": None,
        "inner": {"mean": 1.0},
        "by": {"4": {"mean": 2.0, "note": "n"}},
        "rates": [0.5],
    }


def test_a_record_is_read_from_its_json():
    assert from_json(Outer, json.loads(json.dumps(OUTER.as_json()))) == OUTER


def test_a_value_without_a_field_is_ignored_and_a_missing_one_is_named():
    assert from_json(Inner, {"mean": 1.0, "old": 3}) == Inner(mean=1.0)
    with pytest.raises(ValueError, match="without inner, rates"):
        from_json(Outer, {"colour": "red", "bound": 1, "by": {}})


@pytest.mark.parametrize("name", component_tables.EXPERIMENTS.names())
def test_every_accessor_of_a_case_names_a_setting_or_a_figure(name):
    files = [f"ps_trainer.experiments.{name}.{file}" for file in ("records", "cases", "runs")]
    modules = [importlib.import_module(file) for file in files if importlib.util.find_spec(file)]
    kinds = [kind for module in modules for kind in vars(module).values() if isinstance(kind, type)]
    records = [kind for kind in kinds if issubclass(kind, Record)]
    # A part whose base class is of the toolkit may have the figures of that class.
    records += [kind.figures_type for kind in kinds if issubclass(kind, Part) and not inspect.isabstract(kind)]
    known = {field.name for kind in records for field in dataclasses.fields(kind)} | {"level", "seed"}
    cases = [kind for kind in kinds if issubclass(kind, Case)]
    named = [value.name for kind in cases for value in vars(kind).values() if isinstance(value, Accessor)]
    assert set(named) <= known, set(named) - known

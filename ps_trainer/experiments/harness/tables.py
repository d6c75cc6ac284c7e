"""Tables of a report: typed columns with units, rendered cell by cell."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from ps_trainer.experiments.harness.labels import Level

NOTHING = "–"
NEVER = "not reached"


@dataclasses.dataclass(frozen=True)
class LowerBound:
    """A number that is only known to be at least this large."""

    value: float


@dataclasses.dataclass(frozen=True)
class UpperBound:
    """A number that is only known to be at most this large."""

    value: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """A column."""

    name: str  # header
    form: str = ""  # format of its numbers, as for `format` (".2f"); empty for text
    unit: str = ""  # unit, printed in the header

    @property
    def header(self) -> str:
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def cell(self, value: Any) -> str:
        """Returns a value as text: a dash for None and NaN, a sign before a bound, words for what never came."""
        if isinstance(value, LowerBound | UpperBound):
            return f"{'≥' if isinstance(value, LowerBound) else '≤'} {self.cell(value.value)}"
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return NOTHING
        if isinstance(value, float) and math.isinf(value):
            return NEVER
        return format(value, self.form) if self.form else str(value)


def texts(*names: str) -> list[Column]:
    """Returns columns of texts."""
    return [Column(name=name) for name in names]


def numbers(form: str, *names: str, unit: str = "") -> list[Column]:
    """Returns columns of numbers of one form and unit."""
    return [Column(name=name, form=form, unit=unit) for name in names]


@dataclasses.dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        title: Title; empty where it has none.
        columns: Columns, in order.
        rows: A value for each column; None where there is none. The harness leaves out a table without rows.
        level: How real its numbers are: a `Level`, or the words of several joined by commas.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    level: str = Level.VIRTUAL

    def cells(self) -> list[list[str]]:
        return [[column.cell(value) for column, value in zip(self.columns, row, strict=True)] for row in self.rows]

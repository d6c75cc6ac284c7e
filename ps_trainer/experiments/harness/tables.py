"""Tables of a report: typed columns with units, rendered cell by cell."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

NOTHING = "–"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """A column.

    Attributes:
        name: its header.
        form: format of its numbers, as of `format` (".2f"); empty for text, which is put at the left.
        unit: said in the header.
    """

    name: str
    form: str = ""
    unit: str = ""

    @property
    def header(self) -> str:
        """Name and unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def cell(self, value: Any) -> str:
        """A value as text; a dash for None and NaN."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return NOTHING
        return format(value, self.form) if self.form else str(value)


def numbers(form: str, *names: str, unit: str = "") -> list[Column]:
    """Columns of numbers of one form and unit."""
    return [Column(name=name, form=form, unit=unit) for name in names]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        title: what it shows.
        level: how real its numbers are: a `Level`'s words, several joined by commas.
        columns: in order.
        rows: a value for each column; None where there is none.
    """

    title: str
    level: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]

    def cells(self) -> list[list[str]]:
        """The rows as text."""
        return [[column.cell(value) for column, value in zip(self.columns, row, strict=True)] for row in self.rows]

"""Finds columns of a table whose words tell a model nothing about other rows, and says what to do about them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ps_trainer.data.pipeline.table_columns import IGNORE, Columns

_MIN_KEYS, _MIN_KEY_SHARE = 50, 0.9  # number of words of a column that names the rows, and their share of the rows
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?([T ].*)?|\d\d?[./]\d\d?[./]\d{4}( .*)?")


def keys(columns: Columns, num_rows: int) -> list[str]:
    """Returns the names of columns of categories that seem to name the rows, as the number of a customer does.

    Args:
        columns: Columns of the table.
        num_rows: Number of training rows.
    """
    least = max(_MIN_KEYS, _MIN_KEY_SHARE * num_rows)
    return [name for name, words in columns.vocabularies.items() if len(words) >= least]


def dates(columns: Columns) -> list[str]:
    """Returns the names of columns of categories whose words are all dates, as 2024-05-31."""
    return [name for name, words in columns.vocabularies.items() if words and all(map(_DATE.fullmatch, words))]


def advice(keys: Sequence[str], dates: Sequence[str]) -> str:
    """Returns what to do about columns that `keys` and `dates` have found."""
    found = []
    if keys:
        found.append(
            f"almost each training row has another word in {', '.join(keys)}, so a model learns the rows by heart; if"
            f" these words name the rows, {_leave_out(keys)}"
        )
    if dates:
        found.append(
            f"each date in {', '.join(dates)} is a word of its own here, and a date of no training row is read as"
            f" missing; write numbers in place of dates, such as days, or {_leave_out(dates)}"
        )
    return "; ".join(found)


def _leave_out(names: Sequence[str]) -> str:
    return f"leave them out with --dataset_option=columns={','.join(f'{name}:{IGNORE}' for name in names)}"

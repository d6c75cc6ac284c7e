"""Marks: notes on published results that precede a change of the code which affects them.

`docs/results/marks.json` holds them, each with the commit of the results that it is about. A page shows a mark as long
as that commit made the results, and drops it when they are made again. `publish` writes the marks into the pages.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterable
from typing import NamedTuple

from ps_trainer.errors import UsageError

FILE = pathlib.Path("docs", "results", "marks.json")

_LABEL = "> **Made before a change"
_OLD_MARK = re.compile(rf"^{re.escape(_LABEL)}.*\n\n?", re.MULTILINE)


class Mark(NamedTuple):
    """A note on a published result that a later change affects."""

    page: str  # page, relative to the repository
    after: str  # beginning of the line above the mark: a heading, a verdict, a plot's or a table's title
    commit: str  # seven digits of the commit that made the result, which the page names
    date: str  # date of the change
    text: str  # change, and the part of the result that it concerns

    def __str__(self) -> str:
        return f"{_LABEL}, by commit {self.commit}; changed {self.date}.** {self.text}"


def read(repository: pathlib.Path) -> list[Mark]:
    """Returns all marks."""
    return [Mark(**values) for values in json.loads((repository / FILE).read_text(encoding="utf-8"))]


def with_marks(page: str, marks: Iterable[Mark]) -> str:
    """Returns the page with only these marks, without marks of results that the page no longer has.

    Raises:
        UsageError: A mark's line occurs more than once, or is missing although its result is on the page.
    """
    page = _OLD_MARK.sub("", page)
    for mark in marks:
        if f"commit {mark.commit}" not in page:
            continue
        lines = list(re.finditer(rf"^{re.escape(mark.after)}.*$", page, re.MULTILINE))
        if len(lines) != 1:
            raise UsageError(f"{FILE}: {len(lines)} lines of {mark.page} begin with {mark.after!r}; name exactly one")
        end = lines[0].end()
        page = f"{page[:end]}\n\n{mark}{page[end:]}"
    return page

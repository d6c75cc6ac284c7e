"""Marks: notes on published results that precede a change of the code which affects them.

`docs/results/marks.json` holds them, each with the commit of the results that it is about. A page shows a mark as long
as that commit made the results, and drops it when they are made again. `publish` writes the marks into the pages.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ps_trainer.errors import UsageError
from ps_trainer.experiments.harness.plots import Caption, ClaimSummary

FILE = pathlib.Path("docs", "results", "marks.json")

_LABEL = "> **Made before a change"
_OLD_MARK = re.compile(rf"^{re.escape(_LABEL)}.*\n\n?", re.MULTILINE)
_CELL = re.compile(r" \| ")
_PLOT = re.compile(r"(\]\(\w+/\w+?-([^)\s]+)\.png\)\n\n\*[^\n]*\* \([^)\n]*\)\. )[^\n]*")


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


def with_captions(page: str, captions: Mapping[str, Caption]) -> str:
    """Returns an experiment's page with its captions, by key up to its first `-`, below its plots.

    What was seen comes from the table of claims on the page.
    """
    seen = _read_claims(page)
    return _PLOT.sub(lambda match: match[1] + captions[match[2].partition("-")[0]].text(seen), page)


def _read_claims(page: str) -> dict[str, ClaimSummary]:
    """Reads the table of claims of a page: what was seen of each claim, by its sentence; empty without a table."""
    lines = iter(page.splitlines())
    header = next((line for line in lines if line.startswith("| claim |")), "")
    rows = [_cells(line) for line in itertools.takewhile(lambda line: line.startswith("|"), lines)]
    named = [dict(zip(_cells(header), row, strict=True)) for row in rows]
    return {row["claim"]: ClaimSummary(row["measured"], row["outcome"]) for row in named}


def _cells(line: str) -> list[str]:
    return [cell.replace("\\|", "|") for cell in _CELL.split(line.removeprefix("| ").removesuffix(" |"))]

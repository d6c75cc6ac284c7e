"""Marks: notes on published results that precede a change of the code which affects them.

`results/marks.json` holds them, each with the commit of the results that it is about. A page shows a mark as long as
that commit made the results, and drops it when they are made again. `publish` writes the marks into the pages.
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

FILE = pathlib.Path("experiments", "results", "marks.json")

_LABEL = "> **Made before a change"
_OLD_MARK = re.compile(rf"^{re.escape(_LABEL)}.*\n\n?", re.MULTILINE)
_CELL = re.compile(r" \| ")
_SECTION = re.compile(r'^(?=<a id=")', re.MULTILINE)
_PLOT = re.compile(r"(\]\(\w+/(\w+)-([^)\s]+)\.png\)\n\n\*[^\n]*\* \([^)\n]*\)\. )[^\n]*")


class Mark(NamedTuple):
    """A note on a published result that a later change affects."""

    page: str  # page, relative to the package's folder
    after: str  # beginning of the line above the mark: a heading, a verdict, a plot's or a table's title
    commit: str  # seven digits of the commit that made the result, which the same section of the page names
    date: str  # date of the change
    text: str  # change, and the part of the result that it concerns

    def __str__(self) -> str:
        return f"{_LABEL}, by commit {self.commit}; changed {self.date}.** {self.text}"


def read(package: pathlib.Path) -> list[Mark]:
    """All marks."""
    return [Mark(**values) for values in json.loads((package / FILE).read_text(encoding="utf-8"))]


def with_marks(page: str, marks: Iterable[Mark]) -> str:
    """Returns the page with only these marks, without marks of results that the page no longer has.

    Raises:
        UsageError: A mark's line occurs more than once, or is missing although its result is on the page.
    """
    sections = _SECTION.split(_OLD_MARK.sub("", page))
    for mark in marks:
        of_commit = [number for number, section in enumerate(sections) if f"commit {mark.commit}" in section]
        line = re.compile(rf"^{re.escape(mark.after)}.*$", re.MULTILINE)
        found = [(number, match) for number in of_commit for match in line.finditer(sections[number])]
        if of_commit and len(found) != 1:
            raise UsageError(
                f"{FILE}: {len(found)} lines of {mark.page} begin with {mark.after!r} in what commit {mark.commit}"
                " made; name exactly one"
            )
        for number, match in found:
            section = sections[number]
            sections[number] = f"{section[: match.end()]}\n\n{mark}{section[match.end() :]}"
    return "".join(sections)


def with_captions(page: str, captions: Mapping[str, Mapping[str, Caption]]) -> str:
    """Returns the page with the captions of each experiment, by key up to its first `-`, below its plots.

    What was seen comes from the table of claims above the plots.
    """

    def section_with_captions(section: str) -> str:
        seen = _read_claims(section)

        def caption_of(match: re.Match[str]) -> str:
            head, experiment, key = match.groups()
            return f"{head}{captions[experiment][key.partition('-')[0]].text(seen)}"

        return _PLOT.sub(caption_of, section)

    return "".join(map(section_with_captions, _SECTION.split(page)))


def _read_claims(section: str) -> dict[str, ClaimSummary]:
    """Reads the table of claims of a section: what was seen of each claim, by its sentence; empty without a table."""
    lines = iter(section.splitlines())
    header = next((line for line in lines if line.startswith("| claim |")), "")
    rows = [_cells(line) for line in itertools.takewhile(lambda line: line.startswith("|"), lines)]
    named = [dict(zip(_cells(header), row, strict=True)) for row in rows]
    return {row["claim"]: ClaimSummary(row["measured"], row["outcome"]) for row in named}


def _cells(line: str) -> list[str]:
    return [cell.replace("\\|", "|") for cell in _CELL.split(line.removeprefix("| ").removesuffix(" |"))]

"""`Caption`: the words below a plot. They are fixed before anything is run, so they state nothing as seen."""

from __future__ import annotations

from typing import NamedTuple


class Caption(NamedTuple):
    """The words below a plot, whatever its data are.

    Attributes:
        shows: what axes, lines and markers are, in sentences.
        expected: what the sources or the models let expect; what came of it is in the table of claims.
    """

    shows: str
    expected: str = ""

    def __str__(self) -> str:
        return f"{self.shows} Expected: {self.expected}" if self.expected else self.shows

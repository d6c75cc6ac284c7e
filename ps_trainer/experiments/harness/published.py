"""Numbers of the literature, each with a tag for the certainty that it is the source's number."""

from __future__ import annotations

import dataclasses
import enum


class Tag(enum.Enum):
    """The origin of a number."""

    READ = "V"  # read in the primary text
    SUMMARY = "S"  # read in a summary of the source
    RECALLED = "K"  # from memory, not read again
    MEASURED = "M"  # measured or simulated by us
    DERIVED = "D"  # computed from other numbers


@dataclasses.dataclass(frozen=True)
class Published:
    """A number of the literature.

    Its text says where the number comes from, and one that was not read in the source never reads as if the
    source said it.
    """

    what: str  # quantity: "median step with 4 backup workers"
    value: float  # number, in `unit`
    unit: str  # "s", "%", or empty
    tag: Tag  # how we know it
    source: str  # paper: "Abadi et al. 2016, Fig. 8c"

    @property
    def number(self) -> str:
        return f"{self.value:g} {self.unit}".rstrip()

    @property
    def origin(self) -> str:
        """The origin of the number, in words; also used in the legends of plots."""
        return {
            Tag.READ: f"{self.source}",
            Tag.SUMMARY: f"a summary of {self.source}",
            Tag.RECALLED: f"recalled, not read again ({self.source})",
            Tag.MEASURED: f"our own measurement ({self.source})",
            Tag.DERIVED: f"derived ({self.source})",
        }[self.tag]

    def __str__(self) -> str:
        return f"{self.what}: {self.number}, {self.origin}"

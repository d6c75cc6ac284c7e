"""Claims: a sentence, its measure, and the threshold beyond which the claim is refuted.

A claim is written down, threshold and measure included, in the experiment's `claims.py` before anything is run.
This module judges the measured values by the threshold alone.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple


class Finding(enum.Enum):
    """Judgement of a claim by its measured values."""

    OK = "ok"
    PARTLY = "partly"
    REFUTED = "refuted"
    NOT_TESTABLE = "not testable"


class Word(enum.Enum):
    """The verdict on an experiment."""

    SHAPE_REPRODUCED = "shape reproduced"
    PARTLY = "partly"
    NOT_REPRODUCED = "not reproduced"
    NOT_TESTABLE = "not testable here"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limit:
    """A range of values that includes its ends; a missing end leaves the range open there."""

    low: float = -math.inf
    high: float = math.inf

    def margin(self, value: float) -> float:
        """Distance of a value from the nearest end, negative outside of the range; -inf for NaN."""
        return -math.inf if math.isnan(value) else min(value - self.low, self.high - value)

    @property
    def beyond(self) -> str:
        """Values outside of the range, in words."""
        if math.isinf(self.low):
            return f"above {self.high:g}"
        return f"below {self.low:g}" if math.isinf(self.high) else f"outside {self.low:g} to {self.high:g}"

    def __str__(self) -> str:
        if math.isinf(self.low):
            return f"at most {self.high:g}"
        return f"at least {self.low:g}" if math.isinf(self.high) else f"from {self.low:g} to {self.high:g}"


class Measure(NamedTuple):
    """One measured value that a claim is about."""

    case: str  # name of the case: "n=8, exp"
    value: float  # value in the claim's unit; NaN counts as outside every limit


class Checked(NamedTuple):
    """A claim and its outcome."""

    claim: Claim
    finding: Finding  # judgement by the claim's limits
    text: str  # measured values in a sentence, with the worst of them; or why there are none
    measured: Sequence[Measure] = ()  # measured values


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A testable statement.

    Attributes:
        key: Unique name in the experiment.
        sentence: Statement.
        quantity: Measured quantity in words, with its unit.
        limit: Range of the values; one value outside refutes the claim.
        expected: Narrower range; values between the two make the claim hold partly. None = `limit`.
        measure: Function that gives the measured values, one per case, of the part's cases.
        why_none: Function that explains, from the part's cases, why there are no values. None = the part's function.
    """

    key: str
    sentence: str
    quantity: str
    limit: Limit
    expected: Limit | None = None
    measure: Callable[[Any], Iterable[Measure]] = dataclasses.field(repr=False)
    why_none: Callable[[Any], str] | None = dataclasses.field(repr=False, default=None)

    @property
    def refuted_if(self) -> str:
        """The threshold in words."""
        return f"{self.quantity} is {self.limit.beyond}"

    def check(self, measured: Sequence[Measure], why_not: str = "") -> Checked:
        """Judges the measured values; without any, the claim is not testable, for the reason `why_not`."""
        if not measured:
            return Checked(self, Finding.NOT_TESTABLE, why_not or "nothing was measured")
        worst = min(measured, key=lambda measure: self.limit.margin(measure.value))
        if self.limit.margin(worst.value) < 0:
            outside = sum(self.limit.margin(measure.value) < 0 for measure in measured)
            return Checked(self, Finding.REFUTED, self._sentence(measured, worst, outside, self.limit), measured)
        expected = self.expected or self.limit
        worst = min(measured, key=lambda measure: expected.margin(measure.value))
        outside = sum(expected.margin(measure.value) < 0 for measure in measured)
        finding = Finding.PARTLY if outside else Finding.OK
        return Checked(self, finding, self._sentence(measured, worst, outside, expected), measured)

    def _sentence(self, measured: Sequence[Measure], worst: Measure, outside: int, limit: Limit) -> str:
        if len(measured) == 1:
            return f"{worst.value:.4g} ({worst.case}); {limit}"
        what = f"{outside} of {len(measured)} outside, " if outside else f"all {len(measured)} inside, "
        return f"{what}the worst {worst.value:.4g} ({worst.case}); {limit}"


class Verdict(NamedTuple):
    """The verdict on an experiment: its word, and why where the word alone does not say it."""

    word: Word
    why: str = ""

    def __str__(self) -> str:
        return f"{self.word.value}: {self.why}" if self.why else self.word.value


def verdict_on(checked: Sequence[Checked]) -> Verdict:
    """The verdict on an experiment from its claims; claims that could not be tested count neither way."""
    findings = {check.finding for check in checked} - {Finding.NOT_TESTABLE}
    if not findings:
        return Verdict(Word.NOT_TESTABLE, "; ".join(dict.fromkeys(check.text for check in checked)))
    if findings == {Finding.OK}:
        return Verdict(Word.SHAPE_REPRODUCED)
    return Verdict(Word.NOT_REPRODUCED if findings == {Finding.REFUTED} else Word.PARTLY)

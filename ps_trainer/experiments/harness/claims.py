"""Claims: a sentence, its measure, and the threshold beyond which the claim is refuted.

A claim is written down, threshold and measure included, in a file of the experiment before anything is run. A later
change is named in its `amended`. This module judges the measured values by the threshold alone.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ps_trainer.experiments.toolkit.statistics import Interval, median_interval

_MOST_SHOWN = 6  # cases outside that a claim's sentence names


class ClaimFinding(enum.Enum):
    """Judgement of a claim by its measured values."""

    OK = "ok"
    PARTLY = "partly"
    UNDECIDED = "undecided"  # the threshold lies within the interval of a measured value
    REFUTED = "refuted"
    NOT_TESTABLE = "not testable"


class ClaimKind(enum.Enum):
    """Origin of a claim. The verdict on an experiment comes from the claims of the literature alone."""

    LITERATURE = "literature"  # a source says so about the system that it measured
    THEORY = "theory"  # a formula, or a count that must come out
    SIMULATOR = "simulator"  # the simulator against a real cluster, or against what it was fitted to
    EXTENSION = "extension"  # beyond what the sources say


class VerdictKind(enum.Enum):
    """The verdict on an experiment."""

    SHAPE_REPRODUCED = "shape reproduced"
    PARTLY = "partly"
    UNDECIDED = "undecided"
    NOT_REPRODUCED = "not reproduced"
    NOT_TESTABLE = "not testable here"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limit:
    """A range of values that includes its ends; a missing end leaves the range open there."""

    low: float = -math.inf
    high: float = math.inf

    def margin(self, value: float) -> float:
        """Returns the distance of a value from the nearest end, negative outside of the range; -inf for NaN."""
        return -math.inf if math.isnan(value) else min(value - self.low, self.high - value)

    def excludes(self, measure: Measure) -> bool:
        """Returns whether a measured value is outside, together with its whole interval."""
        low, high = measure.bounds
        return math.isnan(measure.value) or high < self.low or low > self.high

    def includes(self, measure: Measure) -> bool:
        """Returns whether a measured value is inside, together with its whole interval."""
        return min(map(self.margin, measure.bounds)) >= 0

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
    interval: Interval | None = None  # its 90 % confidence interval, if the runs give one
    sign: str = ""  # "≥" or "≤" where only a bound of the value is known

    @property
    def bounds(self) -> Interval:
        """The interval, or the value alone."""
        return self.interval or Interval(self.value, self.value)

    def __str__(self) -> str:
        high = "…" if self.interval and math.isinf(self.interval.high) else f"{self.bounds.high:.4g}"
        within = f" [{self.interval.low:.4g}, {high}]" if self.interval else ""
        return f"{self.sign}{' ' if self.sign else ''}{self.value:.4g}{within} ({self.case})"


class JudgedClaim(NamedTuple):
    """A claim and its outcome."""

    claim: Claim
    finding: ClaimFinding  # judgement by the claim's limits
    text: str  # measured values in a sentence, with the worst of them; or why there are none
    measured: Sequence[Measure] = ()  # measured values


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClaimLine:
    """A claim and its outcome, as pages show them."""

    sentence: str
    measured: str
    outcome: str
    kind: str = ""  # empty in files of older versions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A testable statement.

    Attributes:
        key: Unique name in the experiment.
        sentence: Statement.
        kind: Origin of the statement.
        quantity: Measured quantity in words, with its unit.
        limit: Range of the values; one value outside refutes the claim.
        expected: Narrower range; values between the two make the claim hold partly. None = `limit`.
        by_median: Whether the median over the cases is judged, with its interval, instead of each case. The
            cases outside are counted and the worst is named.
        amended: Date of a change of the claim after its first run, and the reason. Empty = none.
        measure: Function that gives the measured values, one per case, of the part's cases.
        why_none: Function that explains, from the part's cases, why there are no values. None = the part's function.
    """

    key: str
    sentence: str
    kind: ClaimKind
    quantity: str
    limit: Limit
    expected: Limit | None = None
    by_median: bool = False
    amended: str = ""
    measure: Callable[[Any], Iterable[Measure]] = dataclasses.field(repr=False)
    why_none: Callable[[Any], str] | None = dataclasses.field(repr=False, default=None)

    @property
    def refuted_if(self) -> str:
        """The threshold in words, with its amendment."""
        of = f"the median of {self.quantity}" if self.by_median else self.quantity
        return f"{of} is {self.limit.beyond}" + (f" (amended {self.amended})" if self.amended else "")

    def check(self, measured: Sequence[Measure], why_not: str = "") -> JudgedClaim:
        """Judges the measured values; without any, the claim is not testable, for the reason `why_not`."""
        if not measured:
            return JudgedClaim(self, ClaimFinding.NOT_TESTABLE, why_not or "nothing was measured")
        judged = [_median(measured)] if self.by_median and len(measured) > 1 else measured
        finding, limit = self._judge(judged)
        words = str(limit) if limit is self.limit else f"expected {limit}"
        return JudgedClaim(self, finding, _sentence(judged, measured, limit, words), measured)

    def _judge(self, judged: Sequence[Measure]) -> tuple[ClaimFinding, Limit]:
        """Returns the finding, and the range that it is about."""
        if any(map(self.limit.excludes, judged)):
            return ClaimFinding.REFUTED, self.limit
        if not all(map(self.limit.includes, judged)):
            return ClaimFinding.UNDECIDED, self.limit
        expected = self.expected or self.limit
        is_expected = all(expected.margin(measure.value) >= 0 for measure in judged)
        return ClaimFinding.OK if is_expected else ClaimFinding.PARTLY, expected


# Each makes a `Claim` of its kind; `functools.partial` binds further fields that several claims share.
literature_claim = functools.partial(Claim, kind=ClaimKind.LITERATURE)
theory_claim = functools.partial(Claim, kind=ClaimKind.THEORY)
simulator_claim = functools.partial(Claim, kind=ClaimKind.SIMULATOR)
extension_claim = functools.partial(Claim, kind=ClaimKind.EXTENSION)

# An amendment of claims of several experiments.
BY_SEEDS = (
    "2026-11-27: geometric means over the seeds, with an interval by Student's t, as single values decided before"
)
BY_UNSEEN_SEEDS = "2026-11-29: seeds 10 to 49, as earlier ones left a claim undecided; before their run"
BY_LONGER_SLEEPS = (
    "2026-11-29: workers sleep longer, as tasks waited for cores for more than 2 % of a step at other hours of the same"
    " machine; before this run"
)


def amend(claims: Iterable[Claim], reason: str) -> tuple[Claim, ...]:
    """Returns the claims, each amended for this reason, too."""
    return tuple(
        dataclasses.replace(claim, amended=f"{claim.amended}; {reason}" if claim.amended else reason)
        for claim in claims
    )


def _median(measured: Sequence[Measure]) -> Measure:
    median, interval = median_interval([measure.value for measure in measured])
    return Measure(f"median of {len(measured)}", median, interval)


def _sentence(judged: Sequence[Measure], measured: Sequence[Measure], limit: Limit, words: str) -> str:
    """Returns the measured values in words: those outside, the farthest first, or the one nearest to the limit."""
    # Of values that are equally far inside, the one whose interval reaches farthest out comes first.
    ordered = sorted(measured, key=lambda one: (min(0.0, limit.margin(one.value)), min(map(limit.margin, one.bounds))))
    outside = [measure for measure in ordered if limit.margin(measure.value) < 0]
    shown = ", ".join(map(str, outside[:_MOST_SHOWN] or ordered[:1]))
    more = f", and {len(outside) - _MOST_SHOWN} more" if len(outside) > _MOST_SHOWN else ""
    where = (
        f"{len(outside)} of {len(measured)} outside, farthest" if outside else f"all {len(measured)} inside, nearest"
    )
    if judged is not measured:
        return f"{judged[0]}; {words}; of the cases {where}: {shown}{more}"
    return f"{shown}; {words}" if len(measured) == 1 else f"{where}: {shown}{more}; {words}"


class Elsewhere(NamedTuple):
    """A claim of an experiment's sources that another experiment tests."""

    what: str  # claim in words, without a verb: "the final accuracy of many workers"
    experiment: str  # name of the other experiment
    claim: str  # key of its claim


class Verdict(NamedTuple):
    """The verdict on an experiment: its kind, and the reason where the kind alone does not show it."""

    kind: VerdictKind
    why: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value}. {self.why[0].upper()}{self.why[1:]}" if self.why else self.kind.value


def verdict_on(
    checked: Sequence[JudgedClaim],
    untested: str = "",
    elsewhere: Mapping[Elsewhere, ClaimFinding] = MappingProxyType({}),
) -> Verdict:
    """Returns the verdict on an experiment.

    Args:
        checked: Its claims. Only those of the literature count. One that could not be tested counts as untested.
        untested: What the sources claim and no claim tests, in words. With it, nothing is better than partly.
        elsewhere: Claims that other experiments test, and their outcomes. One that does not hold there makes the
            verdict worse, as one of this experiment would. One that holds does not make it better.
    """
    literature_checks = [check for check in checked if check.claim.kind is ClaimKind.LITERATURE]
    findings = {check.finding for check in literature_checks} - {ClaimFinding.NOT_TESTABLE}
    if not findings:
        reasons = dict.fromkeys(check.text for check in literature_checks)
        return Verdict(VerdictKind.NOT_TESTABLE, "; ".join(reasons) or "no claim of the literature was tested")
    tested = {one: finding for one, finding in elsewhere.items() if finding is not ClaimFinding.NOT_TESTABLE}
    missing = [f"“{one.claim.sentence}”" for one in literature_checks if one.finding is ClaimFinding.NOT_TESTABLE]
    missing += [f"{one.what} (`{one.experiment}` tests it)" for one in elsewhere if one not in tested]
    untested = "; ".join([untested, *missing] if untested else missing)
    others = [f"tested in `{one.experiment}`: {one.what}, {finding.value}" for one, finding in tested.items()]
    why = "; ".join([f"not tested: {untested}", *others] if untested else others)
    if findings == {ClaimFinding.REFUTED}:
        return Verdict(VerdictKind.NOT_REPRODUCED, why)
    findings |= set(tested.values())
    if findings == {ClaimFinding.OK}:
        return Verdict(VerdictKind.PARTLY if untested else VerdictKind.SHAPE_REPRODUCED, why)
    return Verdict(
        VerdictKind.UNDECIDED if findings <= {ClaimFinding.OK, ClaimFinding.UNDECIDED} else VerdictKind.PARTLY, why
    )


def tally(claims: Sequence[ClaimLine], kind: ClaimKind) -> str:
    """Counts the outcomes of the claims of a kind: "3 ok, 1 refuted"; empty without any."""
    outcomes = Counter(claim.outcome for claim in claims if claim.kind == kind.value)
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())

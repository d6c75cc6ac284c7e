"""`PageTexts`: what the page of an experiment says in words.

An experiment declares its texts once, in its `texts.py`. None of them is a constant sentence about results: answers and
reasons are bound to the outcomes of claims, and a page shows them only for the outcome that a claim has.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ps_trainer.experiments.harness.claims import ClaimFinding, ClaimKind, JudgedClaim

UNANSWERED = "Open: no claim that would answer it was decided."
NO_CAUSE = "Discrepancy: its cause was not found."
_NEAR_LIMIT = "The limit lies within the interval of a value."

_HEADS = {
    ClaimFinding.OK: "Holds",
    ClaimFinding.PARTLY: "Holds in part",
    ClaimFinding.UNDECIDED: "Undecided",
    ClaimFinding.REFUTED: "Does not hold",
    ClaimFinding.NOT_TESTABLE: "Not tested",
}
_DEFAULTS = {
    ClaimFinding.PARTLY: NO_CAUSE,
    ClaimFinding.UNDECIDED: _NEAR_LIMIT,
    ClaimFinding.REFUTED: NO_CAUSE,
}
_CASES = re.compile(r"all (\d+) inside|(\d+) of (\d+) outside")


class Outcomes(NamedTuple):
    """Words for the outcomes of one claim; empty where there is nothing to say."""

    claim: str  # key of the claim
    ok: str = ""
    refuted: str = ""
    partly: str = ""  # empty = as `ok`

    def of(self, finding: ClaimFinding) -> str:
        """Returns the words for an outcome; empty for outcomes that decide nothing."""
        words = {
            ClaimFinding.OK: self.ok,
            ClaimFinding.PARTLY: self.partly or self.ok,
            ClaimFinding.REFUTED: self.refuted,
        }
        return words.get(finding, "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PageTexts:
    """Texts of a page, in their order.

    Attributes:
        question: Question that the experiment answers, in plain words.
        answers: Parts of the answer, one claim each; those for the outcomes that the claims have make one sentence.
        best_plot: Key of the plot that shows the answer.
        background: What a reader must know, in about five lines.
        formula: Formula of the background, with a line for each symbol that is not obvious.
        finding: What the sources found, each with its section, figure or table.
        setup: What was run.
        reasons: Why a claim has its outcome, for the outcomes that need a reason.
        limits: What the results do not say.
    """

    question: str
    answers: Sequence[Outcomes]
    best_plot: str
    background: str
    formula: str
    finding: str
    setup: str
    reasons: Sequence[Outcomes] = ()
    limits: Sequence[str] = ()

    def answer(self, checked: Iterable[JudgedClaim]) -> str:
        """Returns the answer in one sentence, with the numbers of cases."""
        by_key = {check.claim.key: check for check in checked}
        asked = [(words, by_key[words.claim]) for words in self.answers if words.claim in by_key]
        parts = [f"{text}{_cases(check)}" for words, check in asked if (text := words.of(check.finding))]
        sentence = "; ".join(parts)
        return f"{sentence[0].upper()}{sentence[1:]}." if parts else UNANSWERED

    def seen(self, checked: Sequence[JudgedClaim]) -> list[str]:
        """Returns a text for each claim that needs words, by kind, and one for the number of the others."""
        reasons = {words.claim: words for words in self.reasons}
        kinds = list(ClaimKind)
        texts = []
        for check in sorted(checked, key=lambda check: kinds.index(check.claim.kind)):
            why = reasons[check.claim.key].of(check.finding) if check.claim.key in reasons else ""
            why = why or _DEFAULTS.get(check.finding, "")
            if why or check.finding is not ClaimFinding.OK:
                head = f"**{_HEADS[check.finding]}** ({check.claim.kind.value})"
                texts.append(f"{head}: “{check.claim.sentence}” ({check.text}). {why}".rstrip())
        others = len(checked) - len(texts)
        if others:
            texts.append(f"{others} {'more ' if texts else ''}claim{'s are' if others > 1 else ' is'} ok.")
        return texts


def _cases(check: JudgedClaim) -> str:
    """Returns how many cases an outcome is about, in parentheses; empty for a single one."""
    match = _CASES.search(check.text)
    if not match:
        return ""
    outside, count = (0, int(match[1])) if match[1] else (int(match[2]), int(match[3]))
    meant = outside if check.finding is ClaimFinding.REFUTED else count - outside
    if meant < count:
        return f" (in {meant} of {count} cases)"
    return f" (in {'both' if count == 2 else f'all {count}'} cases)"  # a claim with one case has no such words

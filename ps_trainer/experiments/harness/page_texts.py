"""`PageTexts`: what the page of an experiment says in words.

An experiment declares its texts once. None of them is a constant sentence about results: answers and reasons are bound
to the outcomes of claims, and a page shows them only for the outcome that a claim has.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

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
_OPEN = (ClaimFinding.REFUTED, ClaimFinding.UNDECIDED)  # what an answer must not leave out
_DEFAULTS = {ClaimFinding.PARTLY: NO_CAUSE, ClaimFinding.REFUTED: NO_CAUSE}
_ALTERNATIVES = re.compile(r"\[([^\[\]]*\|[^\[\]]*)\]")
_PLACES = {ClaimFinding.OK: 0, ClaimFinding.REFUTED: 1, ClaimFinding.PARTLY: 2}  # of the words in alternatives
_CASES = re.compile(r"all (\d+) inside|(\d+) of (\d+) outside")
_MEDIAN = re.compile(r"\(median of \d+\)")


def words_for(text: str, finding: ClaimFinding) -> str:
    """Returns the words of a text for an outcome of a claim; empty for outcomes that decide nothing.

    `k workers [need|do not need] more` has words for a claim that holds, and for one that is refuted. A third
    alternative is for a claim that holds in part. A text without alternatives is about a claim that holds.
    """
    place = _PLACES.get(finding)
    if place is None or (finding is ClaimFinding.REFUTED and not _ALTERNATIVES.search(text)):
        return ""

    def chosen(match: re.Match[str]) -> str:
        words = match[1].split("|")
        return words[place] if place < len(words) else words[0]

    return _ALTERNATIVES.sub(chosen, text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PageTexts:
    """Texts of a page, in their order.

    Attributes:
        question: Question that the experiment answers, in plain words.
        answers: Parts of the answer by the key of their claim, with alternatives as for `words_for`; those for the
            outcomes that the claims have make one sentence.
        best_plot: Key of the plot that shows the answer.
        background: What a reader must know, in about five lines.
        formula: Formula of the background, with a line for each symbol that is not obvious.
        finding: What the sources found, each with its section, figure or table.
        setup: What was run.
        reasons: Why a claim has its outcome, by its key, for the outcomes that need a reason; alternatives likewise.
        doubts: Why a claim is undecided, by its key; shown for that outcome alone.
        intervals: Methods of the confidence intervals, in words that follow "by".
        limits: What the results do not say.
    """

    question: str
    answers: Mapping[str, str]
    best_plot: str
    background: str
    formula: str
    finding: str
    setup: str
    intervals: str
    reasons: Mapping[str, str] = dataclasses.field(default_factory=dict)
    doubts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    limits: Sequence[str] = ()

    def answer(self, checked: Iterable[JudgedClaim]) -> str:
        """Returns the answer in one sentence, with numbers of cases.

        It has words for the claims of `answers` that are decided. Then come the other claims of the literature that
        are refuted or undecided, and how many of all other claims are.
        """
        by_key = {check.claim.key: check for check in checked}
        asked = [by_key[key] for key in self.answers if key in by_key]
        said = {check.claim.key: words_for(self.answers[check.claim.key], check.finding) for check in asked}
        parts = [_counted(words, by_key[key]) for key, words in said.items() if words]
        if not parts:
            return UNANSWERED
        rest = [check for key, check in by_key.items() if not said.get(key) and check.finding in _OPEN]
        of_sources = [check for check in rest if check.claim.kind is ClaimKind.LITERATURE]
        parts += [f"“{check.claim.sentence}” is {check.finding.value}" for check in of_sources]
        findings = [check.finding for check in rest if check not in of_sources]
        counts = {finding: findings.count(finding) for finding in _OPEN if finding in findings}
        if counts:
            numbers = [f"{count} {'are' if count > 1 else 'is'} {one.value}" for one, count in counts.items()]
            parts.append(f"of the claims that no source makes {' and '.join(numbers)}")
        sentence = "; ".join(parts)
        return f"{sentence[0].upper()}{sentence[1:]}."

    def seen(self, checked: Sequence[JudgedClaim]) -> list[str]:
        """Returns a text for each claim of the literature or that needs words, and one for the number of the others."""
        kinds = list(ClaimKind)
        texts = []
        for check in sorted(checked, key=lambda check: kinds.index(check.claim.kind)):
            why = self._why(check)
            if why or check.finding is not ClaimFinding.OK or check.claim.kind is ClaimKind.LITERATURE:
                head = f"**{_HEADS[check.finding]}** ({check.claim.kind.value})"
                texts.append(f"{head}: “{check.claim.sentence}” ({check.text}). {why}".rstrip())
        others = len(checked) - len(texts)
        if others:
            texts.append(f"{others} {'more ' if texts else ''}claim{'s are' if others > 1 else ' is'} ok.")
        return texts

    def _why(self, check: JudgedClaim) -> str:
        """Returns the words that explain an outcome; empty where it needs none."""
        key, finding = check.claim.key, check.finding
        if finding is ClaimFinding.UNDECIDED:
            return f"{_NEAR_LIMIT} {self.doubts.get(key, '')}".rstrip()
        return words_for(self.reasons.get(key, ""), finding) or _DEFAULTS.get(finding, "")


def _counted(words: str, check: JudgedClaim) -> str:
    """Returns words, and in parentheses for how many cases they hold; "not always" is "not" where that is all."""
    match = _CASES.search(check.text)
    if not match:  # a claim with one case
        return words.replace("not always", "not")
    outside, count = (0, int(match[1])) if match[1] else (int(match[2]), int(match[3]))
    meant = outside if check.finding is ClaimFinding.REFUTED else count - outside
    if _MEDIAN.search(check.text):
        return f"{words} (at the median of {count} cases, and in {meant} of them)"
    if meant < count:
        return f"{words} (in {meant} of {count} cases)"
    return f"{words.replace('not always', 'not')} (in {'both' if count == 2 else f'all {count}'} cases)"

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
_DEFAULTS = {ClaimFinding.PARTLY: NO_CAUSE, ClaimFinding.REFUTED: NO_CAUSE}
_ALTERNATIVES = re.compile(r"\[([^\[\]]*\|[^\[\]]*)\]")
_PLACES = {ClaimFinding.OK: 0, ClaimFinding.REFUTED: 1, ClaimFinding.PARTLY: 2}  # of the words in alternatives
_CASES = re.compile(r"all (\d+) inside|(\d+) of (\d+) outside")


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
        """Returns the answer in one sentence, with the numbers of cases and of the claims that are undecided."""
        by_key = {check.claim.key: check for check in checked}
        asked = [(text, by_key[key]) for key, text in self.answers.items() if key in by_key]
        parts = [_counted(words, check) for text, check in asked if (words := words_for(text, check.finding))]
        undecided = sum(check.finding is ClaimFinding.UNDECIDED for _, check in asked)
        if parts and undecided:
            parts.append(f"{undecided} more claim{'s are' if undecided > 1 else ' is'} undecided")
        sentence = "; ".join(parts)
        return f"{sentence[0].upper()}{sentence[1:]}." if parts else UNANSWERED

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
    if meant < count:
        return f"{words} (in {meant} of {count} cases)"
    return f"{words.replace('not always', 'not')} (in {'both' if count == 2 else f'all {count}'} cases)"

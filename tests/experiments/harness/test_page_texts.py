"""The texts of a page: what every experiment declares, and what a page shows of it."""

from __future__ import annotations

import dataclasses
import re

import pytest

from ps_trainer import component_tables
from ps_trainer.experiments.harness.claims import Claim, ClaimFinding, ClaimKind, JudgedClaim, Limit
from ps_trainer.experiments.harness.page_texts import NO_CAUSE, UNANSWERED, words_for
from tests.experiments.fakes import Dice

OK, REFUTED, PARTLY, UNDECIDED = ClaimFinding.OK, ClaimFinding.REFUTED, ClaimFinding.PARTLY, ClaimFinding.UNDECIDED
EXPERIMENTS = [component_tables.EXPERIMENTS.load(name) for name in component_tables.EXPERIMENTS.names()]
# What only a formula has: a sign between two terms.
FORMULA = re.compile(r"\S (=|≥|≈|<) \S")
PLACE = re.compile(r"\((section|Table|Fig|abstract|chapter)[^)]*\)")  # in a source
SENTENCE = re.compile(r"(?<=[.?!:;])\s+")


def check(key="mean", finding=OK, text="0.05 (k=6); at most 0.1", kind=ClaimKind.LITERATURE):
    claim = Claim(key=key, sentence=key, kind=kind, quantity="q", limit=Limit(high=0.1), measure=lambda cases: ())
    return JudgedClaim(claim, finding, text)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_every_experiment_has_all_texts(experiment):
    texts = experiment.texts
    assert texts.question.endswith("?") and len(texts.question.split()) <= 20
    assert 60 <= len(texts.background.split()) <= 100  # about five lines
    assert FORMULA.search(texts.formula)
    assert max(map(len, texts.formula.splitlines())) <= 84  # the width of the site's column
    assert PLACE.search(texts.finding)
    assert experiment.source.partition(" ")[0].rstrip(",") in texts.finding
    assert 40 <= len(texts.setup.split()) <= 110
    assert texts.limits
    sentences = [one for text in (texts.background, texts.finding, texts.setup) for one in SENTENCE.split(text)]
    assert [one for one in sentences if len(one.split()) > 25] == []


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_texts_name_claims_and_a_plot_that_exist(experiment):
    keys = {claim.key for claim in experiment.claims}
    texts = experiment.texts
    assert {*texts.answers, *texts.reasons, *texts.doubts} <= keys
    for text in texts.reasons.values():
        assert words_for(text, OK) or words_for(text, REFUTED)
    assert all(words_for(text, OK) and words_for(text, REFUTED) for text in texts.answers.values())
    words = [
        words_for(text, one) for text in (*texts.answers.values(), *texts.reasons.values()) for one in ClaimFinding
    ]
    assert not any("|" in one for one in words)
    assert texts.best_plot.partition("-")[0] in experiment.captions


def test_the_answer_is_made_of_the_outcomes_of_claims():
    texts = Dice.texts
    assert texts.answer([check(text="all 36 inside, nearest: 1 (n=2)")]) == (
        "The means are as they must be (in all 36 cases)."
    )
    assert texts.answer([check(finding=REFUTED, text="2 of 12 outside"), check("gravity")]) == (
        "The means are not as they must be (in 2 of 12 cases); dice fall."
    )
    assert texts.answer([check(text="3 [2, 4] (median of 9); of the cases 2 of 9 outside")]) == (
        "The means are as they must be (at the median of 9 cases, and in 7 of them)."
    )


def test_the_answer_names_other_claims_of_the_literature_that_do_not_hold_and_counts_the_rest():
    claims = [
        check(),
        check("colour", UNDECIDED),
        check("weight", REFUTED),
        check("size", kind=ClaimKind.THEORY),
        check("edge", REFUTED, kind=ClaimKind.THEORY),
        check("spin", UNDECIDED, kind=ClaimKind.EXTENSION),
        check("roll", UNDECIDED, kind=ClaimKind.SIMULATOR),
    ]
    assert Dice.texts.answer(claims) == (
        "The means are as they must be; “colour” is undecided; “weight” is refuted;"
        " of the claims that no source makes 1 is refuted and 2 are undecided."
    )


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("2 of 3 outside, farthest: 1", "Dice do not always fall (in 2 of 3 cases)."),
        ("3 of 3 outside, farthest: 1", "Dice do not fall (in all 3 cases)."),
        ("1 (k=6)", "Dice do not fall."),
    ],
)
def test_what_is_so_in_no_case_is_not_said_to_be_so_not_always(monkeypatch, text, answer):
    texts = dataclasses.replace(Dice.texts, answers={"gravity": "dice [fall|do not always fall]"})
    assert texts.answer([check("gravity", REFUTED, text)]) == answer


@pytest.mark.parametrize("finding", [ClaimFinding.UNDECIDED, ClaimFinding.NOT_TESTABLE])
def test_a_claim_that_decides_nothing_answers_nothing(finding):
    assert Dice.texts.answer([check(finding=finding)]) == UNANSWERED
    assert Dice.texts.answer([]) == UNANSWERED


@pytest.mark.parametrize(
    ("finding", "shown", "hidden"),
    [
        (OK, "Each side is as likely.", "Something is added to each throw."),
        (REFUTED, "Something is added to each throw.", "Each side is as likely."),
    ],
)
def test_a_reason_is_shown_only_for_its_outcome(finding, shown, hidden):
    (text,) = Dice.texts.seen([check(finding=finding)])
    assert shown in text
    assert hidden not in text


def test_a_doubt_is_shown_where_a_claim_is_undecided_alone():
    texts = dataclasses.replace(Dice.texts, doubts={"mean": "Few throws were made."})
    (undecided,), (ok,) = (texts.seen([check(finding=finding)]) for finding in (ClaimFinding.UNDECIDED, OK))
    assert undecided.endswith("The limit lies within the interval of a value. Few throws were made.")
    assert "Few throws" not in ok


def test_what_is_seen_names_outcome_kind_and_numbers():
    (text,) = Dice.texts.seen([check(finding=REFUTED)])
    assert text == (
        "**Does not hold** (literature): “mean” (0.05 (k=6); at most 0.1). Something is added to each throw."
    )


def test_a_refuted_claim_without_a_reason_is_a_discrepancy():
    (text,) = Dice.texts.seen([check("gravity", REFUTED)])
    assert text.endswith(NO_CAUSE)


def test_claims_that_are_ok_and_need_no_words_are_counted():
    theory, simulator = (check("a", kind=kind) for kind in (ClaimKind.THEORY, ClaimKind.SIMULATOR))
    assert Dice.texts.seen([theory, check(finding=PARTLY), simulator]) == [
        "**Holds in part** (literature): “mean” (0.05 (k=6); at most 0.1). Each side is as likely.",
        "2 more claims are ok.",
    ]
    assert Dice.texts.seen([theory]) == ["1 claim is ok."]


def test_a_claim_of_the_literature_is_shown_without_words_too():
    assert Dice.texts.seen([check("a")]) == ["**Holds** (literature): “a” (0.05 (k=6); at most 0.1)."]


def test_claims_of_the_literature_come_first():
    checks = [check("a", REFUTED, kind=ClaimKind.SIMULATOR), check("b", REFUTED)]
    first, second = Dice.texts.seen(checks)
    assert "(literature)" in first and "(simulator)" in second


def test_words_of_a_partly_kept_claim_default_to_those_of_a_kept_one():
    words = "it [holds|fails]"
    assert [words_for(words, finding) for finding in (OK, PARTLY, REFUTED)] == ["it holds", "it holds", "it fails"]
    assert words_for("it [holds|fails|nearly holds]", PARTLY) == "it nearly holds"


def test_a_text_has_several_places_with_alternatives_and_other_brackets_stay():
    text = "[a|even a] few (E[X]) [|do not ]need [words](page.md)"
    assert words_for(text, OK) == "a few (E[X]) need [words](page.md)"
    assert words_for(text, REFUTED) == "even a few (E[X]) do not need [words](page.md)"


@pytest.mark.parametrize("finding", [ClaimFinding.UNDECIDED, ClaimFinding.NOT_TESTABLE])
def test_an_outcome_that_decides_nothing_has_no_words(finding):
    assert words_for("it [holds|fails|nearly holds]", finding) == words_for("it holds", finding) == ""


def test_a_text_without_alternatives_is_about_a_claim_that_holds():
    assert [words_for("so it is", finding) for finding in (OK, PARTLY, REFUTED)] == ["so it is", "so it is", ""]


def test_texts_without_reasons_give_none():
    texts = dataclasses.replace(Dice.texts, reasons={})
    assert texts.seen([check(kind=ClaimKind.THEORY)]) == ["1 claim is ok."]

"""Findings on claims from measured values, and the claims of an experiment."""

from __future__ import annotations

import math

import pytest

from ps_trainer.experiments.harness.claims import Checked, Claim, Finding, Limit, Measure, Word, verdict_on

CLAIM = Claim(key="k", sentence="It is near 1", quantity="ratio", limit=Limit(low=0.8, high=1.2), measure=list)
STRICT = Claim(key="k", sentence="s", quantity="m", limit=Limit(high=0.2), expected=Limit(high=0.1), measure=list)


def checked(*findings):
    return [Checked(CLAIM, finding, f"because {number}") for number, finding in enumerate(findings)]


def test_a_claim_holds_when_every_value_is_inside():
    got = CLAIM.check([Measure("n=2", 0.8), Measure("n=4", 1.05)])
    assert (got.claim, got.finding) == (CLAIM, Finding.OK)
    assert got.text == "all 2 inside, the worst 0.8 (n=2); from 0.8 to 1.2"


def test_one_value_outside_refutes_and_the_worst_is_named():
    got = CLAIM.check([Measure("n=2", 1.0), Measure("n=4", 1.3), Measure("n=8", 0.5)])
    assert got.finding is Finding.REFUTED
    assert got.text == "2 of 3 outside, the worst 0.5 (n=8); from 0.8 to 1.2"


def test_nan_refutes():
    assert CLAIM.check([Measure("n=2", math.nan)]).finding is Finding.REFUTED


@pytest.mark.parametrize(("value", "finding"), [(0.1, "ok"), (0.15, "partly"), (0.21, "refuted")])
def test_between_the_expected_and_the_refuting_value_a_claim_holds_partly(value, finding):
    got = STRICT.check([Measure("a", 0.0), Measure("b", value)])
    assert got.finding.value == finding
    assert f"{value} (b)" in got.text


def test_without_values_a_claim_is_not_testable_and_gives_the_reason():
    assert CLAIM.check([], "no such machine") == Checked(CLAIM, Finding.NOT_TESTABLE, "no such machine")


@pytest.mark.parametrize(
    ("limit", "text", "beyond"),
    [
        (Limit(high=0.05), "at most 0.05", "above 0.05"),
        (Limit(low=3), "at least 3", "below 3"),
        (CLAIM.limit, "from 0.8 to 1.2", "outside 0.8 to 1.2"),
    ],
)
def test_the_threshold_in_words(limit, text, beyond):
    assert str(limit) == text
    claim = Claim(key="k", sentence="s", quantity="the mean", limit=limit, measure=list)
    assert claim.refuted_if == f"the mean is {beyond}"


@pytest.mark.parametrize(
    ("findings", "word"),
    [
        ([Finding.OK, Finding.OK], Word.SHAPE_REPRODUCED),
        ([Finding.OK, Finding.NOT_TESTABLE], Word.SHAPE_REPRODUCED),
        ([Finding.OK, Finding.PARTLY], Word.PARTLY),
        ([Finding.OK, Finding.REFUTED], Word.PARTLY),
        ([Finding.PARTLY], Word.PARTLY),
        ([Finding.REFUTED, Finding.NOT_TESTABLE], Word.NOT_REPRODUCED),
    ],
)
def test_verdict_on_an_experiment(findings, word):
    assert verdict_on(checked(*findings)) == (word, "")


def test_an_experiment_without_testable_claims_gives_the_reason():
    assert str(verdict_on(checked(Finding.NOT_TESTABLE))) == "not testable here: because 0"
    assert str(verdict_on(checked(Finding.OK))) == "shape reproduced"

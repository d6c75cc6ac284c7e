"""Findings on claims from measured values, and the claims of an experiment."""

from __future__ import annotations

import functools
import math

import pytest

from ps_trainer.experiments.harness.claims import (
    Claim,
    ClaimFinding,
    ClaimKind,
    Elsewhere,
    JudgedClaim,
    Limit,
    Measure,
    VerdictKind,
    verdict_on,
)
from ps_trainer.experiments.toolkit.statistics import Interval

OF_A_PAPER = functools.partial(Claim, key="k", kind=ClaimKind.LITERATURE, measure=list)
CLAIM = OF_A_PAPER(sentence="It is near 1", quantity="ratio", limit=Limit(low=0.8, high=1.2))
STRICT = OF_A_PAPER(sentence="s", quantity="m", limit=Limit(high=0.2), expected=Limit(high=0.1))


def checked(*findings):
    return [JudgedClaim(CLAIM, finding, f"because {number}") for number, finding in enumerate(findings)]


def test_a_claim_holds_when_every_value_is_inside():
    got = CLAIM.check([Measure("n=2", 0.8), Measure("n=4", 1.05)])
    assert (got.claim, got.finding) == (CLAIM, ClaimFinding.OK)
    assert got.text == "all 2 inside, nearest: 0.8 (n=2); from 0.8 to 1.2"


def test_one_value_outside_refutes_and_all_outside_are_named():
    got = CLAIM.check([Measure("n=2", 1.0), Measure("n=4", 1.3), Measure("n=8", 0.5)])
    assert got.finding is ClaimFinding.REFUTED
    assert got.text == "2 of 3 outside, farthest: 0.5 (n=8), 1.3 (n=4); from 0.8 to 1.2"


def test_of_many_values_outside_the_farthest_are_named():
    got = CLAIM.check([Measure(f"n={n}", 1.3 + n / 10) for n in range(9)])
    assert got.text.startswith("9 of 9 outside, farthest: 2.1 (n=8), 2 (n=7),")
    assert got.text.endswith("1.6 (n=3), and 3 more; from 0.8 to 1.2")


def test_nan_refutes():
    assert CLAIM.check([Measure("n=2", math.nan)]).finding is ClaimFinding.REFUTED


@pytest.mark.parametrize(("value", "finding"), [(0.1, "ok"), (0.15, "partly"), (0.21, "refuted")])
def test_between_the_expected_and_the_refuting_value_a_claim_holds_partly(value, finding):
    got = STRICT.check([Measure("a", 0.0), Measure("b", value)])
    assert got.finding.value == finding
    assert f"{value} (b)" in got.text


def test_without_values_a_claim_is_not_testable_and_gives_the_reason():
    assert CLAIM.check([], "no such machine") == JudgedClaim(CLAIM, ClaimFinding.NOT_TESTABLE, "no such machine")


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
    claim = OF_A_PAPER(sentence="s", quantity="the mean", limit=limit)
    assert claim.refuted_if == f"the mean is {beyond}"


@pytest.mark.parametrize(
    ("findings", "kind"),
    [
        ([ClaimFinding.OK, ClaimFinding.OK], VerdictKind.SHAPE_REPRODUCED),
        ([ClaimFinding.OK, ClaimFinding.NOT_TESTABLE], VerdictKind.PARTLY),
        ([ClaimFinding.OK, ClaimFinding.PARTLY], VerdictKind.PARTLY),
        ([ClaimFinding.OK, ClaimFinding.REFUTED], VerdictKind.PARTLY),
        ([ClaimFinding.PARTLY], VerdictKind.PARTLY),
        ([ClaimFinding.REFUTED, ClaimFinding.NOT_TESTABLE], VerdictKind.NOT_REPRODUCED),
        ([ClaimFinding.OK, ClaimFinding.UNDECIDED], VerdictKind.UNDECIDED),
        ([ClaimFinding.UNDECIDED], VerdictKind.UNDECIDED),
        ([ClaimFinding.OK, ClaimFinding.UNDECIDED, ClaimFinding.REFUTED], VerdictKind.PARTLY),
    ],
)
def test_verdict_on_an_experiment(findings, kind):
    verdict = verdict_on(checked(*findings))
    assert verdict.kind is kind
    assert verdict.why == ("not tested: “It is near 1”" if ClaimFinding.NOT_TESTABLE in findings else "")


def test_an_experiment_without_testable_claims_gives_the_reason():
    assert str(verdict_on(checked(ClaimFinding.NOT_TESTABLE))) == "not testable here. Because 0"
    assert str(verdict_on(checked(ClaimFinding.OK))) == "shape reproduced"


@pytest.mark.parametrize(
    ("low", "high", "finding"),
    [
        (0.85, 1.15, ClaimFinding.OK),
        (0.7, 1.0, ClaimFinding.UNDECIDED),
        (1.1, 1.3, ClaimFinding.UNDECIDED),
        (0.5, 0.79, ClaimFinding.REFUTED),
        (1.21, 1.3, ClaimFinding.REFUTED),
    ],
)
def test_a_threshold_within_the_interval_leaves_a_claim_undecided(low, high, finding):
    got = CLAIM.check([Measure("n=2", 1.0), Measure("n=4", (low + high) / 2, Interval(low, high))])
    assert got.finding is finding
    if finding is not ClaimFinding.OK:
        assert f"[{low:g}, {high:g}] (n=4)" in got.text


@pytest.mark.parametrize(
    ("measure", "finding", "text"),
    [
        (Measure("n=2", 3.0, Interval(2.0, math.inf), "≥"), ClaimFinding.OK, "≥ 3 [2, …] (n=2)"),
        (Measure("n=2", 3.0, Interval(0.5, math.inf), "≥"), ClaimFinding.UNDECIDED, "≥ 3 [0.5, …] (n=2)"),
        (Measure("n=2", 0.5, Interval(0.0, 0.7), "≤"), ClaimFinding.REFUTED, "≤ 0.5 [0, 0.7] (n=2)"),
    ],
)
def test_a_value_of_which_only_a_bound_is_known_shows_it_and_decides_by_its_interval(measure, finding, text):
    got = OF_A_PAPER(sentence="s", quantity="ratio", limit=Limit(low=1)).check([measure])
    assert got.finding is finding
    assert got.text == f"{text}; at least 1"


def test_of_values_inside_the_one_whose_interval_reaches_farthest_out_is_named():
    got = CLAIM.check([Measure("n=2", 0.9, Interval(0.85, 1.0)), Measure("n=4", 1.0, Interval(0.7, 1.1))])
    assert got.finding is ClaimFinding.UNDECIDED
    assert got.text == "all 2 inside, nearest: 1 [0.7, 1.1] (n=4); from 0.8 to 1.2"


def test_the_median_of_the_cases_decides_and_the_cases_outside_are_counted():
    claim = OF_A_PAPER(sentence="s", quantity="ratio", limit=CLAIM.limit, by_median=True)
    cases = [Measure(f"n={n}", value) for n, value in enumerate([1.0] * 9 + [1.5])]
    assert CLAIM.check(cases).finding is ClaimFinding.REFUTED
    got = claim.check(cases)
    assert got.finding is ClaimFinding.OK
    assert got.text == "1 [1, 1] (median of 10); from 0.8 to 1.2; of the cases 1 of 10 outside, farthest: 1.5 (n=9)"
    assert claim.refuted_if == "the median of ratio is outside 0.8 to 1.2"
    assert claim.check([Measure("a", 0.7), Measure("b", 0.9)]).finding is ClaimFinding.UNDECIDED
    assert claim.check([Measure("a", 0.7), Measure("b", 0.75)]).finding is ClaimFinding.REFUTED
    assert claim.check([Measure("a", math.nan), Measure("b", 1.0)]).finding is ClaimFinding.REFUTED


def test_only_claims_of_the_literature_decide_the_verdict():
    others = [OF_A_PAPER(sentence="s", quantity="m", limit=Limit(high=1), kind=kind) for kind in ClaimKind]
    refuted = [claim.check([Measure("a", 2.0)]) for claim in others if claim.kind is not ClaimKind.LITERATURE]
    assert verdict_on([*refuted, *checked(ClaimFinding.OK)]).kind is VerdictKind.SHAPE_REPRODUCED
    assert str(verdict_on(refuted)) == "not testable here. No claim of the literature was tested"


def test_what_no_claim_tests_is_named_and_makes_a_verdict_partly_at_best():
    assert str(verdict_on(checked(ClaimFinding.OK), "the final accuracy")) == "partly. Not tested: the final accuracy"
    assert verdict_on(checked(ClaimFinding.REFUTED), "the final accuracy").kind is VerdictKind.NOT_REPRODUCED


THERE = Elsewhere("the final accuracy", "backups_at_scale", "accuracy")


@pytest.mark.parametrize(
    ("own", "there", "verdict"),
    [
        ("ok", "ok", "shape reproduced. Tested in `backups_at_scale`: the final accuracy, ok"),
        ("ok", "refuted", "partly. Tested in `backups_at_scale`: the final accuracy, refuted"),
        ("ok", "undecided", "undecided. Tested in `backups_at_scale`: the final accuracy, undecided"),
        ("ok", "not testable", "partly. Not tested: the final accuracy (`backups_at_scale` tests it)"),
        ("refuted", "ok", "not reproduced. Tested in `backups_at_scale`: the final accuracy, ok"),
        ("partly", "ok", "partly. Tested in `backups_at_scale`: the final accuracy, ok"),
        ("undecided", "refuted", "partly. Tested in `backups_at_scale`: the final accuracy, refuted"),
    ],
)
def test_an_outcome_of_another_experiment_may_make_a_verdict_worse_and_never_better(own, there, verdict):
    assert str(verdict_on(checked(ClaimFinding(own)), "", {THERE: ClaimFinding(there)})) == verdict


def test_what_no_experiment_tests_stands_before_the_outcomes_of_others():
    verdict = verdict_on(checked(ClaimFinding.OK), "the time", {THERE: ClaimFinding.OK})
    assert str(verdict) == "partly. Not tested: the time; tested in `backups_at_scale`: the final accuracy, ok"
    assert verdict_on([], "", {THERE: ClaimFinding.OK}).kind is VerdictKind.NOT_TESTABLE


def test_an_amendment_stands_beside_the_threshold():
    claim = OF_A_PAPER(sentence="s", quantity="m", limit=Limit(high=1), amended="2026-11-21: means, not medians")
    assert claim.refuted_if == "m is above 1 (amended 2026-11-21: means, not medians)"

"""Texts, captions and the overview on an existing page, from what its table of claims says."""

from __future__ import annotations

import dataclasses

import pytest

from ps_trainer.errors import UsageError
from ps_trainer.experiments.backups_at_scale.experiment import BackupsAtScale
from ps_trainer.experiments.harness import published_pages, sections
from ps_trainer.experiments.harness.claims import ClaimFinding, ClaimLine, Elsewhere, VerdictKind, verdict_on
from ps_trainer.experiments.harness.page import Bullets, Paragraph
from ps_trainer.experiments.harness.plots import Caption

CLAIM = "The mean of a die with k sides is (k + 1)/2"
TABLE = """| claim | kind | measured | refuted if | outcome |
| --- | --- | --- | --- | --- |
| {claim} | literature | {measured} | \\|mean\\| is above 0.1 | {outcome} |
| Dice roll | theory | no die \\|rolled\\| | never | withdrawn |
"""
PAGE = f"""# Old title

Old question.

![Means & runs](plots/dice-means-L0.png)

*Means & runs* (L0 virtual time). They scatter.

## Background

Old background.

## What the sources found

Nothing.

## What was run

Nothing.

## What you see, and why

Nothing.

## Claims

{TABLE}
## Tables

**Means** (L0)

<details><summary>1 row</summary>

kept

</details>

## Limits

* None.

## How to reproduce

`ps_trainer experiment dice` makes these 36 runs in 7 minutes on a machine like the one below.
"""


def page(outcome="ok", measured="all 2 inside, nearest: 0.05 (k=6); at most 0.1"):
    return PAGE.format(claim=CLAIM, outcome=outcome, measured=measured)


def test_claims_are_read_from_the_table_of_a_page():
    lines = published_pages.read_claims(page())
    measured = "all 2 inside, nearest: 0.05 (k=6); at most 0.1"
    assert lines == [
        ClaimLine(sentence=CLAIM, measured=measured, outcome="ok", kind="literature"),
        ClaimLine(sentence="Dice roll", measured="no die |rolled|", outcome="withdrawn", kind="theory"),
    ]
    assert published_pages.read_claims("# No table\n") == []


def test_only_claims_that_the_experiment_has_are_judged(dice):
    (check,) = published_pages.judged(dice(), published_pages.read_claims(page("refuted")))
    assert (check.claim.key, check.finding) == ("mean", ClaimFinding.REFUTED)


def test_a_claim_of_the_literature_that_is_newer_than_the_runs_leaves_a_page_at_partly(dice, monkeypatch):
    old = page().replace(CLAIM, "The mean of a die is 3.5")
    missing = published_pages.untested(dice(), published_pages.read_claims(old))
    assert missing == f"“{CLAIM}” (newer than these runs)"
    assert published_pages.untested(dice(), published_pages.read_claims(page())) == ""
    (check,) = published_pages.judged(dice(), published_pages.read_claims(page()))
    assert verdict_on([check], missing).kind is VerdictKind.PARTLY
    newer = dataclasses.replace(dice.claims[0], key="new", sentence="Dice are new")
    monkeypatch.setattr(dice, "claims", (*dice.claims, newer))
    new = published_pages.with_texts(page(), dice())
    assert "Verdict: partly. Not tested: “Dice are new” (newer than these runs)." in new


def test_a_claim_that_another_page_tests_is_named_with_its_outcome_there(dice, monkeypatch):
    (accuracy,) = (claim for claim in BackupsAtScale.claims if claim.key == "accuracy")
    monkeypatch.setattr(dice, "tested_elsewhere", (Elsewhere("the accuracy", "backups_at_scale", "accuracy"),))

    def other_page(outcome):
        return lambda name: [ClaimLine(sentence=accuracy.sentence, measured="0.1", outcome=outcome)]

    refuted = published_pages.with_texts(page(), dice(), other_page("refuted"))
    assert "Verdict: partly. Tested in `backups_at_scale`: the accuracy, refuted.\n" in refuted
    holds = published_pages.with_texts(page(), dice(), other_page("ok"))
    assert "Verdict: shape reproduced. Tested in `backups_at_scale`: the accuracy, ok.\n" in holds
    assert "Verdict: partly. Not tested: the accuracy (`backups_at_scale` tests it).\n" in published_pages.with_texts(
        page(), dice()
    )
    summary = published_pages.summary(dice(), refuted, other_page("refuted"))
    assert summary.verdict.kind is VerdictKind.PARTLY


def test_a_page_gets_the_present_texts_and_keeps_its_numbers(dice):
    new = published_pages.with_texts(page(), dice())
    assert new.startswith(
        "# Throws dice and looks at the mean\n\n**Question:** Are dice fair?\n\n**Answer:** The means"
    )
    assert "Verdict: shape reproduced.\n\nClaims: literature: 1 ok; theory: 1 withdrawn. " in new
    assert "## Background\n\nA die with k sides has k equally likely numbers.\n\n```text\nmean = (k + 1)/2\n```" in new
    assert "[Symbols and levels](index.md#symbols-and-levels)" in new
    assert "## What the sources found\n\nPacioli (p. 1)" in new
    assert "## Limits\n\n* Intervals are of 90 %, by counting.\n* Software does not fall.\n\n## How to rep" in new
    assert "Old" not in new
    for kept in (TABLE.format(claim=CLAIM, outcome="ok", measured=page().split(" | ")[10]), "kept", "36 runs"):
        assert kept in new
    assert published_pages.with_texts(new, dice()) == new


def test_a_page_shows_a_reason_only_for_its_outcome(dice):
    holds = published_pages.with_texts(page(), dice())
    fails = published_pages.with_texts(page("refuted", "2 of 2 outside, farthest: 0.3 (k=4); at most 0.1"), dice())
    assert "Each side is as likely." in holds and "Something is added" not in holds
    assert "Something is added to each throw." in fails and "Each side is as likely." not in fails
    assert "**Answer:** The means are not as they must be (in both cases)." in fails
    assert "Verdict: not reproduced." in fails


def test_a_page_without_a_section_cannot_get_its_text(dice):
    with pytest.raises(UsageError, match="no section 'Limits'"):
        published_pages.with_texts(page().replace("## Limits\n", ""), dice())


def test_a_section_ends_at_the_next_one_or_at_the_end():
    new = published_pages.with_section("# T\n\n## A\n\nx\n\n## B\n\ny\n", "A", [Bullets(["a \\1"]), Paragraph("b")])
    assert new == "# T\n\n## A\n\n* a \\1\n\nb\n\n## B\n\ny\n"
    assert published_pages.with_section(new, "B", [Paragraph("z")]).endswith("## B\n\nz\n")
    assert published_pages.with_section(new, sections.HEAD, [Paragraph("h")]).startswith("# T\n\nh\n\n## A\n")


def test_a_page_receives_the_present_captions():
    captions = {"means": Caption("Bars.", "a line.", (CLAIM,))}
    new = published_pages.with_captions(page(), captions)
    assert f"*Means & runs* (L0 virtual time). Bars. Expected: a line. Seen: “{CLAIM}”: ok (all 2 inside" in new
    assert "They scatter." not in new
    without = published_pages.with_captions(page().replace("| claim |", "| no |"), captions)
    assert "Expected: a line. Seen: no claim is about this plot." in without


def test_the_overview_has_a_row_of_each_page(dice):
    summary = published_pages.summary(dice(), published_pages.with_texts(page(), dice()))
    index = (
        "# Results\n\nOne experiment: 5 runs, 0 hours and 3 minutes.\n\n| experiment | question |\n| --- | --- |\n"
        "| old | row |\n\nHow to read: Of 9 claims 8 are ok,\nand 0 withdrawn. [All\nclaims](all-claims.md).\n"
    )
    new = published_pages.with_overview(index, [summary, summary], 3)
    row = (
        '| [dice](dice.md)<br><img src="plots/dice-means-L0.png" alt="Means & runs" width="160"> | Are dice fair? | The'
        " means are as they must be (in both cases). | shape reproduced | 0 of 1 ok | – | – | 7 |"
    )
    assert (
        new.splitlines()[4] == "| experiment | question | answer | verdict | theory | simulator | extension | minutes |"
    )
    assert new.splitlines()[2] == "One experiment: 72 runs, 0 hours and 14 minutes."
    assert new.splitlines()[6:8] == [row, row]
    assert new.endswith(
        "|\n\nHow to read: Of 2 claims, 2 are ok; 3 more were"
        " [withdrawn](all-claims.md#withdrawn-claims). [All\nclaims](all-claims.md).\n"
    )
    assert published_pages.with_overview(new, [summary, summary], 3) == new
    assert summary.num_runs == 36
    with pytest.raises(UsageError, match="does not state its runs"):
        published_pages.summary(dice(), page().replace("makes these", "made"))

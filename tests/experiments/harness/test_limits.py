"""Each claim's limit is the one that was first fixed, by the plan or with the claim, or is amended: date and reason."""

from __future__ import annotations

import csv
import dataclasses
import re

import pytest

from ps_trainer import component_tables
from ps_trainer.experiments.harness.claims import ClaimKind, Limit
from ps_trainer.experiments.harness.provenance import REPOSITORY
from ps_trainer.experiments.harness.publish import RESULTS
from tests.experiments.fakes import Dice

_AMENDED = re.compile(r"\d{4}-\d{2}-\d{2}: \S.{8,}")
_NEXT = re.compile(r"; (?=\d{4}-)")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def first_limits():
    """The first limit of each claim: experiment and key -> the row of `limits.csv`."""
    with (REPOSITORY / RESULTS / "limits.csv").open(encoding="utf-8", newline="") as file:
        return {(row["experiment"], row["claim"]): row for row in csv.DictReader(file)}


def faults_of(experiment, rows):
    """What is wrong with the limits of an experiment's claims, in words."""
    found = []
    for claim in experiment.claims:
        row = rows.get((experiment.name, claim.key))
        if row is None:
            found.append(f"{claim.key}: limits.csv has no row for it")
        elif (str(claim.limit), str(claim.expected or "")) != (row["limit"], row["expected"]) and not claim.amended:
            found.append(f"{claim.key}: {claim.limit} was {row['limit']} at first, and the claim names no amendment")
        if claim.amended and not all(map(_AMENDED.fullmatch, _NEXT.split(claim.amended))):
            found.append(f"{claim.key}: an amendment has no date and reason: {claim.amended!r}")
    return found


EXPERIMENTS = list(map(component_tables.EXPERIMENTS.load, component_tables.EXPERIMENTS.names()))


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_limit_is_the_first_one_or_amended(experiment):
    assert faults_of(experiment, first_limits()) == []


def test_every_row_says_when_its_limit_was_fixed_and_where_it_comes_from():
    claims = {(experiment.name, claim.key) for experiment in EXPERIMENTS for claim in experiment.claims}
    for key, row in first_limits().items():
        assert _DATE.fullmatch(row["fixed"]), row
        assert row["origin"].startswith(("plan: ", "own")), row
        assert (key in claims) is not bool(row["withdrawn"]), f"{key} is a claim and withdrawn, or neither"


def test_what_another_experiment_tests_is_a_claim_of_its_literature():
    literature = {
        (experiment.name, claim.key)
        for experiment in EXPERIMENTS
        for claim in experiment.claims
        if claim.kind is ClaimKind.LITERATURE
    }
    elsewhere = {(one.experiment, one.claim) for experiment in EXPERIMENTS for one in experiment.tested_elsewhere}
    assert elsewhere and elsewhere <= literature


def experiment_with(**changes):
    """The dice, whose first claim has other fields."""
    changed = type("Changed", (Dice,), {})
    first, *others = Dice.claims
    changed.claims = (dataclasses.replace(first, **changes), *others)
    return changed


ROWS = {("dice", claim.key): {"limit": str(claim.limit), "expected": ""} for claim in Dice.claims}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"limit": Limit(high=0.2)}, "at most 0.2 was at most 0.1 at first"),
        ({"expected": Limit(high=0.05)}, "names no amendment"),
        ({"key": "new"}, "no row"),
        ({"limit": Limit(high=0.2), "amended": "it was too strict"}, "no date and reason"),
        ({"amended": "2026-11-26: wider; 2026-11-27"}, "no date and reason"),
    ],
)
def test_a_limit_that_changes_without_date_and_reason_is_found(changes, words):
    assert faults_of(experiment_with(), ROWS) == []
    assert words in "\n".join(faults_of(experiment_with(**changes), ROWS))


def test_an_amended_limit_is_allowed():
    amended = {"limit": Limit(high=0.2), "amended": "2026-11-26: the noise of 400 throws is larger"}
    assert faults_of(experiment_with(**amended), ROWS) == []

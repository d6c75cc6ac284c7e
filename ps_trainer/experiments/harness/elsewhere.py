"""Outcomes of claims that an experiment leaves to another one, from what that one's page or conclusion says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ps_trainer import component_tables
from ps_trainer.experiments.harness.base import Experiment
from ps_trainer.experiments.harness.claims import ClaimFinding, ClaimLine, Elsewhere

LinesOf = Callable[[str], Sequence[ClaimLine]]


def findings_of(experiment: Experiment, lines_of: LinesOf) -> dict[Elsewhere, ClaimFinding]:
    """Returns the outcomes of the claims that other experiments test; one without a result was not testable.

    Args:
        experiment: Experiment whose sources make these claims.
        lines_of: Function that returns the lines of claims of an experiment by its name, none where it was not run.
    """
    return {one: _finding(one, lines_of(one.experiment)) for one in experiment.tested_elsewhere}


def _finding(one: Elsewhere, lines: Sequence[ClaimLine]) -> ClaimFinding:
    (claim,) = (claim for claim in component_tables.EXPERIMENTS.load(one.experiment).claims if claim.key == one.claim)
    outcomes = [line.outcome for line in lines if line.sentence == claim.sentence]
    return ClaimFinding(outcomes[0]) if outcomes else ClaimFinding.NOT_TESTABLE

"""`Conclusion`: the outcome of an experiment, from which the index page is made."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ps_trainer.experiments.harness.claims import ClaimLine

FAILED = "run failed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conclusion:
    """Outcome of an experiment, as `conclusion.json` holds it."""

    name: str  # name of the experiment
    title: str  # title of the experiment
    source: str  # papers
    quick: bool  # whether it was the quick form
    verdict: str  # kind and reason, or `FAILED`
    question: str = ""  # question of the experiment; empty in files of older versions
    answer: str = ""  # answer in a sentence; empty where a run failed
    claims: Sequence[ClaimLine]  # claims with their outcomes; empty where a run failed
    num_runs: int  # number of finished runs
    run_secs: float  # sum of their durations
    contended: Sequence[str]  # keys of the runs whose times are not comparable
    failures: Sequence[str]  # keys of failed runs, and what else failed

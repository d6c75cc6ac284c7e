"""`Case`: runs that are alike but for their seed. What an experiment looks at is a subclass with a name of its own.

class TimedRule(Case):
    num_backups = setting("b")  # a setting that all of the runs share
    step = median("step")  # a figure's median over the seeds

rules = cases_by(TimedRule, results, "shape", "b")
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from ps_trainer.experiments.harness.base import Results


@dataclasses.dataclass(frozen=True)
class Case:
    """Runs that are alike but for their seed.

    Attributes:
        runs: at least one.
    """

    runs: Results


CaseT = TypeVar("CaseT", bound=Case)


def cases_by(kind: type[CaseT], results: Results, *names: str) -> list[CaseT]:
    """A case for each combination of these settings that occurs, in the order of the runs."""
    return [kind(group) for group in results.by(*names).values()]


def setting(name: str) -> Any:
    """An attribute of a case: a setting of its runs."""
    return property(lambda case: case.runs.setting(name))


def median(name: str) -> Any:
    """An attribute of a case: the median of a figure over its runs."""
    return property(lambda case: case.runs.median(name))


def mean(name: str) -> Any:
    """An attribute of a case: the mean of a figure over its runs."""
    return property(lambda case: case.runs.mean(name))

"""`Case`: runs that differ only in their seed. Each experiment defines named subclasses for its analysis.

class TimedRule(Case):
    num_backups = setting("b")  # a setting that all of the runs share
    step = median("step")  # a figure's median over the seeds

rules = cases_by(TimedRule, results, "shape", "b")
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from ps_trainer.experiments.harness.base import Results


@dataclasses.dataclass(frozen=True)
class Case:
    """Runs that differ only in their seed."""

    runs: Results  # at least one run


CaseT = TypeVar("CaseT", bound=Case)


def cases_by(kind: type[CaseT], results: Results, *names: str) -> list[CaseT]:
    """A case for each combination of these settings that occurs, in the order of the runs."""
    return [kind(group) for group in results.by(*names).values()]


def grouped(kind: type[CaseT], *names: str) -> Callable[[Results], list[CaseT]]:
    """A function for `Part.cases` that makes one case for each combination of these settings."""
    return lambda results: cases_by(kind, results, *names)


def setting(name: str, kind: Callable[[Any], Any] = lambda value: value) -> Any:
    """An attribute of a case: a setting of its runs, as a value of a kind."""
    return property(lambda case: kind(case.runs.setting(name)))


def figures(name: str, missing: Any = None) -> Any:
    """An attribute of a case: a figure of each run, where None becomes `missing`."""
    return property(lambda case: [missing if value is None else value for value in case.runs.figures(name)])


def count(name: str, value: Any) -> Any:
    """An attribute of a case: the number of runs whose figure has this value."""
    return property(lambda case: case.runs.figures(name).count(value))


def median(name: str, of: str = "runs") -> Any:
    """An attribute of a case: the median of a figure over its runs, or over other results that it has."""
    return property(lambda case: getattr(case, of).median(name))


def mean(name: str) -> Any:
    """An attribute of a case: the mean of a figure over its runs."""
    return property(lambda case: case.runs.mean(name))


def largest(name: str) -> Any:
    """An attribute of a case: the largest value of a figure over its runs."""
    return property(lambda case: max(case.runs.figures(name)))


def described(text: str) -> Any:
    """An attribute of a case: a text with its attributes, "n={0.n}", for tables and claims."""
    return property(text.format)

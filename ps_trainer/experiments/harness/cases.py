"""`Case`: runs that differ only in their seed. Each experiment defines named subclasses for its analysis.

class TimedRule(Case):
    num_backups = setting("b")  # a setting that all of the runs share
    step = median("step")  # a figure's median over the seeds

rules = cases_by(TimedRule, results, "shape", "b")
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from ps_trainer.experiments.harness.runs import Results
from ps_trainer.experiments.toolkit.statistics import IntervalEstimate, jackknife


@dataclasses.dataclass(frozen=True)
class Case:
    """Runs that differ only in their seed."""

    runs: Results  # at least one run

    def by_seed(self, name: str) -> dict[int, Any]:
        """Returns seed -> figure of its run."""
        return {result.run.seed: getattr(result.figures, name) for result in self.runs}

    def course(self, figure: str) -> np.ndarray:
        """Returns median, 10th and 90th percentile of a figure that is a series, until the first seed ends.

        Returns:
            Array of shape (3, length of the shortest series).
        """
        series = self.runs.figures(figure)
        shortest = min(map(len, series))
        return np.percentile([one[:shortest] for one in series], (50, 10, 90), axis=0)

    def estimate(self, statistic: Callable[[Any], float]) -> IntervalEstimate:
        """Returns a smooth statistic of a case with pooled seeds, and its interval by the jackknife over the seeds."""
        return jackknife(lambda runs: statistic(dataclasses.replace(self, runs=Results(runs))), self.runs)


CaseT = TypeVar("CaseT", bound=Case)


def cases_by(case_type: type[CaseT], results: Results, *names: str) -> list[CaseT]:
    """Returns a case for each combination of these settings that occurs, in the order of the runs."""
    return [case_type(group) for group in results.by(*names).values()]


def find(cases: Iterable[CaseT], **fields: Any) -> CaseT | None:
    """Returns the first case with these attributes, or None if it was not run."""
    return next((case for case in cases if all(getattr(case, name) == value for name, value in fields.items())), None)


def case_factory(case_type: type[CaseT], *names: str) -> Callable[[Results], list[CaseT]]:
    """Returns a function for `Part.cases` that makes one case for each combination of these settings."""
    return lambda results: cases_by(case_type, results, *names)


class Accessor(property):
    """An attribute of a case that reads a setting or a figure of its runs.

    Attributes:
        name: Name of the setting or the figure; `tests/experiments/harness/test_records.py` checks that it exists.
    """

    def __init__(self, name: str, read: Callable[[Any], Any]):
        super().__init__(read)
        self.name = name


def setting(name: str) -> Any:
    """Returns an attribute of a case: a setting of its runs."""
    return Accessor(name, lambda case: case.runs.setting(name))


def settings(*names: str) -> tuple[Any, ...]:
    """Returns several attributes of a case, each a setting of its runs.

    A class body unpacks them: `n, rule = settings("n", "rule")`.
    """
    return tuple(map(setting, names))


def figures(name: str, missing: Any = None) -> Any:
    """Returns an attribute of a case: a figure of each run, where None becomes `missing`."""
    return Accessor(name, lambda case: [missing if value is None else value for value in case.runs.figures(name)])


def count(name: str, value: Any) -> Any:
    """Returns an attribute of a case: the number of runs whose figure has this value."""
    return Accessor(name, lambda case: case.runs.figures(name).count(value))


def median(name: str, of: str = "runs") -> Any:
    """Returns an attribute of a case: the median of a figure over its runs, or over other results that it has."""
    return Accessor(name, lambda case: getattr(case, of).median(name))


def mean(name: str) -> Any:
    """Returns an attribute of a case: the mean of a figure over its runs."""
    return Accessor(name, lambda case: case.runs.mean(name))


def largest(name: str) -> Any:
    """Returns an attribute of a case: the largest value of a figure over its runs."""
    return Accessor(name, lambda case: max(case.runs.figures(name)))


def text_property(text: str) -> Any:
    """Returns an attribute of a case: a text with its attributes, "n={0.n}", for tables and claims."""
    return property(text.format)

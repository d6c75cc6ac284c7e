"""The cases that group the runs of the experiment on the cost of a ps task."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

from ps_trainer.experiments.harness.cases import Case, cases_by
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.runs import Results
from ps_trainer.experiments.toolkit.statistics import (
    IntervalEstimate,
    Line,
    Spread,
    fit_line,
    mean_estimate,
    mean_ratio,
    spread,
)

SIZES = "sizes"  # part of the runs: models of growing size, for the overhead
RULES = "rules"  # part of the runs: other optimizers, rules, layouts and numbers of ps tasks, for equality
BYTES_PER_PARAMETER = 4
MIN_SIZES = 3  # any two points lie on a line

_MB = 1e6
_OTHERS_SHARE = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class OverheadSettings(Record):
    """Settings of a run: its part, and fields of `TrainConfig`. None leaves the default of `TrainConfig`."""

    part: str  # `SIZES` or `RULES`
    model: str
    model_option: str  # "" without an option
    dataset: str
    batch_size: int
    learning_rate: float
    max_steps: int
    optimizer: str | None = None
    update: str | None = None
    layout: str | None = None
    num_ps: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class OverheadFigures(Record):
    """Losses and step times of the trainings of a run."""

    loss_difference: float  # largest |difference| of a step's loss
    first_loss: float | None  # None for NaN
    last_loss: float | None
    num_steps: int
    parameters: int  # number of the model's parameters
    local_ms: Sequence[float]  # times of the steps of one process
    cluster_ms: Sequence[float]  # times of the steps with a ps task
    stock_ms: Sequence[float] | None = None  # the same of the hand-written TF1 script; None if it was not run
    stock_loss_difference: float | None = None  # largest |difference| of a loss of the script and of one process


class SizedModel(Case):
    """The runs of one model with all seeds; disturbed runs count only if all runs are disturbed."""

    @functools.cached_property
    def _quiet(self) -> Results:
        return Results(
            result
            for result in self.runs
            if result.cpu is None or result.cpu.others_secs <= _OTHERS_SHARE * result.cpu.tasks_secs
        )

    @property
    def is_disturbed(self) -> bool:
        """Whether other programs ran beside all of its runs, so that its times do not count."""
        return not self._quiet

    @property
    def model(self) -> str:
        """Name of the model with its options."""
        return f"{self.runs.setting('model')} {self.runs.setting('model_option')}".rstrip()

    @property
    def parameters(self) -> int:
        return self.runs[0].figures.parameters

    @property
    def local(self) -> Spread:
        """Step times of one process in ms."""
        return self._medians("local_ms")

    @property
    def cluster(self) -> Spread:
        """Step times with a ps task in ms."""
        return self._medians("cluster_ms")

    @property
    def megabytes(self) -> float:
        return self.parameters * BYTES_PER_PARAMETER / _MB

    @property
    def overhead(self) -> IntervalEstimate:
        """Additional time of a step with a ps task in ms, mean over the seeds."""
        return self.more_ms("cluster_ms")

    @property
    def stock(self) -> Spread | None:
        """Step times of the TF1 script with a ps task in ms; None if it was not run."""
        return self._medians("stock_ms") if self.has_stock else None

    @property
    def has_stock(self) -> bool:
        """Whether the TF1 script was run beside all of its runs."""
        return None not in self.runs.figures("stock_ms")

    def over(self, name: str, other: str) -> IntervalEstimate:
        """Returns the mean ratio of the step times of two arms ("cluster_ms"), paired by seed, and its interval."""
        return mean_ratio(self._of_seeds(name), self._of_seeds(other))

    def more_ms(self, name: str) -> IntervalEstimate:
        """Returns the median step of an arm ("cluster_ms") minus that of one process in ms, mean over the seeds."""
        pairs = zip(self._of_seeds(name), self._of_seeds("local_ms"), strict=True)
        return mean_estimate([more - alone for more, alone in pairs])

    def _medians(self, name: str) -> Spread:
        return spread(self._of_seeds(name))

    def _of_seeds(self, name: str) -> list[float]:
        return [spread(ms).median for ms in (self._quiet or self.runs).figures(name)]


class Overheads(NamedTuple):
    """All runs, and the runs of the overhead grouped by model."""

    results: Results
    sizes: Sequence[SizedModel]

    @property
    def timed(self) -> list[SizedModel]:
        """The models whose times count."""
        return [size for size in self.sizes if not size.is_disturbed]

    @property
    def line(self) -> Line | None:
        """Line of the overhead in ms against the size in MB."""
        return line_of(self.timed)

    def over_others(self) -> list[tuple[SizedModel, IntervalEstimate]]:
        """Returns each model's overhead over that which the line of all other models gives; empty with too few."""
        lines = [(size, line_of([other for other in self.timed if other is not size])) for size in self.timed]
        return [(size, size.overhead.over(line.at(size.megabytes))) for size, line in lines if line]


def overheads_of(results: Results) -> Overheads:
    """Returns the cases of all runs."""
    return Overheads(results, cases_by(SizedModel, results.where(part=SIZES), "model", "model_option"))


def line_of(sizes: Sequence[SizedModel]) -> Line | None:
    """Fits the overhead in ms against MB; None with too few sizes, or if an overhead is not positive."""
    overheads = [size.overhead.value for size in sizes]
    if len(sizes) < MIN_SIZES or min(overheads) <= 0:
        return None
    return fit_line([size.megabytes for size in sizes], overheads)


def line_text(line: Line) -> str:
    """Returns a + b·M with its numbers."""
    return f"{line.a:.2f} ms + M · {line.b:.2f} ms/MB"

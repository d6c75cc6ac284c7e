"""Cases of the experiment on the null step: curves, what a run of each starts, and its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ps_trainer.experiments.frame.base import Level, Results, RunResult
from ps_trainer.experiments.lab import theory
from ps_trainer.experiments.lab.clusters import Training
from ps_trainer.experiments.lab.sized_settings import DIM, LEARNING_RATE, MEGABYTE, ROWS_PER_STEP, Curve
from ps_trainer.experiments.lab.statistics import Spread, spread, without_warmup

_ROW_BYTES = DIM * 4
_ID_BYTES = 8


class Case(NamedTuple):
    """Runs that differ in their repetition only.

    Attributes:
        level: what of it is real.
        curve: of the figure.
        megabytes: of all parameters; 0 for the scalar.
        n: workers.
        p: ps tasks.
        step_ms: median, 10th and 90th percentile of all repetitions' steps, delays taken off.
        bytes_per_step: what one worker received and sent in a step; None where nothing was counted.
        skew_ms: from the first worker to the last one that has an update's parameters, median; 0 in virtual time.
        switches_per_step: the machine's context switches; None where nothing was counted.
        loss_error: largest |relative error| of a step's loss; None where it is not known beforehand.
        num_runs: repetitions.
        is_contended: whether all of them were CPU-contended.
    """

    level: Level
    curve: Curve
    megabytes: float
    n: int
    p: int
    step_ms: Spread
    bytes_per_step: float | None
    skew_ms: float
    switches_per_step: float | None
    loss_error: float | None
    num_runs: int
    is_contended: bool

    @property
    def curve_name(self) -> str:
        """For tables and legends."""
        return self.curve.value if self.curve is Curve.SCALAR else f"{self.curve.value} {self.megabytes:g} MB"

    @property
    def name(self) -> str:
        """For claims."""
        return f"{self.level.value[:2]}, {self.curve_name}, n={self.n}, p={self.p}"

    @property
    def place(self) -> tuple[Level, int, int]:
        """What two cases have in common that differ in their parameters only."""
        return self.level, self.n, self.p

    @property
    def num_bytes(self) -> float:
        """What a step moves each way, payload: parameters, or the batch's rows."""
        return {
            Curve.SCALAR: 4.0 * self.p,
            Curve.DENSE: self.megabytes * MEGABYTE,
            Curve.SPARSE: float(ROWS_PER_STEP * _ROW_BYTES),
        }[self.curve]

    @property
    def payload_bytes(self) -> float:
        """Both ways; a gradient's rows come with their ids."""
        return 2 * self.num_bytes + (ROWS_PER_STEP * _ID_BYTES if self.curve is Curve.SPARSE else 0)

    def predicted_ms(self, bytes_per_sec: float) -> float:
        """A10: a pull and a push after it, without overlap."""
        return 1000.0 * theory.ps_round_secs(self.num_bytes, self.n, self.p, bytes_per_sec)


def cases_of(results: Results) -> list[Case]:
    """The real and virtual runs, seeds pooled; contended ones only where a case has no others."""
    cases = []
    groups = results.by("level", "curve", "megabytes", "n", "p")
    for (level, curve, megabytes, n, p), group in groups.items():
        if curve == Curve.GOODPUT:
            continue
        counted = group.uncontended() or group
        steps = [ms for run in counted.figures("step_ms") for ms in run]
        cases.append(
            Case(
                level=level,
                curve=Curve(curve),
                megabytes=megabytes,
                n=n,
                p=p,
                step_ms=spread(steps),
                bytes_per_step=_median(_known(counted, "bytes_per_step")),
                skew_ms=_median([ms for run in _known(counted, "skew_ms") for ms in run]) or 0.0,
                switches_per_step=_median(_known(counted, "switches_per_step")),
                loss_error=max(_known(group, "loss_error"), default=None),
                num_runs=len(counted),
                is_contended=all(result.is_contended for result in group),
            )
        )
    return cases


def link_bytes_per_sec(results: Results) -> float | None:
    """Median of what plain transfers over a shaped link got, where they can, of uncontended ones; None without any."""
    runs = results.where(curve=Curve.GOODPUT)
    return _median([rate for rates in (runs.uncontended() or runs).figures("bytes_per_sec") for rate in rates])


def step_ms(training: Training) -> list[float]:
    """Time between one update's end and the next one's, in ms, without the injected delay and without warm-up.

    An update has ended when the last worker has the parameters that it made: the end of that worker's step.
    """
    ends: dict[int, float] = {}
    delays: dict[int, float] = {}
    for step in training.steps:
        update = step["global_step"]
        ends[update] = max(ends.get(update, 0.0), step["t_end"])
        delays[update] = max(delays.get(update, 0.0), step["injected_delay"])
    updates = sorted(ends)
    times = [
        1000.0 * (ends[after] - ends[before] - delays[after])
        for before, after in zip(updates, updates[1:], strict=False)
    ]
    return list(without_warmup(times)[0])


def skew_ms(training: Training) -> list[float]:
    """Time between the first and the last worker that has an update's parameters, in ms, without warm-up."""
    ends: dict[int, list[float]] = {}
    for step in training.steps:
        ends.setdefault(step["global_step"], []).append(step["t_end"])
    return list(without_warmup([1000.0 * (max(ends[update]) - min(ends[update])) for update in sorted(ends)])[0])


def loss_error(training: Training, curve: Curve, num_values: int) -> float | None:
    """Largest |relative error| of a loss against the one that all updates before it must have made.

    A step of a dense model multiplies every value, 1 at first, by 1 − η: loss t is V/2 · (1 − η)^(2t). Of a table
    it depends on which rows were drawn: None.

    Args:
        training: of one of the models.
        curve: which.
        num_values: V.
    """
    if curve is Curve.SPARSE:
        return None
    return max(
        abs(step["loss"] / (0.5 * num_values * (1 - LEARNING_RATE) ** (2 * (step["global_step"] - 1))) - 1)
        for step in training.steps
    )


def num_values(settings: Mapping[str, Any]) -> int:
    """Values of a dense model, rows of a table."""
    if settings["curve"] == Curve.SCALAR:
        return settings["p"]
    size = 4 if settings["curve"] == Curve.DENSE else _ROW_BYTES
    return round(settings["megabytes"] * MEGABYTE / size)


def _known(results: Sequence[RunResult], name: str) -> list[Any]:
    return [value for result in results if (value := result.figures.get(name)) is not None]


def _median(values: Sequence[float]) -> float | None:
    return spread(values).median if values else None

"""Figures of a run of null steps, and the cases that group the runs."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ps_trainer.experiments.harness.cases import Case, cases_by, setting
from ps_trainer.experiments.harness.labels import Label, Level
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.runs import Results, RunResult
from ps_trainer.experiments.toolkit import theory
from ps_trainer.experiments.toolkit.clusters import Training
from ps_trainer.experiments.toolkit.sized_settings import ROW_BYTES, TABLE_RATIO
from ps_trainer.experiments.toolkit.statistics import (
    Interval,
    IntervalEstimate,
    Spread,
    mean_estimate,
    median_interval,
    spread,
    without_warmup,
)
from ps_trainer.metrics.step_record import StepRecord

BLOCK_STEPS = 6
"""Updates after which the other one of two tables is read."""

ROWS_PER_STEP = 32
"""Rows of a table that a worker's step pulls and pushes, as in the paper."""

LEARNING_RATE = 0.001

MEGABYTE = 1_000_000

PAPER_PS = 16
"""ps tasks of the paper."""

PAPER_BYTES_PER_SEC = 10e9 / 8 * 1448 / 1514
"""Bytes per second of TCP over 10 Gbit/s; we assume this network card because the paper's numbers fit it."""

_ID_BYTES = 8


class Curve(Label):
    """Curves of the paper's figure, and the measurement for the prediction."""

    SCALAR = "scalar"  # one float32 value on each ps task
    DENSE = "dense"  # all parameters, both ways
    SPARSE = "sparse"  # a few rows of a table
    GOODPUT = "goodput"  # no training: plain transfers over a shaped link
    TABLES = "tables"  # rows of a small and of a large table by turns, in the same processes


PAPER_STEP_SECS = {
    (Curve.SCALAR, 0): {1: 0.0018, 100: 0.0088},
    (Curve.DENSE, 100): {1: 0.147, 100: 0.613},
    (Curve.DENSE, 1000): {1: 1.01, 100: 7.16},
    (Curve.SPARSE, 1000): {1: 0.005, 100: 0.020},
}
"""Median step of Abadi et al. 2016, Fig. 7, by curve, MB of parameters and number of workers, in seconds."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepSettings(Record):
    """Settings of a run in virtual time."""

    curve: Curve
    megabytes: int  # size of all parameters; 0 for the scalar
    n: int  # number of workers
    p: int  # number of ps tasks


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealStepSettings(StepSettings):
    """Settings of a run of real processes, or of transfers over a link."""

    updates: int  # number of updates, or of transfers
    delay_ms: int  # sleep of each worker between pull and push, so that processes find the cores idle


@dataclasses.dataclass(frozen=True, kw_only=True)
class NullStepFigures(Record):
    """Figures of null steps after warm-up; in virtual time only their durations."""

    step_ms: Sequence[float]
    skew_ms: Sequence[float] | None = None  # times from the first to the last worker that has an update's parameters
    bytes_per_step: float | None = None  # bytes that the last worker received and sent in a step
    loss_error: float | None = None  # largest |relative error| of a loss; None if the right loss is unknown
    switches_per_step: float | None = None  # context switches of the machine; None if not counted
    sent_again_per_step: float | None = None  # TCP segments that all hosts have sent again; None without shaped hosts
    dropped_per_step: float | None = None  # packets to all hosts that found a queue full; None without shaped hosts


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableFigures(Record):
    """Figures of sparse steps that read a small and a large table by turns."""

    small_ms: Sequence[float]  # median step of each block of steps that read the small table, without the delay
    large_ms: Sequence[float]  # the same of the block of steps of the large table that follows


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransferFigures(Record):
    """Figures of plain transfers over a link."""

    bytes_per_sec: Sequence[float]  # rate of each transfer


class StepCase(Case):
    """Repetitions of one run; runs that are not comparable count only if none is."""

    level = setting("level")
    curve = setting("curve")
    megabytes = setting("megabytes")  # size of all parameters; 0 for the scalar
    n = setting("n")
    p = setting("p")

    @functools.cached_property
    def counted(self) -> Results:
        """Runs whose times count, or all runs if none counts."""
        return self.runs.uncontended() or self.runs

    @property
    def is_contended(self) -> bool:
        """Whether none of the runs is comparable."""
        return not self.runs.uncontended()

    @property
    def ms_by_run(self) -> list[Sequence[float]]:
        """Step times of each repetition, without delays."""
        return self.counted.figures("step_ms")

    @functools.cached_property
    def step_ms(self) -> Spread:
        """Spread of the step times of all repetitions, without delays."""
        return spread([ms for run in self.ms_by_run for ms in run])

    @property
    def bytes_per_step(self) -> float | None:
        """Bytes that one worker received and sent in a step; None if not counted."""
        return _median(_known_figures(self.counted, "bytes_per_step"))

    @property
    def bytes_over_payload(self) -> IntervalEstimate:
        """Bytes of a step over its payload, mean over the runs, of which at least one counted them."""
        return mean_estimate(_known_figures(self.counted, "bytes_per_step")).over(self.payload_bytes)

    @property
    def skew_ms(self) -> float:
        """Median time from the first to the last worker that has an update's parameters; 0 in virtual time."""
        return _median([ms for run in _known_figures(self.counted, "skew_ms") for ms in run]) or 0.0

    @property
    def switches_per_step(self) -> float | None:
        """Context switches of the machine per step; None if not counted."""
        return _median(_known_figures(self.counted, "switches_per_step"))

    @property
    def sent_again_per_step(self) -> float | None:
        """TCP segments that all hosts have sent again per step; None without shaped hosts."""
        return _median(_known_figures(self.counted, "sent_again_per_step"))

    @property
    def dropped_per_step(self) -> float | None:
        """Packets to all hosts that found a queue full, per step; None without shaped hosts."""
        return _median(_known_figures(self.counted, "dropped_per_step"))

    @property
    def loss_error(self) -> float | None:
        """Largest |relative error| of a step's loss; None if the right loss is unknown."""
        return max(_known_figures(self.runs, "loss_error"), default=None)

    @property
    def curve_name(self) -> str:
        return self.curve.value if self.curve is Curve.SCALAR else f"{self.curve.value} {self.megabytes:g} MB"

    @property
    def name(self) -> str:
        return f"{self.level.value[:2]}, {self.curve_name}, n={self.n}, p={self.p}"

    @property
    def place(self) -> tuple[Level, int, int]:
        """Level and numbers of tasks, which are equal in cases that differ in their parameters only."""
        return self.level, self.n, self.p

    @property
    def num_bytes(self) -> float:
        """Payload of a step in each direction: the parameters, or the rows of the batch."""
        return {
            Curve.SCALAR: 4.0 * self.p,
            Curve.DENSE: self.megabytes * MEGABYTE,
            Curve.SPARSE: float(ROWS_PER_STEP * ROW_BYTES),
        }[self.curve]

    @property
    def payload_bytes(self) -> float:
        """Payload of a step in both directions; the rows of a gradient include their ids."""
        return 2 * self.num_bytes + (ROWS_PER_STEP * _ID_BYTES if self.curve is Curve.SPARSE else 0)

    def predicted_ms(self, bytes_per_sec: float) -> float:
        """Returns the time of a pull followed by a push, without overlap."""
        return 1000.0 * theory.ps_round_secs(self.num_bytes, self.n, self.p, bytes_per_sec)


class TablePair(Case):
    """Repetitions of a run that reads two tables by turns; runs that are not comparable count only if none is."""

    level = setting("level")
    megabytes = setting("megabytes")  # size of the small table
    n = setting("n")
    p = setting("p")

    @functools.cached_property
    def counted(self) -> Results:
        """Runs whose times count, or all runs if none counts."""
        return self.runs.uncontended() or self.runs

    @property
    def is_contended(self) -> bool:
        """Whether none of the runs is comparable."""
        return not self.runs.uncontended()

    @property
    def name(self) -> str:
        sizes = f"{self.megabytes * TABLE_RATIO:g} MB over {self.megabytes:g} MB"
        return f"{self.level.value[:2]}, {sizes}, n={self.n}, p={self.p}"

    def step_ms(self, which: str) -> float:
        """Returns the median step of the blocks of a table, "small" or "large"."""
        return spread([ms for run in self.counted.figures(f"{which}_ms") for ms in run]).median

    @property
    def num_blocks(self) -> int:
        """Number of pairs of blocks."""
        return sum(map(len, self.counted.figures("small_ms")))

    @property
    def ratio(self) -> tuple[float, Interval]:
        """Median over the pairs of blocks of the large table's step over the small one's, and its interval."""
        runs = zip(self.counted.figures("small_ms"), self.counted.figures("large_ms"), strict=True)
        logs = [math.log(large / small) for pair in runs for small, large in zip(*pair, strict=True)]
        median, ends = median_interval(logs)
        return math.exp(median), Interval(math.exp(ends.low), math.exp(ends.high))


class NullSteps(NamedTuple):
    """All cases of the experiment."""

    cases: Sequence[StepCase]  # real and virtual, in the order of the runs
    bytes_per_sec: float | None  # B on shaped hosts; None = not measured
    transfers: Sequence[Sequence[float]] = ()  # rates of plain transfers, of each run
    table_pairs: Sequence[TablePair] = ()  # tables that were read by turns

    @property
    def timed(self) -> list[StepCase]:
        """Cases whose times count."""
        return [case for case in self.cases if not case.is_contended]

    @property
    def on_links(self) -> list[StepCase]:
        """Dense cases on shaped hosts whose times count."""
        return [case for case in self.timed if case.level is Level.SHAPED and case.curve is Curve.DENSE]


def null_steps_of(results: Results) -> NullSteps:
    """Returns all cases of the experiment's results."""
    names = ("level", "curve", "megabytes", "n", "p")
    cases = cases_by(StepCase, results, *names)
    steps = [case for case in cases if case.curve not in (Curve.GOODPUT, Curve.TABLES)]
    pairs = cases_by(TablePair, results.where(curve=Curve.TABLES), *names)
    return NullSteps(steps, link_bytes_per_sec(results), _transfers(results), pairs)


def link_bytes_per_sec(results: Results) -> float | None:
    """Returns the median rate of plain transfers over a shaped link; None without any.

    Contended transfers count only if all transfers were contended.
    """
    return _median([rate for rates in _transfers(results) for rate in rates])


def step_ms(training: Training) -> list[float]:
    """Returns the times between the ends of updates, in ms, without the injected delay and without warm-up.

    An update ends when the last worker has its parameters, which is the end of that worker's step.
    """
    ends: dict[int, float] = {}
    delays: dict[int, float] = {}
    for step in training.steps:
        update = step.global_step
        ends[update] = max(ends.get(update, 0.0), step.t_end)
        delays[update] = max(delays.get(update, 0.0), step.injected_delay)
    updates = sorted(ends)
    times = [1000.0 * (ends[after] - ends[before] - delays[after]) for before, after in itertools.pairwise(updates)]
    return list(without_warmup(times)[0])


def step_ms_by_table(training: Training) -> tuple[list[float], list[float]]:
    """Returns the median step of each block of the small table, and of the block of the large table that follows.

    Blocks of `BLOCK_STEPS` updates read the small and the large table by turns. The first step of a block does not
    count, because a part of it may belong to the table before. Times are in ms, without the injected delay. The first
    pairs of blocks are warm-up.
    """
    ends: dict[int, float] = {}
    delays: dict[int, float] = {}
    for step in training.steps:
        ends[step.global_step] = max(ends.get(step.global_step, 0.0), step.t_end)
        delays[step.global_step] = max(delays.get(step.global_step, 0.0), step.injected_delay)
    blocks: dict[int, list[float]] = {}
    for update in sorted(ends):
        block, place = divmod(update - 1, BLOCK_STEPS)
        if place and update - 1 in ends:
            blocks.setdefault(block, []).append(1000.0 * (ends[update] - ends[update - 1] - delays[update]))
    medians = [spread(blocks[block]).median for block in sorted(blocks) if len(blocks[block]) == BLOCK_STEPS - 1]
    pairs, _ = without_warmup(list(zip(medians[::2], medians[1::2], strict=False)))
    return [small for small, _ in pairs], [large for _, large in pairs]


def skew_ms(training: Training) -> list[float]:
    """Returns the times from the first to the last worker that has an update's parameters, in ms, without warm-up."""
    ends: dict[int, list[float]] = {}
    for step in training.steps:
        ends.setdefault(step.global_step, []).append(step.t_end)
    return list(without_warmup([1000.0 * (max(ends[update]) - min(ends[update])) for update in sorted(ends)])[0])


def loss_error(training: Training, curve: Curve, num_values: int) -> float | None:
    """Returns the largest |relative error| of a loss against the loss that all updates before it must produce.

    A dense model has V values that begin at 1, and each step multiplies them by 1 − η. Loss t is therefore
    V/2 · (1 − η)^(2t). The loss of a table depends on the drawn rows, so its error is None.
    """
    if curve is Curve.SPARSE:
        return None

    def relative_error(step: StepRecord) -> float:
        expected = 0.5 * num_values * (1 - LEARNING_RATE) ** (2 * (step.global_step - 1))
        return math.inf if step.loss is None else abs(step.loss / expected - 1)

    return max(map(relative_error, training.steps))


def num_values(settings: StepSettings) -> int:
    """Returns the number of values of a dense model, or of rows of a table."""
    if settings.curve is Curve.SCALAR:
        return settings.p
    size = 4 if settings.curve is Curve.DENSE else ROW_BYTES
    return round(settings.megabytes * MEGABYTE / size)


def _transfers(results: Results) -> list[Sequence[float]]:
    runs = results.where(curve=Curve.GOODPUT)
    return (runs.uncontended() or runs).figures("bytes_per_sec")


def _known_figures(results: Sequence[RunResult], name: str) -> list[Any]:
    return [value for result in results if (value := getattr(result.figures, name)) is not None]


def _median(values: Sequence[float]) -> float | None:
    return spread(values).median if values else None

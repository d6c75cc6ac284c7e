"""The distributions of delays in `component_tables.DELAYS`; `disturbances/delays.py` has their base classes."""

from __future__ import annotations

import csv
import dataclasses
import math
import pathlib
from collections.abc import Iterator

import numpy as np

from ps_trainer.disturbances.delays import BLOCK, MILLI, Delay, DelayOptions, Independent
from ps_trainer.errors import DataError, OptionError
from ps_trainer.options import option


class DeterministicDelay(Independent):
    """The mean with a uniform jitter: 1 + U(−jitter, jitter)."""

    options: Options

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(DelayOptions):
        """Options of `det`."""

        jitter: float = option(0.02, "largest deviation, as a share of the mean", least=0, below=1)

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return _jitter(rng, self.options.jitter, count)


class ShiftedExponentialDelay(Independent):
    """A fixed part plus an exponential part: (1 − alpha) + alpha · Exp; the straggler model of coded computing."""

    options: Options

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(DelayOptions):
        """Options of `shifted_exp`."""

        alpha: float = option(0.2, "share of the exponential part", least=0, most=1)

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return _shifted_exponential(rng, self.options.alpha, count)


class ExponentialDelay(Independent):
    """Exponential: standard deviation = mean; the assumption behind the closed forms of theory."""

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return rng.exponential(size=count)


class LogNormalDelay(Independent):
    """Lognormal: exp(sigma · Z − sigma² / 2) with Z normal; a moderate tail, as step times often have."""

    options: Options

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(DelayOptions):
        """Options of `lognormal`."""

        sigma: float = option(0.5, "standard deviation of the logarithm", above=0)

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        sigma = self.options.sigma
        return np.exp(sigma * rng.standard_normal(count) - sigma**2 / 2)


class ParetoDelay(Independent):
    """Pareto, a power law: P(X > x) = (x₀ / x)^alpha for x ≥ x₀ = (alpha − 1) / alpha; a heavy tail."""

    options: Options

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(DelayOptions):
        """Options of `pareto`."""

        alpha: float = option(2.1, "exponent of the tail; at 2 or less the variance is infinite", above=1)

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        alpha = self.options.alpha
        return (1.0 + rng.pareto(alpha, count)) * ((alpha - 1.0) / alpha)


class SpikeDelay(Independent):
    """Mostly equal delays; each step is `factor` times longer with probability p."""

    options: Options

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(DelayOptions):
        """Options of `spike`."""

        p: float = option(0.05, "probability of a long step", least=0, most=1)
        factor: float = option(5.0, "ratio of a long step to a usual one", above=0)
        jitter: float = option(0.02, "largest deviation of every step, as a share of the step", least=0, below=1)

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        p, factor = self.options.p, self.options.factor
        # The expected size is 1 + p (factor - 1). The division by it brings the mean to 1.
        sizes = np.where(rng.random(count) < p, factor, 1.0)
        return sizes * _jitter(rng, self.options.jitter, count) / (1.0 + p * (factor - 1.0))


class PersistentDelay(Delay):
    """One worker is always `factor` times slower than the others, whose mean is mean_ms; all are `shifted_exp`."""

    options: Options

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(DelayOptions):
        """Options of `persistent`."""

        worker: int | None = option(0, "the slow worker", least=0)
        factor: float = option(10.0, "ratio of the slow worker's delays to the others'", above=0)
        alpha: float = option(0.2, "share of the exponential part in the delays of all workers", least=0, most=1)

        def __post_init__(self) -> None:
            if self.worker is None:
                raise OptionError("worker=none; give the index of the slow worker")

    def applies_to(self, worker: int) -> bool:
        """Returns True for every worker, because the workers that it does not name are the fast ones."""
        return True

    def blocks(self, rng: np.random.Generator, worker: int | None) -> Iterator[np.ndarray]:
        """Yields the stream of the slow worker or of a fast one.

        Raises:
            ValueError: `worker` is None, so the speed of the worker is unknown.
        """
        if worker is None:
            raise ValueError("persistent: give the index of the delayed worker")
        factor = self.options.factor if worker == self.options.worker else 1.0
        return self._blocks(rng, self.options.mean_ms * MILLI * factor)

    def _blocks(self, rng: np.random.Generator, mean_secs: float) -> Iterator[np.ndarray]:
        while True:
            yield _shifted_exponential(rng, self.options.alpha, BLOCK) * mean_secs


class BurstDelay(Delay):
    """A worker that alternates between fast and slow for several steps each: a Markov chain with two states."""

    options: Options

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(DelayOptions):
        """Options of `burst`."""

        factor: float = option(5.0, "ratio of a step in a burst to a usual one", above=0)
        begin: float = option(0.02, "probability per step that a burst begins", above=0, most=1)
        end: float = option(
            0.2, "probability per step that a burst ends; a burst lasts 1 / end steps on average", above=0, most=1
        )
        jitter: float = option(0.02, "largest deviation of every step, as a share of the step", least=0, below=1)

    def blocks(self, rng: np.random.Generator, worker: int | None) -> Iterator[np.ndarray]:
        """Yields the stream of a worker. It starts in a burst with the long-run share of bursts as its probability."""
        begin, end, factor = self.options.begin, self.options.end, self.options.factor
        # The stationary share of slow steps; `scale` divides by the mean size that follows from it.
        share = begin / (begin + end)
        scale = self.options.mean_ms * MILLI / (1.0 + share * (factor - 1.0))
        is_slow = rng.random() < share
        while True:
            sizes = np.empty(BLOCK)
            for i, chance in enumerate(rng.random(BLOCK).tolist()):
                sizes[i] = factor if is_slow else 1.0
                is_slow ^= chance < (end if is_slow else begin)
            yield sizes * _jitter(rng, self.options.jitter, BLOCK) * scale


class TraceDelay(Delay):
    """Step times from a CSV file in seconds, repeated endlessly; each worker begins at a random line."""

    options: Options

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(DelayOptions):
        """Options of `trace`."""

        # Only a trace may keep its own mean; callers of `DelaySpec.mean_ms` expect None.
        mean_ms: float | None = option(  # type: ignore[assignment]
            None, "mean in milliseconds to which the trace is scaled; none = as recorded", above=0
        )
        file: str = option("", "CSV file, with or without a line of column names")
        column: str = option("0", "name or index of the column with the step times in seconds")

    def __init__(self, options: Options):
        super().__init__(options)
        self._secs = _read_column(options.file, options.column)
        if options.mean_ms is not None:
            self._secs = self._secs * (options.mean_ms * MILLI / self._secs.mean())

    def blocks(self, rng: np.random.Generator, worker: int | None) -> Iterator[np.ndarray]:
        """Yields the stream in the order of the file, from a random line on."""
        position = int(rng.integers(len(self._secs)))
        while True:
            # In the order of the file, which keeps the dependence between successive steps.
            yield np.take(self._secs, np.arange(position, position + BLOCK), mode="wrap")
            position = (position + BLOCK) % len(self._secs)


def _jitter(rng: np.random.Generator, size: float, count: int) -> np.ndarray:
    return rng.uniform(1.0 - size, 1.0 + size, count)


def _shifted_exponential(rng: np.random.Generator, alpha: float, count: int) -> np.ndarray:
    return (1.0 - alpha) + alpha * rng.exponential(size=count)


def _read_column(file: str, column: str) -> np.ndarray:
    """Returns the values of one column of a CSV file, float64, all positive."""
    if not file:
        raise OptionError("trace: missing file; give trace:file=PATH, a CSV file of step times in seconds")
    path = pathlib.Path(file)
    if not path.is_file():
        raise DataError(f"trace:file={file} is not a file; give the path of a CSV file of step times in seconds")
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            rows = [(number, row) for number, row in enumerate(csv.reader(lines), 1) if row]
    except (OSError, ValueError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"trace:file={file} cannot be read as CSV: {reason}; give a text file in UTF-8") from error
    if not rows:
        raise DataError(f"trace:file={file} has no step times; write one per line, in seconds")
    names = rows[0][1] if not _is_number(rows[0][1][0]) else []
    index = names.index(column) if column in names else _index_of(column)
    if index is None:
        known = (
            f"columns: {', '.join(names)}"
            if names
            else "the file has no line of column names: give an index, 0 or more"
        )
        raise DataError(f"trace:file={file},column={column}: unknown column; {known}")
    values = [_read_number(file, number, row, index) for number, row in rows[bool(names) :]]
    if not values:
        raise DataError(f"trace:file={file} has no step times; write one per line, in seconds")
    return np.array(values)


def _read_number(file: str, number: int, row: list[str], index: int) -> float:
    text = row[index] if index < len(row) else ""
    value = float(text) if _is_number(text) else math.nan
    if not 0 < value < math.inf:
        raise DataError(
            f"trace:file={file}, line {number}, column {index}: {text!r} is not a step time; write a number of"
            " seconds above 0"
        )
    return value


def _index_of(column: str) -> int | None:
    # Python rejects the conversion of a text with thousands of digits, by its own error.
    return int(column) if column.isdecimal() and len(column) < 10 else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

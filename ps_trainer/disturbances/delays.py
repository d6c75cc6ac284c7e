"""Distributions of a worker's delays, seeded per worker. Imports no TensorFlow.

`--straggler` (a real worker sleeps), `--compute` of the simulator, and experiments read the same specs of the form
`name:key=value,…`: `lognormal:sigma=0.5,mean_ms=200`, `exp:worker=1`. `component_tables.DELAYS` lists the names. Every
distribution is scaled to a mean of `mean_ms`, so that comparisons show only its shape. The same spec, seed and worker
give the same delays in a real run and in virtual time. The distributions are in `disturbances/delay_distributions.py`.

A user's own distribution is a subclass of `Independent`, or of `Delay` if a delay depends on earlier ones. Its name is
`package.module:Class`.
"""

from __future__ import annotations

import abc
import dataclasses
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import numpy as np

from ps_trainer import component_tables
from ps_trainer import options as options_lib
from ps_trainer.errors import OptionError
from ps_trainer.options import option
from ps_trainer.registry import split_inline

# Number of delays that are drawn at a time, because NumPy draws arrays much faster than single values.
BLOCK = 256

MILLI = 1e-3


@dataclasses.dataclass(frozen=True, kw_only=True)
class DelayOptions:
    """Options of every distribution."""

    mean_ms: float = option(100.0, "mean, in milliseconds", above=0)
    worker: int | None = option(None, "index of the only delayed worker; none = all workers", least=0)
    paced: bool = option(
        False, "count the delay from the start of the step, so that it contains the computation; false: add it"
    )


class Delay(abc.ABC):
    """A distribution of delays.

    Args:
        options: Options of the type `Options`.
    """

    Options: ClassVar[type[DelayOptions]] = DelayOptions

    def __init__(self, options: DelayOptions):
        self.options = options

    def applies_to(self, worker: int) -> bool:
        """Returns whether the delays apply to the worker with this index."""
        return self.options.worker in (None, worker)

    @abc.abstractmethod
    def blocks(self, rng: np.random.Generator, worker: int | None) -> Iterator[np.ndarray]:
        """Yields an endless stream of delays in seconds, as arrays float64 [BLOCK].

        Args:
            rng: Random numbers of that worker.
            worker: Index of the worker; None if it is unknown.
        """


class Independent(Delay):
    """A distribution whose delays do not depend on each other."""

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Returns `count` values with mean 1; float64 [count]."""

    def blocks(self, rng: np.random.Generator, worker: int | None) -> Iterator[np.ndarray]:
        while True:
            yield self.draw(rng, BLOCK) * (self.options.mean_ms * MILLI)


class DelaySpec:
    """A parsed spec; made by `parse`.

    Args:
        text: Text of the spec.
        distribution: Distribution that the spec describes.
    """

    def __init__(self, text: str, distribution: Delay):
        self.text = text
        self.distribution = distribution

    def __repr__(self) -> str:
        return f"DelaySpec({self.text!r})"

    @property
    def mean_ms(self) -> float | None:
        """Mean in milliseconds; None for a trace that keeps its recorded mean."""
        return self.distribution.options.mean_ms

    @property
    def worker(self) -> int | None:
        """The worker that the spec names, or None."""
        return self.distribution.options.worker

    def applies_to(self, worker: int) -> bool:
        """Returns whether the delays apply to the worker with this index."""
        return self.distribution.applies_to(worker)

    def blocks(self, rng: np.random.Generator, worker: int | None = None) -> Iterator[np.ndarray]:
        """Yields an endless stream of arrays of delays in seconds; the same values as from `sampler`."""
        return self.distribution.blocks(rng, worker)

    def sampler(self, rng: np.random.Generator, worker: int | None = None) -> Callable[[], float]:
        """Returns a function that returns the next delay in seconds, and keeps the state of the distribution.

        Args:
            rng: Random numbers from `rng_for`.
            worker: Index of the delayed worker; only `persistent` needs it.
        """
        delays = (delay for block in self.blocks(rng, worker) for delay in block.tolist())
        return delays.__next__


def parse(text: str, flag: str = "--straggler") -> DelaySpec:
    """Returns the distribution that `name:key=value,key=value` describes.

    Args:
        text: Text of the spec; `name` is in `component_tables.DELAYS` or has the form `module:Class`.
        flag: Flag that it came from, for messages.

    Raises:
        UnknownNameError: The name is unknown.
        OptionError: An option is unknown or out of range.
        DataError: A trace cannot be read.
    """
    name, option_strings = split_inline(text)
    registered = name.partition(":")[0]
    if registered != name and registered in component_tables.DELAYS.names():
        raise OptionError(f"{flag} {text}: write options as key=value, {registered}:key=value,key=value")
    cls = component_tables.DELAYS.load(name, flag)
    if not issubclass(cls, Delay):
        raise OptionError(
            f"{flag} {text}: {cls.__name__} is not a distribution; derive it from ps_trainer.disturbances.delays.Delay"
        )
    options = options_lib.parse(cls.Options, option_strings, f"{flag} {name}:")
    return DelaySpec(text, cls(options))


def parse_all(texts: Sequence[str], num_workers: int, flag: str = "--straggler") -> list[DelaySpec]:
    """Returns the specs of a repeatable flag, checked against the workers of a cluster.

    Args:
        texts: Values of the flag.
        num_workers: Number of workers in the cluster.
        flag: Name of the flag, for messages.

    Raises:
        UsageError: A spec is wrong, or names a worker that the cluster does not have.
    """
    specs = [parse(text, flag) for text in texts]
    check_workers(specs, num_workers, flag)
    return specs


def check_workers(specs: Sequence[DelaySpec], num_workers: int, flag: str) -> None:
    """Raises OptionError if a spec names a worker that a cluster with `num_workers` workers does not have."""
    for spec in specs:
        if spec.worker is not None and spec.worker >= num_workers:
            raise OptionError(
                f"{flag} {spec.text}: worker {spec.worker} does not exist with num_workers={num_workers};"
                f" give worker={num_workers - 1} or less, or start more workers"
            )


def spec_for(specs: Sequence[DelaySpec], worker: int) -> DelaySpec | None:
    """Returns the spec for one worker: the last one that applies to it, or None."""
    # The last one wins, so that a spec for one worker can follow a spec for all.
    return next((spec for spec in reversed(specs) if spec.applies_to(worker)), None)


def rng_for(seed: int, worker: int) -> np.random.Generator:
    """Returns the random numbers of one worker's delays, independent of other workers and of other uses of the seed."""
    # Not `hash`, whose values for texts differ from process to process.
    return np.random.default_rng([zlib.crc32(b"delays"), seed, worker])

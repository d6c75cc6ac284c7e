"""How long a worker computes: distributions of delays, seeded per worker; no TensorFlow.

One spec, `name:key=value,…`, is read by `--straggler` (a real worker sleeps), by `--compute` of the simulator, and
by experiments: `lognormal:sigma=0.5,mean_ms=200`, `exp:worker=1`. Names are in `registry.DELAYS`. Every distribution
is scaled to a mean of `mean_ms`, so that only its shape is compared. The same spec, seed and worker give the same
delays in a real run and in virtual time. The distributions are in `disturbances/delay_distributions.py`.

A distribution of one's own is a subclass of `Independent`, or of `Delay` where a delay depends on those before it,
and is named as `package.module:Class`.
"""

from __future__ import annotations

import abc
import dataclasses
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import numpy as np

from ps_trainer import options as options_lib
from ps_trainer import registry
from ps_trainer.component_registry import split_inline
from ps_trainer.errors import OptionError
from ps_trainer.options import option

# Delays are drawn so many at a time, the last ones in vain.
BLOCK = 256

MILLI = 1e-3


@dataclasses.dataclass(frozen=True, kw_only=True)
class DelayOptions:
    """Options that every distribution has."""

    mean_ms: float = option(100.0, "mean, in milliseconds", above=0)
    worker: int | None = option(None, "the only worker that is meant; none = all", least=0)


class Delay(abc.ABC):
    """A distribution of delays.

    Args:
        options: of the type `Options`.
    """

    Options: ClassVar[type[DelayOptions]] = DelayOptions

    def __init__(self, options: DelayOptions):
        self.options = options

    def applies_to(self, worker: int) -> bool:
        """Whether it is meant for the worker with this index."""
        return self.options.worker in (None, worker)

    @abc.abstractmethod
    def blocks(self, rng: np.random.Generator, worker: int | None) -> Iterator[np.ndarray]:
        """Delays in seconds without end, float64, `BLOCK` at a time.

        Args:
            rng: of that worker.
            worker: its index; None where it is not known.
        """


class Independent(Delay):
    """A distribution whose delays do not depend on each other."""

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """`count` values with mean 1; float64 [count]."""

    def blocks(self, rng: np.random.Generator, worker: int | None) -> Iterator[np.ndarray]:
        while True:
            yield self.draw(rng, BLOCK) * (self.options.mean_ms * MILLI)


class DelaySpec:
    """A distribution as it was asked for; made by `parse`.

    Args:
        text: the spec.
        distribution: what it says.
    """

    def __init__(self, text: str, distribution: Delay):
        self.text = text
        self.distribution = distribution

    def __repr__(self) -> str:
        return f"DelaySpec({self.text!r})"

    @property
    def mean_ms(self) -> float | None:
        """Mean in milliseconds; None for a trace as it was recorded."""
        return self.distribution.options.mean_ms

    @property
    def worker(self) -> int | None:
        """The worker that it names, if any."""
        return self.distribution.options.worker

    def applies_to(self, worker: int) -> bool:
        """Whether it is meant for the worker with this index."""
        return self.distribution.applies_to(worker)

    def blocks(self, rng: np.random.Generator, worker: int | None = None) -> Iterator[np.ndarray]:
        """Delays in seconds without end, `BLOCK` at a time; the same ones as `sampler` gives."""
        return self.distribution.blocks(rng, worker)

    def sampler(self, rng: np.random.Generator, worker: int | None = None) -> Callable[[], float]:
        """A function that gives the next delay, in seconds; it keeps the state of those that have one.

        Args:
            rng: from `rng_for`.
            worker: index of the worker whose delays they are; only `persistent` must know it.
        """
        delays = (delay for block in self.blocks(rng, worker) for delay in block.tolist())
        return delays.__next__


def parse(text: str, flag: str = "--straggler") -> DelaySpec:
    """The distribution that `name:key=value,key=value` stands for.

    Args:
        text: the spec; `name` is in `registry.DELAYS` or has the form `module:Class`.
        flag: where it comes from, for messages.

    Raises:
        UnknownNameError: no such distribution.
        OptionError: an option is unknown or out of range.
        DataError: a trace that cannot be read.
    """
    name, option_strings = split_inline(text)
    registered = name.partition(":")[0]
    if registered != name and registered in registry.DELAYS.names():
        raise OptionError(f"{flag} {text}: write options as key=value, {registered}:key=value,key=value")
    cls = registry.DELAYS.load(name, flag)
    if not issubclass(cls, Delay):
        raise OptionError(
            f"{flag} {text}: {cls.__name__} is no distribution; derive it from ps_trainer.disturbances.delays.Delay"
        )
    options = options_lib.parse(cls.Options, option_strings, f"{flag} {name}:")
    return DelaySpec(text, cls(options))


def parse_all(texts: Sequence[str], num_workers: int, flag: str = "--straggler") -> list[DelaySpec]:
    """What a repeatable flag says about the workers of one cluster.

    Args:
        texts: values of the flag; see `parse`.
        num_workers: workers of the cluster.
        flag: for messages.

    Raises:
        UsageError: see `parse`; or a spec names a worker that the cluster does not have.
    """
    specs = [parse(text, flag) for text in texts]
    check_workers(specs, num_workers, flag)
    return specs


def check_workers(specs: Sequence[DelaySpec], num_workers: int, flag: str) -> None:
    """Raises OptionError where a spec names a worker that a cluster of so many does not have."""
    for spec in specs:
        if spec.worker is not None and spec.worker >= num_workers:
            raise OptionError(
                f"{flag} {spec.text}: there is no worker {spec.worker} with num_workers={num_workers};"
                f" give worker={num_workers - 1} or less, or more workers"
            )


def spec_for(specs: Sequence[DelaySpec], worker: int) -> DelaySpec | None:
    """What is said about one worker: of the specs that apply to it, the last one counts; None where none does."""
    return next((spec for spec in reversed(specs) if spec.applies_to(worker)), None)


def rng_for(seed: int, worker: int) -> np.random.Generator:
    """The random numbers of one worker's delays; other workers' and other uses' are independent of them."""
    return np.random.default_rng([zlib.crc32(b"delays"), seed, worker])

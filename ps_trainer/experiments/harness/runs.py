"""The runs of an experiment: their settings before they are made, their figures after, and selections of them."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from ps_trainer.experiments.harness.cpu import MAX_DELAYED_SHARE, MAX_OTHERS_SHARE, CpuUse
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.toolkit.statistics import spread

SettingsT = TypeVar("SettingsT", bound=Record)
FiguresT = TypeVar("FiguresT", bound=Record)


@dataclasses.dataclass(frozen=True)
class Run(Generic[SettingsT]):
    """One run: its settings and its expected duration.

    Attributes:
        key: Unique name in the experiment; a file name (letters, digits, `.`, `_`, `-`, `=`).
        settings: Values that define the measurement. A finished run with other settings is repeated.
        seed: Seed of this repetition.
        expected_secs: Expected duration on two cores, for the estimate of the time left.
        level: Level that says which parts of the run are real.
        is_paced: Whether its workers sleep instead of computing, so that no task of it should wait for a core.
    """

    key: str
    settings: SettingsT
    seed: int = 0
    expected_secs: float = 1.0
    level: Level = Level.VIRTUAL
    is_paced: bool = True

    def identity(self) -> dict[str, Any]:
        """Returns the JSON values that must be the same for the harness to reuse a finished run."""
        return {
            "level": self.level.value,
            "seed": self.seed,
            "settings": json.loads(json.dumps(self.settings.as_json())),
        }


def runs_of_seeds(
    seeds: Sequence[int],
    key: str,
    settings: SettingsT,
    expected_secs: float,
    level: Level = Level.VIRTUAL,
    *,
    is_paced: bool = True,
) -> list[Run[SettingsT]]:
    """Runs that differ only in their seed; each key ends with the seed."""
    return [Run(f"{key}-seed={seed}", settings, seed, expected_secs, level, is_paced) for seed in seeds]


def unseen_seeds(seeds: Sequence[int]) -> Sequence[int]:
    """Returns the next seeds after these, four times as many: to judge claims that these have left undecided."""
    return range(max(seeds) + 1, max(seeds) + 1 + 4 * len(seeds))


def runs_by_key(
    seeds: Sequence[int], settings: Mapping[str, SettingsT], expected_secs: float, level: Level = Level.VIRTUAL
) -> list[Run[SettingsT]]:
    """Returns the runs of each of these settings, by their keys, with each seed."""
    return [run for key, one in settings.items() for run in runs_of_seeds(seeds, key, one, expected_secs, level)]


def run_key(level: str, settings: Record, without: Sequence[str] = ()) -> str:
    """Returns a key of runs made of their settings, without settings that are None."""
    shown = {name: value for name, value in settings.as_json().items() if value is not None and name not in without}
    return "-".join([level, *(f"{name}={value}" for name, value in shown.items())])


@dataclasses.dataclass(frozen=True)
class Measured(Generic[FiguresT]):
    """Result of a run.

    Attributes:
        figures: Measured values.
        steps: A JSON object per step, in order of time, kept as a file. It may be empty, or have only the first
            steps.
        window: Wall time, in seconds since the epoch, in which the machine's CPU use matters; None = the whole run.
        num_workers: Number of workers that made steps at the same time.
    """

    figures: FiguresT
    steps: Iterable[Mapping[str, Any]] = ()
    window: tuple[float, float] | None = None
    num_workers: int = 1


class RunResult(NamedTuple):
    """A finished run."""

    run: Run[Any]
    figures: Any  # the `Record` of the run's part
    wall_secs: float  # duration of the run
    cpu: CpuUse | None  # CPU use in the run's window; None where the system does not count it
    folder: pathlib.Path  # folder of result.json, steps.jsonl and logs
    num_attempts: int = 1  # how often the run was made until its times were comparable, or no more
    commit: str = ""  # commit that made the run; empty where it is unknown

    @property
    def is_contended(self) -> bool:
        """Whether its times are not comparable, because its tasks waited for cores; never true in virtual time.

        Tasks that compute all the time wait for each other by themselves. Of them, the use by others counts.
        """
        if self.run.level is Level.VIRTUAL or self.cpu is None:
            return False
        if self.run.is_paced:
            return self.delayed_share > MAX_DELAYED_SHARE
        return self.cpu.others_share > MAX_OTHERS_SHARE

    @property
    def delayed_share(self) -> float:
        """Share of a step for which its tasks waited for a core, 0..1; 0 where it is unknown.

        On shaped hosts gRPC's network threads do not count. They wait briefly at each wake-up by a packet, and the link
        carries the bytes of its queue meanwhile, so that the transfer takes no longer.
        """
        if self.cpu is None or self.cpu.delayed_share is None:
            return 0.0
        hidden = (self.cpu.network_delayed_share or 0.0) if self.run.level is Level.SHAPED else 0.0
        return self.cpu.delayed_share - hidden

    def steps(self) -> Iterator[dict[str, Any]]:
        """Yields the step records that were kept, in order."""
        path = self.folder / "steps.jsonl"
        if path.exists():
            with path.open(encoding="utf-8") as file:
                yield from map(json.loads, file)


class Results(tuple[RunResult, ...]):
    """Finished runs, in the order of the experiment's runs."""

    @property
    def levels(self) -> str:
        """Levels of the runs, in words."""
        return ", ".join(dict.fromkeys(result.run.level.value for result in self))

    def where(self, **settings: Any) -> Results:
        """Returns the results with these settings, perhaps `level` and `seed` too. A missing setting counts as None."""
        return Results(r for r in self if all(setting_of(r.run, name) == value for name, value in settings.items()))

    def by(self, *names: str) -> dict[tuple[Any, ...], Results]:
        """Returns the groups of results with equal values of these settings, in the order in which they first occur."""
        groups: dict[tuple[Any, ...], list[RunResult]] = {}
        for result in self:
            groups.setdefault(tuple(setting_of(result.run, name) for name in names), []).append(result)
        return {key: Results(group) for key, group in groups.items()}

    def uncontended(self) -> Results:
        """Returns the results whose times count."""
        return Results(result for result in self if not result.is_contended)

    def figures(self, name: str) -> list[Any]:
        """Returns one figure of each run."""
        return [getattr(result.figures, name) for result in self]

    def setting(self, name: str) -> Any:
        """Returns a setting, `level` or `seed` that all of these runs share; needs at least one run."""
        return setting_of(self[0].run, name)

    @property
    def cpu_percent(self) -> float | None:
        """Median share of the cores that any process kept busy, in percent; None where it is unknown."""
        shares = [100 * result.cpu.share for result in self if result.cpu is not None]
        return spread(shares).median if shares else None

    def median(self, name: str) -> float:
        """Returns the median of one figure over the runs; needs at least one run."""
        return spread(self.figures(name)).median

    def mean(self, name: str) -> float:
        """Returns the mean of one figure over the runs; needs at least one run."""
        return float(np.mean(self.figures(name)))


def setting_of(run: Run[Any], name: str) -> Any:
    """Returns a setting of a run, its `level` or its `seed`; None if the run has no such setting."""
    # Parts differ in their settings, and a selection over all parts asks each run for its own.
    return getattr(run, name) if name in ("level", "seed") else getattr(run.settings, name, None)

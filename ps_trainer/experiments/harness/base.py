"""`Experiment` and its parts: which runs there are, how one is executed, and what comes of all of them.

    part.runs ─► part.execute, once per run ─► part.cases ─► claims, tables, plots, notes

An experiment consists of parts, one for each kind of runs. Order, files, repetition, progress, verdicts and pages are
the harness's: `runner.py`, `store.py`, `claims.py`, `report.py`.
"""

from __future__ import annotations

import abc
import dataclasses
import json
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ps_trainer.experiments.harness.claims import Checked, Claim
from ps_trainer.experiments.harness.cpu import CONTENDED_SHARE, CpuUse
from ps_trainer.experiments.harness.labels import Level as Level
from ps_trainer.experiments.harness.plots import Caption, Drawing, Plot
from ps_trainer.experiments.harness.published import Published
from ps_trainer.experiments.harness.tables import Table
from ps_trainer.experiments.toolkit.statistics import spread


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: what it is and how long it may take.

    Attributes:
        key: Unique name in the experiment; a file name (letters, digits, `.`, `_`, `-`, `=`).
        settings: JSON values that decide what it measures. A finished run with other settings is repeated.
        seed: Seed of this repetition.
        expected_secs: Expected duration on two cores, for the estimate of the time left.
        level: What of it is real.
    """

    key: str
    settings: Mapping[str, Any]
    seed: int = 0
    expected_secs: float = 1.0
    level: Level = Level.VIRTUAL

    def identity(self) -> dict[str, Any]:
        """What must be the same for a finished run to be taken again, as JSON values."""
        return {"level": self.level.value, "seed": self.seed, "settings": json.loads(json.dumps(dict(self.settings)))}


def repeated(
    seeds: Sequence[int], key: str, settings: Mapping[str, Any], expected_secs: float, level: Level = Level.VIRTUAL
) -> list[Run]:
    """Runs that differ only in their seed, which their keys end with."""
    return [Run(f"{key}-seed={seed}", settings, seed, expected_secs, level) for seed in seeds]


def keyed(level: str, settings: Mapping[str, Any], without: Sequence[str] = ()) -> str:
    """A key of runs that says their settings, without those that are None."""
    shown = {name: value for name, value in settings.items() if value is not None and name not in without}
    return "-".join([level, *(f"{name}={value}" for name, value in shown.items())])


class Measured(NamedTuple):
    """What executing a run gives.

    Attributes:
        figures: JSON values by name.
        steps: a JSON object per step, in the order of time; kept as a file. May be empty, or of a part only.
        window: wall time from and to which the machine's CPU use matters, in seconds since the epoch; None =
            from start to end.
    """

    figures: Mapping[str, Any]
    steps: Iterable[Mapping[str, Any]] = ()
    window: tuple[float, float] | None = None


class RunResult(NamedTuple):
    """A finished run.

    Attributes:
        run: what was run.
        figures: see `Measured`.
        wall_secs: how long it took.
        cpu: of the machine in the run's window; None where the system does not tell.
        folder: its files: result.json, steps.jsonl, logs.
    """

    run: Run
    figures: Mapping[str, Any]
    wall_secs: float
    cpu: CpuUse | None
    folder: pathlib.Path

    @property
    def is_contended(self) -> bool:
        """Whether tasks waited for cores, so that its times say nothing; virtual time cannot be."""
        return self.run.level is not Level.VIRTUAL and self.cpu is not None and self.cpu.share > CONTENDED_SHARE

    def steps(self) -> Iterator[dict[str, Any]]:
        """The step records that were kept, in order."""
        path = self.folder / "steps.jsonl"
        if path.exists():
            with path.open(encoding="utf-8") as file:
                yield from map(json.loads, file)


class Results(tuple[RunResult, ...]):
    """Finished runs, in the order of the experiment's runs."""

    def where(self, **settings: Any) -> Results:
        """Those with these settings; `level` and `seed` may be among them. A setting that is missing is None."""
        return Results(r for r in self if all(_setting(r.run, name) == value for name, value in settings.items()))

    def by(self, *names: str) -> dict[tuple[Any, ...], Results]:
        """Groups of the same values of these settings, in the order in which they first come."""
        groups: dict[tuple[Any, ...], list[RunResult]] = {}
        for result in self:
            groups.setdefault(tuple(_setting(result.run, name) for name in names), []).append(result)
        return {key: Results(group) for key, group in groups.items()}

    def uncontended(self) -> Results:
        """Those whose times count."""
        return Results(result for result in self if not result.is_contended)

    def figures(self, name: str) -> list[Any]:
        """One figure of each run."""
        return [result.figures[name] for result in self]

    def setting(self, name: str) -> Any:
        """A setting, `level` or `seed` that all of these runs share; there is at least one run."""
        return _setting(self[0].run, name)

    def median(self, name: str) -> float:
        """Median of one figure over the runs, of which there is at least one."""
        return spread(self.figures(name)).median

    def mean(self, name: str) -> float:
        """Mean of one figure over the runs, of which there is at least one."""
        return float(np.mean(self.figures(name)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Analysis:
    """What the results say.

    Attributes:
        tables: for the report.
        checked: every claim, and what came of it.
        notes: sentences for the report: what was left out, why a claim fails, …
    """

    tables: Sequence[Table]
    checked: Sequence[Checked]
    notes: Sequence[str]


class Part(abc.ABC):
    """Runs of one kind: how one is executed, and what the results say.

    `cases`, `tables` and `why_none` are functions. One that does not need the part itself is a `staticmethod`.

    Attributes:
        selects: the settings, `level` among them, by which a run belongs to this part.
        sees_all: whether its cases are made of the results of all parts, not of its own alone.
        claims: about these runs, with thresholds fixed before anything is run.
        cases: what claims, tables, plots and notes are made of, from the results; by default these themselves.
        tables: for the report, without rows left out; none by default.
        plots: for the report, each of what it selects from the cases; none by default.
        notes: sentences for the report where there are cases: what was left out, why a claim fails; or a function of
            the cases that gives them.
        why_none: why nothing was measured for a claim that does not say it itself.
    """

    selects: ClassVar[Mapping[str, Any]] = {}
    sees_all: ClassVar[bool] = False
    claims: ClassVar[Sequence[Claim]] = ()
    plots: ClassVar[Sequence[Plot]] = ()
    notes: Sequence[str] | Callable[[Any], Sequence[str]] = ()
    cases: Callable[[Results], Any] = staticmethod(lambda results: results)
    tables: Callable[[Any], Sequence[Table]] = staticmethod(lambda cases: ())
    why_none: Callable[[Any], str] = staticmethod(lambda cases: "")

    @abc.abstractmethod
    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run]:
        """The runs, in order.

        Args:
            seeds: of the repetitions.
            quick: whether the whole experiment is to take less than two minutes.
        """

    @abc.abstractmethod
    def execute(self, run: Run, folder: pathlib.Path) -> Measured:
        """Does one run, and leaves nothing running.

        Args:
            run: one of `runs`.
            folder: existing, for logs and whatever else the run leaves.

        Raises:
            RunError: it failed; the message holds the end of the log.
        """

    def owns(self, run: Run) -> bool:
        """Whether a run belongs to this part."""
        return all(_setting(run, name) == value for name, value in self.selects.items())


class Experiment:
    """One experiment of the literature; the first line of a subclass's docstring is its title in lists.

    Attributes:
        name: as it is registered.
        source: papers, with sections or figures.
        parts: its kinds of runs; a run belongs to the first part that owns it.
        claims: of all parts.
        captions: the words below each plot, by its key up to the first `-`.
        published: numbers of the sources that the report prints beside ours.
        scale_down: how it differs from the source's set-up, in sentences.
        num_seeds: repetitions of a full run.
        num_quick_seeds: of a quick one.
    """

    name: str
    source: str
    parts: Sequence[Part]
    claims: Sequence[Claim]
    captions: Mapping[str, Caption]
    published: Sequence[Published] = ()
    scale_down: str = ""
    num_seeds: int = 5
    num_quick_seeds: int = 2

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.claims = tuple(claim for part in cls.parts for claim in part.claims)
        cls.captions = {plot.key.partition("-")[0]: plot.caption for part in cls.parts for plot in part.plots}

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run]:
        """The runs of all parts, in order; see `Part.runs`."""
        return [run for part in self.parts for run in part.runs(seeds, quick=quick)]

    def execute(self, run: Run, folder: pathlib.Path) -> Measured:
        """Does one run, see `Part.execute`."""
        return self._part_of(run).execute(run, folder)

    def analyse(self, results: Results) -> Analysis:
        """Tables, claims checked, and notes, of all runs."""
        cases = self._cases(results)
        return Analysis(
            tables=[table for part, own in cases for table in part.tables(own) if table.rows],
            checked=[
                claim.check(list(claim.measure(own)), (claim.why_none or part.why_none)(own))
                for part, own in cases
                for claim in part.claims
            ],
            notes=[note for part, own in cases for note in _notes_of(part, own)],
        )

    def plots(self, results: Results) -> list[Drawing]:
        """The plots of all parts, without those that have no data."""
        drawings = [Drawing(plot, plot.data(cases)) for part, cases in self._cases(results) for plot in part.plots]
        return [drawing for drawing in drawings if drawing.data]

    def _part_of(self, run: Run) -> Part:
        return next(part for part in self.parts if part.owns(run))

    def _cases(self, results: Results) -> list[tuple[Part, Any]]:
        """Each part with the cases that the results make."""
        owned = [(result, self._part_of(result.run)) for result in results]
        return [
            (part, part.cases(Results(result for result, owner in owned if owner is part or part.sees_all)))
            for part in self.parts
        ]


def _notes_of(part: Part, cases: Any) -> Sequence[str]:
    if callable(part.notes):
        return part.notes(cases)
    return part.notes if cases else ()


def _setting(run: Run, name: str) -> Any:
    return getattr(run, name) if name in ("level", "seed") else run.settings.get(name)

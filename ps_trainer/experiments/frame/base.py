"""`Experiment`: the interface of one file per experiment, its runs, and what comes of them.

An experiment says which runs it needs, carries out one of them at a time, and makes tables, values for its
claims and plots of all results. Order, files, repetition, progress, statistics' definitions, verdicts and pages
are the frame's: `runner.py`, `store.py`, `claims.py`, `report.py`.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import json
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ps_trainer.experiments.frame.captions import Caption
from ps_trainer.experiments.frame.claims import Checked, Claim, Measure
from ps_trainer.experiments.frame.cpu import CONTENDED_SHARE, CpuUse
from ps_trainer.experiments.frame.plots import Plot
from ps_trainer.experiments.frame.published import Published
from ps_trainer.experiments.frame.tables import Table


class Level(enum.Enum):
    """What of a run is real; printed on every table and plot."""

    VIRTUAL = "L0 virtual time"  # gradients and updates are real, all time is emulated
    IN_PROCESS = "L1 in-process cluster"  # servers of one process: machines are emulated
    PROCESSES = "L2 processes on one machine"  # network interfaces are emulated
    SHAPED = "L3 shaped hosts"  # network namespaces with limited links: only the wire is emulated


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One run: what it is and how long it may take.

    Attributes:
        key: unique in the experiment; a file name (letters, digits, `.`, `_`, `-`, `=`).
        level: what of it is real.
        settings: JSON values that decide what it measures; a finished run with others is repeated.
        seed: of this repetition.
        expected_secs: about how long it takes on two cores; for the time left.
    """

    key: str
    level: Level
    settings: Mapping[str, Any]
    seed: int = 0
    expected_secs: float = 1.0

    def identity(self) -> dict[str, Any]:
        """What must be the same for a finished run to be taken again, as JSON values."""
        return {"level": self.level.value, "seed": self.seed, "settings": json.loads(json.dumps(dict(self.settings)))}


class Measured(NamedTuple):
    """What carrying out a run gives.

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Analysis:
    """What the results say.

    Attributes:
        tables: for the report.
        measured: claim's key -> its measured values.
        not_testable: claim's key -> why it has none.
        notes: sentences for the report: what was left out, why a claim fails, …
    """

    tables: Sequence[Table] = ()
    measured: Mapping[str, Sequence[Measure]] = dataclasses.field(default_factory=dict)
    not_testable: Mapping[str, str] = dataclasses.field(default_factory=dict)
    notes: Sequence[str] = ()


class Experiment(abc.ABC):
    """One experiment of the literature; the first line of a subclass's docstring is its title in lists.

    Attributes:
        name: as it is registered.
        source: papers, with sections or figures.
        claims: with thresholds fixed here, before anything is run.
        captions: the words below each plot, by its key, see `caption_of`.
        published: numbers of the sources that the report prints beside ours.
        scale_down: how it differs from the source's set-up, in sentences.
        num_seeds: repetitions of a full run.
        num_quick_seeds: of a quick one.
    """

    name: str
    source: str
    claims: Sequence[Claim]
    captions: Mapping[str, Caption] = {}
    published: Sequence[Published] = ()
    scale_down: str = ""
    num_seeds: int = 5
    num_quick_seeds: int = 2

    @abc.abstractmethod
    def runs(self, quick: bool, seeds: Sequence[int]) -> list[Run]:
        """The runs, in order.

        Args:
            quick: whether all of them together are to take less than two minutes.
            seeds: of the repetitions.
        """

    @abc.abstractmethod
    def carry_out(self, run: Run, folder: pathlib.Path) -> Measured:
        """Does one run, and leaves nothing running.

        Args:
            run: one of `runs`.
            folder: existing, for logs and whatever else the run leaves.

        Raises:
            RunError: it failed; the message holds the end of the log.
        """

    @abc.abstractmethod
    def analyse(self, results: Results) -> Analysis:
        """Tables, values for the claims, and notes, of all runs."""

    def plots(self, results: Results) -> Sequence[Plot]:
        """The plots, of all runs; none by default."""
        return ()

    def caption_of(self, plot_key: str) -> Caption:
        """The words below a plot; plots whose keys differ after the first `-` only have the same."""
        return self.captions[plot_key.partition("-")[0]]

    def check(self, analysis: Analysis) -> list[Checked]:
        """What the measured values say of each claim.

        Raises:
            KeyError: the analysis names a claim that is not there.
        """
        unknown = (analysis.measured.keys() | analysis.not_testable.keys()) - {claim.key for claim in self.claims}
        if unknown:
            raise KeyError(f"{self.name}: no claim {', '.join(sorted(unknown))}")
        return [
            claim.check(analysis.measured.get(claim.key, ()), analysis.not_testable.get(claim.key, ""))
            for claim in self.claims
        ]


def _setting(run: Run, name: str) -> Any:
    return getattr(run, name) if name in ("level", "seed") else run.settings.get(name)

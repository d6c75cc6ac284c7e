"""`Experiment` and its parts: the runs, the execution of a run, and the analysis of all results.

    part.runs ─► part.execute, once per run ─► part.cases ─► claims, tables, plots, notes

An experiment consists of parts, one for each kind of runs. The harness is responsible for order, files, repetition,
progress, verdicts and pages: `runner.py`, `run_store.py`, `claims.py`, `report.py`.
"""

from __future__ import annotations

import abc
import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic

from ps_trainer.experiments.harness.claims import Claim, Elsewhere, JudgedClaim
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.page_texts import PageTexts
from ps_trainer.experiments.harness.plots import Caption, Drawing, Plot
from ps_trainer.experiments.harness.published import Published
from ps_trainer.experiments.harness.records import Record, from_json
from ps_trainer.experiments.harness.runs import FiguresT, Measured, Results, Run, SettingsT, setting_of
from ps_trainer.experiments.harness.tables import Table


@dataclasses.dataclass(frozen=True, kw_only=True)
class Analysis:
    """Tables, checked claims and notes that an experiment's results give."""

    tables: Sequence[Table]  # tables of the report
    checked: Sequence[JudgedClaim]  # every claim with its outcome
    notes: Sequence[str]  # sentences with numbers of the runs


class Part(abc.ABC, Generic[SettingsT, FiguresT]):
    """Runs of one kind: their execution and their analysis.

    A class sets the attributes. Where its file is only about the runs, the file that presents them gives claims,
    tables, plots and notes to the constructor instead: `Trainings(claims=CLAIMS, tables=tables, plots=PLOTS)`.

    `cases`, `tables`, `notes` and `why_none` are functions. One that does not need the part itself is a `staticmethod`.

    Attributes:
        figures_type: Type of the figures, with which the harness reads finished runs.
        selects: Settings, `level` among them, by which a run belongs to this part.
        sees_all: Whether its cases are made of the results of all parts, and not of this part alone.
        claims: Claims about these runs, with thresholds that are fixed before anything is run.
        cases: Function that makes of the results what claims, tables, plots and notes use; the results by default.
        tables: Function that makes the report's tables.
        plots: Plots of the report.
        notes: Function that makes sentences with numbers of the runs.
        why_none: Function that explains why a claim was not measured, where the claim itself does not.
    """

    figures_type: ClassVar[type[Record]]
    selects: ClassVar[Mapping[str, Any]] = {}
    sees_all: ClassVar[bool] = False
    claims: Sequence[Claim] = ()
    plots: Sequence[Plot] = ()
    cases: Callable[[Results], Any] = staticmethod(lambda results: results)
    tables: Callable[[Any], Sequence[Table]] = staticmethod(lambda cases: ())
    notes: Callable[[Any], Sequence[str]] = staticmethod(lambda cases: ())
    why_none: Callable[[Any], str] = staticmethod(lambda cases: "")

    def __init__(
        self,
        *,
        claims: Sequence[Claim] = (),
        tables: Callable[[Any], Sequence[Table]] | None = None,
        plots: Sequence[Plot] = (),
        notes: Callable[[Any], Sequence[str]] | None = None,
    ):
        """Creates a part, with what another file declares about its runs in place of the class's own attributes."""
        given = {"claims": claims, "tables": tables, "plots": plots, "notes": notes}
        vars(self).update({name: value for name, value in given.items() if value})

    @abc.abstractmethod
    def runs(self, seeds: Sequence[int], *, quick: bool) -> Sequence[Run[SettingsT]]:
        """Returns the runs, in order.

        Args:
            seeds: Seeds of the repetitions.
            quick: Whether the whole experiment is to take five minutes at most.
        """

    @abc.abstractmethod
    def execute(self, run: Run[SettingsT], folder: pathlib.Path) -> Measured[FiguresT]:
        """Executes one of the runs, and leaves no process behind.

        Args:
            run: One of `runs`.
            folder: Existing folder for logs and other files of the run.

        Raises:
            RunError: The run failed; the message holds the end of the log.
        """

    def needed_by(self, run: Run[SettingsT]) -> Run[Any] | None:
        """Returns the run whose figures `execute_with` needs, a run of another part; None by default."""
        del run
        return None

    def execute_with(self, run: Run[SettingsT], folder: pathlib.Path, needed: Any) -> Measured[FiguresT]:
        """Executes one of the runs with the figures of the run that it needs."""
        raise NotImplementedError(f"{type(self).__name__} needs the figures {needed} of another run")

    def figures_type_of(self, settings: SettingsT) -> type[Record]:
        """Returns the type of the figures of a run with these settings; `figures_type` unless the part has several."""
        del settings
        return self.figures_type

    def owns(self, run: Run[Any]) -> bool:
        """Returns whether a run belongs to this part."""
        return all(setting_of(run, name) == value for name, value in self.selects.items())


class Experiment:
    """One experiment of the literature; the first line of a subclass's docstring is its title in lists.

    Attributes:
        name: Registered name.
        source: Papers, with sections or figures.
        texts: Words of the page: question, background, findings of the sources, set-up, reasons, limits.
        parts: Kinds of runs. A run belongs to the first part that owns it.
        claims: Claims of all parts.
        captions: Words below each plot, by its key up to the first `-`.
        published: Numbers of the sources that the report prints.
        untested: What the sources claim and no claim tests, in words for the verdict.
        tested_elsewhere: What the sources claim and other experiments test. Their outcomes count in the verdict.
        num_seeds: Repetitions of a full run.
        num_quick_seeds: Repetitions of a quick run.
    """

    name: str
    source: str
    texts: PageTexts
    parts: Sequence[Part[Any, Any]]
    claims: Sequence[Claim]
    captions: Mapping[str, Caption]
    published: Sequence[Published] = ()
    untested: str = ""
    tested_elsewhere: Sequence[Elsewhere] = ()
    num_seeds: int = 5
    num_quick_seeds: int = 2

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.claims = tuple(claim for part in cls.parts for claim in part.claims)
        sentences = {claim.key: claim.sentence for claim in cls.claims}
        cls.captions = {
            plot.caption_key: Caption(plot.shows, plot.expected, tuple(sentences[key] for key in plot.claims))
            for part in cls.parts
            for plot in part.plots
        }

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[Any]]:
        """Returns the runs of all parts, in the order in which they are made.

        Real runs that are compared alternate, since a machine changes with time. All with the first seed come first,
        then all with the second one, and so on. Before them come the runs whose figures they need.
        """
        planned = [run for part in self.parts for run in part.runs(seeds, quick=quick)]
        needed = {one.key: one for run in planned if (one := self.needed_by(run)) is not None}
        ordered = [*needed.values(), *(run for run in planned if run.key not in needed)]
        virtual = [run for run in ordered if run.level is Level.VIRTUAL]
        real = [run for run in ordered if run.level is not Level.VIRTUAL]
        return [*virtual, *sorted(real, key=lambda run: run.seed)]

    def needed_by(self, run: Run[Any]) -> Run[Any] | None:
        """Returns the run whose figures another run needs, if any."""
        return self._part_of(run).needed_by(run)

    def execute(self, run: Run[Any], folder: pathlib.Path, needed: Record | None = None) -> Measured[Any]:
        """Executes one run by its part, with the figures of the run that it needs."""
        part = self._part_of(run)
        return part.execute(run, folder) if needed is None else part.execute_with(run, folder, needed)

    def read_figures(self, run: Run[Any], values: Mapping[str, Any]) -> Record:
        """Returns the figures of a finished run, from their JSON.

        Raises:
            ValueError: A figure is missing.
        """
        return from_json(self._part_of(run).figures_type_of(run.settings), values)

    def analyse(self, results: Results) -> Analysis:
        """Returns tables, checked claims, and notes of all runs."""
        cases = self._cases(results)
        return Analysis(
            tables=[table for part, part_cases in cases for table in part.tables(part_cases) if table.rows],
            checked=[
                claim.check(list(claim.measure(part_cases)), (claim.why_none or part.why_none)(part_cases))
                for part, part_cases in cases
                for claim in part.claims
            ],
            notes=[note for part, part_cases in cases for note in part.notes(part_cases)],
        )

    def plots(self, results: Results) -> list[Drawing]:
        """Returns the plots of all parts, without those that have no data."""
        drawings = [Drawing(plot, plot.data(cases)) for part, cases in self._cases(results) for plot in part.plots]
        return [drawing for drawing in drawings if drawing.data]

    def _part_of(self, run: Run[Any]) -> Part[Any, Any]:
        return next(part for part in self.parts if part.owns(run))

    def _cases(self, results: Results) -> list[tuple[Part[Any, Any], Any]]:
        """Returns each part with the cases that the results make."""
        owned = [(result, self._part_of(result.run)) for result in results]
        return [
            (part, part.cases(Results(result for result, owner in owned if owner is part or part.sees_all)))
            for part in self.parts
        ]

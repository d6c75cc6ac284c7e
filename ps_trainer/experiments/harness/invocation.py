"""One call of `ps_trainer experiment`: experiments in order, their reports, the index page, the exit code."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import signal
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

from rich.console import Console
from rich.text import Text

from ps_trainer import component_tables
from ps_trainer.errors import EXIT_DONE, EXIT_FAILED, Interrupted
from ps_trainer.experiments.harness import index, plots, report
from ps_trainer.experiments.harness.base import Experiment
from ps_trainer.experiments.harness.claims import ClaimFinding, ClaimKind, JudgedClaim
from ps_trainer.experiments.harness.conclusion import Conclusion
from ps_trainer.experiments.harness.progress import Progress, create_progress
from ps_trainer.experiments.harness.provenance import committed, provenance
from ps_trainer.experiments.harness.run_store import lock_folder
from ps_trainer.experiments.harness.runner import PlannedExperiment, execute, prepare

_FOLDERS = {False: pathlib.Path("runs/experiments"), True: pathlib.Path("runs/experiments-quick")}
_STYLES = {
    ClaimFinding.OK: "green",
    ClaimFinding.PARTLY: "yellow",
    ClaimFinding.UNDECIDED: "yellow",
    ClaimFinding.REFUTED: "red",
    ClaimFinding.NOT_TESTABLE: "dim",
}
_FINDING_WIDTH = max(len(finding.value) for finding in ClaimFinding)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """Options of one call of `experiment`."""

    quick: bool = False  # whether to run the quick form
    # folder of all files; None = a fixed one under `runs`, so that the same call continues there
    out_dir: pathlib.Path | None = None
    num_seeds: int | None = None  # repetitions; None = as many as each experiment says
    check: bool = False  # whether a refuted claim makes the command fail
    keep_runs: bool = False  # whether finished runs of other code versions count
    plain: bool = False  # whether to print lines instead of a bar


def create(names: Sequence[str]) -> list[Experiment]:
    """Creates the experiments of these names, registered ones or `package.module:Class`.

    Raises:
        UnknownNameError: No experiment has that name.
    """
    for name in names:
        component_tables.EXPERIMENTS.check(name)
    return [component_tables.EXPERIMENTS.create(name) for name in dict.fromkeys(names)]


def run(
    experiments: Sequence[Experiment], request: Request, command: Sequence[str], console: Console | None = None
) -> int:
    """Executes experiments in this order and writes their reports.

    Args:
        experiments: Experiments.
        request: Options of the command.
        command: Command line as typed, for the reports.
        console: Where to print; None = standard output.

    Returns:
        0 when everything ran, whatever the verdicts; 1 when a run failed or, with `check`, a claim is refuted.

    Raises:
        UsageError: Matplotlib is missing, or the folder cannot be used. No run was started.
        Interrupted, KeyboardInterrupt: A signal came; finished runs are kept.
    """
    plots.check_available()
    out_dir = request.out_dir or _FOLDERS[request.quick]
    console = console or Console()
    origin = provenance(command)
    with lock_folder(out_dir), _raising_on_sigterm(), create_progress(console, plain=request.plain) as progress:
        all_planned = [
            prepare(
                experiment,
                out_dir,
                quick=request.quick,
                num_seeds=request.num_seeds,
                keep_runs=request.keep_runs,
                commit=committed(origin),
            )
            for experiment in experiments
        ]
        _announce(all_planned, progress)
        try:
            concluded = [_conclude(planned, progress, origin) for planned in all_planned]
        except (KeyboardInterrupt, Interrupted):
            progress.note("interrupted: finished runs are kept; the same command continues from here", style="yellow")
            raise
        names = dict.fromkeys(
            [*component_tables.EXPERIMENTS.names(), *(planned.experiment.name for planned in all_planned)]
        )
        index.write(out_dir, index.read(out_dir, list(names)), origin)
    _show(concluded, out_dir, console)
    return _exit_code(concluded, request)


def _announce(all_planned: Sequence[PlannedExperiment], progress: Progress) -> None:
    progress.plan([run for planned in all_planned for run in planned.missing])
    for planned in all_planned:
        if planned.finished:
            progress.note(
                f"{planned.experiment.name}: {len(planned.finished)} of {len(planned.runs)} runs are there already"
            )
        for remark in planned.remarks:
            progress.note(f"{planned.experiment.name}: {remark}")
        if planned.old_versions:
            progress.note(
                f"{planned.experiment.name}: some of them measured by other code: {', '.join(planned.old_versions)}"
            )


def _conclude(
    planned: PlannedExperiment, progress: Progress, origin: Mapping[str, Any]
) -> tuple[Conclusion, list[JudgedClaim]]:
    executed = execute(planned, progress)
    try:
        return report.write(planned, executed, origin)
    except Exception:  # noqa: BLE001 - a failed analysis must not lose hours of other experiments' runs
        text = traceback.format_exc()
        progress.note(f"{planned.experiment.name}: its runs are kept, but the report failed:\n{text}", style="bold red")
        conclusion = report.conclude(planned, executed, [], "report")
        report.save_conclusion(planned, conclusion)
        return conclusion, []


def _show(
    concluded: Sequence[tuple[Conclusion, Sequence[JudgedClaim]]], out_dir: pathlib.Path, console: Console
) -> None:
    console.print()
    for conclusion, checked in concluded:
        console.print(Text(f"{conclusion.name}: {conclusion.verdict}", style="bold"), soft_wrap=True)
        for one in checked:
            text = Text(f"  {one.finding.value:<{_FINDING_WIDTH}}  ", style=_STYLES[one.finding])
            kind = "" if one.claim.kind is ClaimKind.LITERATURE else f" ({one.claim.kind.value})"
            console.print(
                text.append(f"{one.claim.sentence}{kind}: {one.text}", style="not dim default"), soft_wrap=True
            )
        if conclusion.contended:
            names = ", ".join(conclusion.contended)
            console.print(Text(f"  times not comparable: {names}", style="yellow"), soft_wrap=True)
    console.print(Text(f"files in {out_dir}; open {out_dir / 'index.html'}"), soft_wrap=True)


def _exit_code(concluded: Sequence[tuple[Conclusion, Sequence[JudgedClaim]]], request: Request) -> int:
    if any(conclusion.failures for conclusion, _ in concluded):
        return EXIT_FAILED
    is_refuted = any(one.finding is ClaimFinding.REFUTED for _, checked in concluded for one in checked)
    return EXIT_FAILED if request.check and is_refuted else EXIT_DONE


@contextlib.contextmanager
def _raising_on_sigterm() -> Iterator[None]:
    """Turns SIGTERM into `Interrupted`, so that the processes of a run are ended first."""

    def handle(signum: int, _frame: FrameType | None) -> None:
        raise Interrupted(signum)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)

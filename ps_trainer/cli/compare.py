"""`ps_trainer compare` and `plot`: plots and figures of runs, as a page and PNG files."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Sequence

from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli.command_wrapper import run_main
from ps_trainer.cli.help import CommandHelp
from ps_trainer.errors import EXIT_DONE, RunError, UsageError
from ps_trainer.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutFlags:
    """The folder of the files."""

    out_dir: str | None = option(None, "folder of the page")


_ABOUT_RUNS = """
RUN is the --logdir of a run, which may still train. A run with --step_log gives the finest curves.

Examples, rates, mean staleness and bytes count all joins of the workers, also steps that a rollback
undid. The staleness histogram is in summary.json only, which counts since the workers last joined;
the page and the printed table say so where this is less than the run."""
COMPARE_HELP = CommandHelp(
    usage=("ps_trainer compare RUN RUN … [--out_dir=DIR]",),
    text="""Compares runs: loss and test metrics by step, by examples and by time, throughput, staleness, dropped
gradients, bytes, and the faults that disturbed them. Writes one HTML page and a PNG file of each
plot.
"""
    + _ABOUT_RUNS,
    examples=(
        ("ps_trainer compare runs/async runs/sync", "write the page to comparison/index.html"),
        ("ps_trainer compare runs/async runs/sync --out_dir=runs/page", "write it into another folder"),
    ),
    flags=(OutFlags,),
    own_texts={"out_dir": "folder of the page; none = comparison/"},
)
PLOT_HELP = CommandHelp(
    usage=("ps_trainer plot RUN [--out_dir=DIR]",),
    text="""Draws one run: loss and test metrics by step, by examples and by time, throughput, staleness, dropped
gradients, bytes, and the faults that disturbed it. Writes one HTML page and a PNG file of each
plot.
"""
    + _ABOUT_RUNS,
    examples=(
        ("ps_trainer plot runs/async", "write the page to runs/async/plots/index.html"),
        ("ps_trainer plot runs/async --out_dir=runs/page", "write it into another folder"),
    ),
    flags=(OutFlags,),
    own_texts={"out_dir": "folder of the page; none = <logdir>/plots/"},
)


def main_compare(argv: Sequence[str]) -> int:
    """Compares runs; returns the exit code."""
    return run_main(lambda: _run(argv, "compare", COMPARE_HELP))


def main_plot(argv: Sequence[str]) -> int:
    """Draws one run; returns the exit code."""
    return run_main(lambda: _run(argv, "plot", PLOT_HELP))


def _run(argv: Sequence[str], command: str, command_help: CommandHelp) -> int:
    if any(argument.lstrip("-").partition("=")[0] == "logdir" for argument in argv[1:] if argument.startswith("-")):
        example = "ps_trainer plot runs/first" if command == "plot" else "ps_trainer compare runs/async runs/sync"
        raise UsageError(f"{command} has no flag --logdir; give the folder of a run without a flag: {example}")
    folders, flags = _split(argv)
    (out,) = flags_lib.parse([argv[0], *flags], command_help, OutFlags).groups
    if command == "plot" and len(folders) != 1:
        raise UsageError(f"plot takes one run, got {len(folders)}; to see several, use compare")
    if command == "compare" and len(folders) < 2:
        raise UsageError(f"compare takes at least two runs, got {len(folders)}; to see one, use plot")

    # Imported here, because NumPy and matplotlib would delay every --help.
    from ps_trainer.comparison import page, plots, recorded_run

    plots.check_available()
    default = pathlib.Path(folders[0]) / "plots" if command == "plot" else pathlib.Path("comparison")
    out_dir = pathlib.Path(out.out_dir) if out.out_dir else default
    runs = recorded_run.read_all([pathlib.Path(folder) for folder in folders])
    _check_no_file(out_dir)
    try:
        path = page.write(runs, out_dir)
    except OSError as error:
        reason = f"{error.filename or out_dir}: {error.strerror or error}"
        raise RunError(f"the page cannot be written: {reason}; give another --out_dir") from error
    results = {"": [run.name for run in runs], **page.results(runs)}
    widths = [max(20, *map(len, column)) for column in zip(*results.values(), strict=True)]
    for name, row in results.items():
        print(f"{name:24}", *(f"{value:>{width}}" for value, width in zip(row, widths, strict=True)))
    for note in page.notes(runs):
        print(note)
    print(f"{path} and a PNG file of each plot beside it")
    return EXIT_DONE


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the folders and the flags of a command, which may stand in any order."""
    folders: list[str] = []
    flags: list[str] = []
    for before, argument in itertools.pairwise(argv):
        is_value = before.startswith("-") and before.lstrip("-") in ("out_dir", "flagfile")
        (flags if is_value or argument.startswith("-") else folders).append(argument)
    return folders, flags


def _check_no_file(out_dir: pathlib.Path) -> None:
    """Raises UsageError if a file has the name of the folder, or of a folder above it."""
    for path in (out_dir, *out_dir.parents):
        if path.exists() and not path.is_dir():
            raise UsageError(f"the page needs the folder {out_dir}, but {path} is a file; give another --out_dir")

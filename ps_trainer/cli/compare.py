"""`python -m ps_trainer compare` and `plot`: curves and figures of runs, as a page and PNG files."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Sequence

from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli.command_wrapper import run_main
from ps_trainer.errors import EXIT_DONE, RunError, UsageError
from ps_trainer.options import option

_COMPARE = """python -m ps_trainer compare RUN RUN … [--out_dir=DIR]

Compares runs: loss and test metrics by step, by examples and by time, throughput, staleness, dropped gradients,
bytes, and the faults that disturbed them. Writes one HTML page and a PNG file of each figure.

RUN is the --logdir of a run, which may still train. A run with --step_log gives the finest curves."""
_PLOT = """python -m ps_trainer plot RUN [--out_dir=DIR]

Draws one run: loss and test metrics by step, by examples and by time, throughput, staleness, dropped gradients,
bytes, and the faults that disturbed it. Writes one HTML page and a PNG file of each figure.

RUN is the --logdir of a run, which may still train. A run with --step_log gives the finest curves."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutFlags:
    """Where the files go."""

    out_dir: str | None = option(None, "folder of the page; none = comparison/ or, for plot, <logdir>/plots/")


def main_compare(argv: Sequence[str]) -> int:
    """Compares runs; returns the exit code."""
    return run_main(lambda: _run(argv, "compare", _COMPARE))


def main_plot(argv: Sequence[str]) -> int:
    """Draws one run; returns the exit code."""
    return run_main(lambda: _run(argv, "plot", _PLOT))


def _run(argv: Sequence[str], command: str, usage: str) -> int:
    folders = list(itertools.takewhile(lambda argument: not argument.startswith("-"), argv[1:]))
    (out,) = flags_lib.parse([argv[0], *argv[1 + len(folders) :]], usage, OutFlags).groups
    if command == "plot" and len(folders) != 1:
        raise UsageError(f"plot takes one run, got {len(folders)}; to see several, use compare")
    if command == "compare" and len(folders) < 2:
        raise UsageError(f"compare takes at least two runs, got {len(folders)}; to see one, use plot")

    # Imported here, because NumPy and matplotlib would delay every --help.
    from ps_trainer.comparison import figures, page, recorded_run

    figures.check_available()
    runs = recorded_run.read_all([pathlib.Path(folder) for folder in folders])
    default = pathlib.Path(folders[0]) / "plots" if command == "plot" else pathlib.Path("comparison")
    try:
        path = page.write(runs, pathlib.Path(out.out_dir) if out.out_dir else default)
    except OSError as error:
        raise RunError(f"the page cannot be written: {error}; give another --out_dir") from error
    for name, row in page.results(runs).items():
        print(f"{name:24}", *(f"{value:>20}" for value in row))
    print(f"{path} and a PNG file of each figure beside it")
    return EXIT_DONE

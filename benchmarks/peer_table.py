"""Prints the tables of other systems, from results of `benchmarks.step_rate --peers`.

    python -m benchmarks.peer_table benchmarks/results/peers.csv             # the table of benchmarks/README.md
    python -m benchmarks.peer_table --brief benchmarks/results/peers.csv     # the table of README.md

Several files may be given, such as those of calls with different workloads. Of two rows for the same workload and
contender, the later one counts. Rates are of all workers together.
"""

from __future__ import annotations

import argparse
import csv
import pathlib
import sys
from collections.abc import Mapping, Sequence

from benchmarks import arguments
from benchmarks.contenders import PEERS_MODE
from benchmarks.peer_contenders import BARE_OPS_LOOP, PEER_CONTENDERS, RAW_SOCKET, VARIANTS
from benchmarks.peer_workloads import PEER_WORKLOADS
from benchmarks.report import NOT_MEASURED
from ps_trainer.errors import EXIT_DONE

ResultLine = Mapping[str, str]

_RATES = ("steps_per_sec", "steps_per_sec_min", "steps_per_sec_max")
_COLUMNS = ("workload", "mode", "workers", "who", *_RATES, "cpu_secs_per_step")

BRIEF = {
    "async": "`async`",
    "colocated": "`async`, colocated",
    "stock": "TF1 script",
    "torch_ddp": "PyTorch DDP",
    "horovod": "Horovod",
    "paddle_ps": "Paddle ps",
}
"""Contenders of the brief table, with the heads of their columns."""


def main(argv: Sequence[str]) -> int:
    """Prints the table; returns 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peer_table", description=__doc__.splitlines()[0], allow_abbrev=False
    )
    parser.add_argument(
        "files", type=arguments.csv_file(_COLUMNS), nargs="+", help="results.csv of one call or several"
    )
    parser.add_argument("--brief", action="store_true", help="median rates of a few contenders only")
    flags = parser.parse_args(argv)
    lines = read(flags.files)
    if not lines:
        parser.error(f"no results of step_rate --peers in {', '.join(map(str, flags.files))}")
    print((brief_table if flags.brief else table)(lines), end="")
    return EXIT_DONE


def read(paths: Sequence[pathlib.Path]) -> dict[tuple[str, str], ResultLine]:
    """Reads the lines with peers, by workload and contender."""
    found: dict[tuple[str, str], ResultLine] = {}
    for path in paths:
        with path.open(newline="", encoding="utf-8") as file:
            for line in csv.DictReader(file):
                if line["mode"] == PEERS_MODE:
                    found[line["workload"], line["who"]] = line
    return found


def table(lines: Mapping[tuple[str, str], ResultLine]) -> str:
    """Returns the table in Markdown: a row for each workload, and a column for each contender.

    Args:
        lines: Lines by workload and contender.
    """
    measured = {contender for _, contender in lines}
    shown = [contender for contender in PEER_CONTENDERS if contender != RAW_SOCKET and contender in measured]
    own = [contender for contender in ("async", *VARIANTS) if contender in measured]
    compared = [(contender, "best peer", "ratio_to_best_peer") for contender in own]
    at_engine = ["async", *({"async_one_step"} & measured)]
    compared += [(contender, "bare ops", "share_of_engine") for contender in at_engine]
    if BARE_OPS_LOOP in measured:
        compared.append(("async", "bare ops in a loop", "share_of_loop"))
    head = [
        "workload",
        *(f"`{contender}`" for contender in shown),
        *(f"`{contender}` ÷ {what}" for contender, what, _ in compared),
    ]
    rows = [head, ["---", *["--:"] * (len(head) - 1)]]
    for workload in _workloads(lines):
        of_workload = {contender: lines[workload, contender] for contender in shown if (workload, contender) in lines}
        cells = [_cell(of_workload[contender]) if contender in of_workload else NOT_MEASURED for contender in shown]
        ratios = [_ratio(of_workload.get(contender, {}).get(ratio, "")) for contender, _, ratio in compared]
        rows.append([f"{PEER_WORKLOADS[workload].what} (`{workload}`)", *cells, *ratios])
    return _markdown(rows)


def brief_table(lines: Mapping[tuple[str, str], ResultLine]) -> str:
    """Returns a table in Markdown of the median steps per second of all workers.

    Args:
        lines: Lines by workload and contender.
    """
    heads = {contender: head for contender, head in BRIEF.items() if any(who == contender for _, who in lines)}
    rows = [["steps/s of both workers", *heads.values()], ["---", *["--:"] * len(heads)]]
    for workload in _workloads(lines):
        of_contenders = [lines.get((workload, contender)) for contender in heads]
        rates = [NOT_MEASURED if line is None else _number(_rates(line)[0]) for line in of_contenders]
        rows.append([PEER_WORKLOADS[workload].what, *rates])
    return _markdown(rows)


def _workloads(lines: Mapping[tuple[str, str], ResultLine]) -> list[str]:
    """Returns the measured workloads, in the order of `PEER_WORKLOADS`."""
    return [workload for workload in PEER_WORKLOADS if any(name == workload for name, _ in lines)]


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _rates(line: ResultLine) -> list[float]:
    """Returns median, lowest and highest rate of all workers, in steps per second."""
    return [float(line[rate]) * int(line["workers"]) for rate in _RATES]


def _cell(line: ResultLine) -> str:
    """Returns the steps per second of all workers with their spread, and CPU time per step."""
    rate, lowest, highest = map(_number, _rates(line))
    return f"{rate} ({lowest}–{highest}), {1000 * float(line['cpu_secs_per_step']):.1f} ms"


def _number(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 20 else f"{rate:.1f}"


def _ratio(text: str) -> str:
    return f"{float(text):.2f}" if text else NOT_MEASURED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

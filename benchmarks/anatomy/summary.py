"""Prints one line for each path, from results of `benchmarks.anatomy`.

    python -m benchmarks.anatomy.summary benchmarks/results/anatomy*.csv     # the table of benchmarks/README.md

Several files may be given, such as one of `--steps_per_call=1`. A path has the lines of the last file that contains it
with the same number of steps in a call.
"""

from __future__ import annotations

import argparse
import csv
import pathlib
import sys
from collections.abc import Mapping, Sequence

from benchmarks import arguments
from benchmarks.anatomy.rows import PS_TASKS, WORKERS
from benchmarks.report import NOT_MEASURED
from ps_trainer.errors import EXIT_DONE

ResultLine = Mapping[str, str]
PathKey = tuple[str, str]
"""A path, and the number of steps in a call; this is empty for a limit."""

_COLUMNS = ("path", "what", "task", "to", "per_step", "bytes_per_step", "micros_per_step")
_COUNTS = ("messages to, from a worker", "kB to, from it", "kB copied", "ops of it, of others")
_TIMES = ("CPU ms of workers, ps tasks", "steps/s of a worker")


def main(argv: Sequence[str]) -> int:
    """Prints the table; returns 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.anatomy.summary", description=__doc__.splitlines()[0], allow_abbrev=False
    )
    parser.add_argument(
        "files", type=arguments.csv_file(_COLUMNS), nargs="+", help="results.csv of one call or several"
    )
    print(table(read(parser.parse_args(argv).files)), end="")
    return EXIT_DONE


def read(paths: Sequence[pathlib.Path]) -> dict[PathKey, list[ResultLine]]:
    """Reads the lines of each path and number of steps in a call; paths in the order of their first appearance."""
    found: dict[PathKey, list[ResultLine]] = {}
    for path in paths:
        of_file: dict[PathKey, list[ResultLine]] = {}
        with path.open(newline="", encoding="utf-8") as file:
            for line in csv.DictReader(file):
                of_file.setdefault((line["path"], line["steps_per_call"]), []).append(line)
        found |= of_file
    names = list(dict.fromkeys(name for name, _ in found))
    return {key: found[key] for key in sorted(found, key=lambda key: names.index(key[0]))}


def table(paths: Mapping[PathKey, Sequence[ResultLine]]) -> str:
    """Returns the table in Markdown: what a step of a worker makes, and its CPU time.

    Args:
        paths: Lines by key. A limit, such as "bare ops/deep", has only times; results of `--cpu_secs=0` have none.
    """
    has_times = any(line["what"] == "CPU" for lines in paths.values() for line in lines)
    head = ["path", "steps in a call", *_COUNTS, *(_TIMES if has_times else ())]
    rows = [head, ["---", *["--:"] * (len(head) - 1)]]
    for (path, steps), lines in paths.items():
        times = _times(lines) if has_times else ()
        rows.append([f"`{path}`", steps or NOT_MEASURED, *_counts(lines), *times])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _counts(lines: Sequence[ResultLine]) -> list[str]:
    worker = next((line["task"] for line in lines if line["what"] == "call"), None)
    if worker is None:
        return [NOT_MEASURED] * len(_COUNTS)
    ways = ({"to": worker}, {"task": worker})
    messages = [_sum(lines, "per_step", what="message", **way) for way in ways]
    sizes = [_sum(lines, "bytes_per_step", what="message", **way) / 1e3 for way in ways]
    copied = _sum(lines, "bytes_per_step", what="copy") / 1e3
    own_ops = _sum(lines, "per_step", what="ops", task=worker)
    other_ops = _sum(lines, "per_step", what="ops") - own_ops
    return [
        ", ".join(f"{round(number, 2):g}" for number in messages),
        ", ".join(f"{size:,.0f}" for size in sizes),
        f"{copied:,.0f}",
        f"{own_ops:.0f}, {other_ops:.0f}",
    ]


def _times(lines: Sequence[ResultLine]) -> list[str]:
    if all(line["what"] != "CPU" for line in lines):
        return [NOT_MEASURED] * len(_TIMES)
    cpu = [_sum(lines, "micros_per_step", what="CPU", task=task) / 1e3 for task in (WORKERS, PS_TASKS)]
    return [", ".join(f"{millis:.1f}" for millis in cpu), f"{_sum(lines, 'per_step', what='rate'):,.0f}"]


def _sum(lines: Sequence[ResultLine], field: str, **wanted: str) -> float:
    """Returns the sum of a field over the lines that have these values."""
    chosen = [line for line in lines if all(line[name] == value for name, value in wanted.items())]
    return sum(float(line[field]) for line in chosen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

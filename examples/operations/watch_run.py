"""Says what is wrong with a run, from its metrics: `python watch_run.py LOGDIR [flags]`, once a minute from cron.

Exit code 0 and no output: every worker makes steps, or is done. Exit code 1: one line for each problem. Exit code 2: a
file is damaged or cannot be read or written, or a flag is wrong; standard error names it. With --textfile=PATH it also
writes the last figures of each worker for Prometheus' node exporter. Needs only Python.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

_TAIL_BYTES = 65_536  # enough for the last lines; the files grow for as long as the run
_GAUGES = ("global_step", "steps_per_sec", "examples_per_sec", "loss", "staleness_mean", "gradients_dropped")


def last_lines(path: pathlib.Path) -> list[dict[str, Any]]:
    """The last JSON lines of a file.

    Raises:
        OSError: The file cannot be read.
        ValueError: A line is damaged.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        lines = file.read().split(b"\n")
    # The first one may be cut off, and the last one may be half written.
    records = [json.loads(line.decode()) for line in lines[1 if size > _TAIL_BYTES else 0 : -1]]
    if not all(isinstance(record, dict) and {"kind", "wall_time"} <= record.keys() for record in records):
        raise ValueError("a line is not a JSON object with kind and wall_time")
    for name, kinds in (("wall_time", (int, float)), ("staleness_mean", (int, float)), ("state", str)):
        if not all(isinstance(record[name], kinds) for record in records if name in record):
            raise ValueError(f"the {name} of a line is of a wrong type")
    return records


def problems(task: str, lines: Sequence[dict[str, Any]], now: float, limits: argparse.Namespace) -> Iterator[str]:
    """Yields the faults of a task, in words."""
    told = [line for line in lines if line["kind"] in ("state", "train")]
    if not told:
        return
    state = told[-1].get("state", "")
    if state.startswith("failed") or told[-1].get("peer_failure"):
        yield f"{task}: {state}"
    # A ps task writes a line only when its state changes, so its silence means nothing.
    elif task.startswith("worker") and state != "done":
        silent_secs = now - told[-1]["wall_time"]
        if silent_secs > limits.max_silence_secs:
            yield f"{task}: no report for {silent_secs:.0f} s, last at global step {_last(told, 'global_step')}"
    staleness = _last(told, "staleness_mean")
    if limits.max_staleness is not None and staleness is not None and staleness > limits.max_staleness:
        yield f"{task}: mean staleness {staleness:.1f} exceeds {limits.max_staleness:g}"


def textfile(lines_of: dict[str, list[dict[str, Any]]]) -> str:
    """The last figures of each worker in Prometheus' text format."""
    text = []
    for name in (*_GAUGES, "wall_time"):
        values = {task: _last([s for s in lines if s["kind"] == "train"], name) for task, lines in lines_of.items()}
        samples = [f'ps_trainer_{name}{{task="{task}"}} {v}' for task, v in values.items() if v is not None]
        if samples:
            text += [f"# TYPE ps_trainer_{name} gauge", *samples]
    return "\n".join(text) + "\n"


def write_textfile(path: pathlib.Path, text: str) -> None:
    """Writes the file under another name and renames it, so that the exporter never reads half of it."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def main(argv: Sequence[str], now: float) -> int:
    """Checks one run; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logdir", type=pathlib.Path)
    parser.add_argument("--max_silence_secs", type=float, default=60.0, help="a multiple of --report_secs of the run")
    parser.add_argument("--max_staleness", type=float)
    parser.add_argument("--textfile", type=pathlib.Path)
    args = parser.parse_args(argv)
    files = sorted((args.logdir / "metrics").glob("*.jsonl"))
    lines_of: dict[str, list[dict[str, Any]]] = {}
    faults = []
    for path in files:
        lines_of[path.stem] = []
        try:
            lines_of[path.stem] = last_lines(path)
        except OSError as error:
            faults.append(f"{path} cannot be read ({error.strerror}); give this user the right to read it")
        except ValueError as error:
            faults.append(f"{path} is damaged ({error}); restore the file or remove the line")
    if args.textfile:
        try:
            write_textfile(args.textfile, textfile(lines_of))
        except OSError as error:
            faults.append(f"--textfile={args.textfile} cannot be written ({error.strerror}); give another file")
    found = [problem for task, lines in lines_of.items() for problem in problems(task, lines, now, args)]
    if not any(task.startswith("worker") for task in lines_of):
        found.append(f"no worker has written a line below {args.logdir}/metrics")
    print("".join(f"{problem}\n" for problem in found), end="")
    print("".join(f"{fault}\n" for fault in faults), end="", file=sys.stderr)
    return 2 if faults else 1 if found else 0


def _last(lines: Sequence[dict[str, Any]], name: str) -> Any:
    return next((line[name] for line in reversed(lines) if name in line), None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], time.time()))

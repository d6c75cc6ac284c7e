"""Trains for long while a task is killed every minute: do memory and open files of the tasks stay flat?

    python -m benchmarks.soak --help

What comes out is described in README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import functools
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import arguments, leftovers
from benchmarks.contenders import REPOSITORY
from ps_trainer.errors import EXIT_DONE, EXIT_FAILED, RunError
from ps_trainer.experiments.frame.provenance import origin_sentence, provenance
from ps_trainer.launch.command import OUTPUT_NAME, cpu_environment, local_command
from ps_trainer.launch.process import TaskProcess

NUM_PS = 2
NUM_WORKERS = 3
TASKS = (*(f"ps-{index}" for index in range(NUM_PS)), *(f"worker-{index}" for index in range(NUM_WORKERS)))
ROLES = {"ps": "ps-", "workers": "worker-", "launcher": "launcher"}

# A process that has just been started has not made its first steps; it says nothing about growth.
YOUNG_SECS = 20.0
# The shares of the measured time that are compared: the first and the last.
SHARE = 0.25
MOST_GROWTH = 0.05
_LAUNCHER = "launcher"
_END_SECS = 30.0
_MIB = 1024


class Sample(NamedTuple):
    """One look at one process.

    Attributes:
        secs: since the start of the soak.
        task: "ps-0", or "launcher".
        pid: of its process.
        age_secs: of that process, since it was first seen.
        rss_mib: resident memory; pages that tasks share, since they were forked, count for each.
        num_fds: open files.
    """

    secs: float
    task: str
    pid: int
    age_secs: float
    rss_mib: float
    num_fds: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Growth:
    """A figure of a role in the first and the last part of the soak: medians over all looks at its processes."""

    role: str
    figure: str
    first: float
    last: float

    @property
    def share(self) -> float:
        """By how much it has grown."""
        return self.last / self.first - 1.0


def main(argv: Sequence[str]) -> int:
    """Runs the soak; writes `samples.csv`, `results.json` and `results.md`.

    Args:
        argv: arguments, without the program's name.

    Returns:
        0, or 1 when something has grown, or the run is not as it should be.
    """
    plan = parse_plan(argv)
    plan.out_dir.mkdir(parents=True)
    signal.signal(signal.SIGTERM, arguments.exit_by_signal)
    origin = provenance(["python", "-m", "benchmarks.soak", *argv])
    logdir, temporary = plan.out_dir / "run", plan.out_dir / "tmp"
    logdir.mkdir()
    temporary.mkdir()
    samples, exit_code = soak(plan, logdir, temporary)
    grown = growth(samples, plan.warmup_secs)
    summary = json.loads((logdir / "summary.json").read_text()) if (logdir / "summary.json").exists() else {}
    problems = find_problems(
        grown, exit_code, leftovers.processes(logdir, _END_SECS), leftovers.files(logdir, temporary)
    )
    figures = {
        "steps": last_step(logdir),
        "kills": sum("missed" not in fault for fault in summary.get("faults", ())),
        "restarts": summary.get("restarts", {}),
        "samples": len(samples),
    }
    write(plan.out_dir, origin, samples, grown, figures, problems)
    print(plan.out_dir.joinpath("results.md").read_text(), end="")
    return EXIT_FAILED if problems else EXIT_DONE


def parse_plan(argv: Sequence[str]) -> argparse.Namespace:
    """The plan that the flags describe; ends the program on a wrong flag."""
    parser = arguments.create_parser("benchmarks.soak", __doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long")
    parser.add_argument("--kill_every_secs", type=float, default=60.0, help="seconds between two kills")
    parser.add_argument("--warmup_secs", type=float, default=120.0, help="left out at the start")
    parser.add_argument("--sample_secs", type=float, default=5.0, help="seconds between two looks")
    parser.add_argument("--roles", default="ps+worker+chief", help="whom to kill")
    parser.add_argument("--seed", type=int, default=0, help="of the kills")
    parser.add_argument("--update", default="async", help="rule")
    parser.add_argument("--model", default="softmax")
    arguments.add_out_dir(parser)
    plan = parser.parse_args(argv)
    if min(plan.minutes, plan.kill_every_secs, plan.sample_secs) <= 0 or plan.warmup_secs < 0:
        parser.error("--minutes, --kill_every_secs and --sample_secs must be more than 0, --warmup_secs 0 or more")
    if plan.warmup_secs >= plan.minutes * 60:
        parser.error(f"--warmup_secs={plan.warmup_secs:g} leaves nothing of --minutes={plan.minutes:g}")
    plan.out_dir = arguments.new_folder(parser, plan.out_dir, "runs/soak")
    return plan


def flags_of(plan: argparse.Namespace, logdir: pathlib.Path) -> list[str]:
    """The flags of `python -m ps_trainer local`."""
    kills = max(1, int(plan.minutes * 60 / plan.kill_every_secs) - 1)
    return [
        f"--num_ps={NUM_PS}",
        f"--num_workers={NUM_WORKERS}",
        f"--model={plan.model}",
        "--dataset=digits",
        f"--update={plan.update}",
        "--max_steps=1000000000",
        "--save_checkpoint_secs=10",
        f"--fault=chaos:kills={kills},roles={plan.roles},seed={plan.seed},every_secs={plan.kill_every_secs:g}",
        f"--logdir={logdir}",
    ]


def soak(plan: argparse.Namespace, logdir: pathlib.Path, temporary: pathlib.Path) -> tuple[list[Sample], int]:
    """Trains until the time is over, then ends training by SIGTERM.

    Args:
        plan: as `parse_plan` gives it.
        logdir: existing folder of the run.
        temporary: existing folder for temporary files.

    Returns:
        All looks at all processes; the launcher's exit code.
    """
    launcher = TaskProcess(
        job_name=_LAUNCHER,
        task_index=0,
        command=local_command(flags_of(plan, logdir)),
        log_path=logdir / OUTPUT_NAME,
        env=cpu_environment({**os.environ, "TMPDIR": str(temporary)}),
        spawn=functools.partial(subprocess.Popen, cwd=REPOSITORY),
    )
    samples: list[Sample] = []
    first_seen: dict[int, float] = {}
    launcher.start()
    try:
        while launcher.poll() is None and launcher.elapsed_secs < plan.minutes * 60:
            for task, pid in processes_of(logdir, launcher.pid):
                age = launcher.elapsed_secs - first_seen.setdefault(pid, launcher.elapsed_secs)
                with contextlib.suppress(OSError):  # it has just ended
                    samples.append(Sample(launcher.elapsed_secs, task, pid, age, rss_mib(pid), num_fds(pid)))
            time.sleep(plan.sample_secs)
        return samples, launcher.exit_code if launcher.exit_code is not None else _end(launcher)
    finally:
        _end(launcher)


def processes_of(logdir: pathlib.Path, launcher_pid: int) -> Iterator[tuple[str, int]]:
    """Name and pid of each task of the run, by the name that `top` shows, and of its launcher."""
    yield _LAUNCHER, launcher_pid
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            name = (process / "comm").read_text().strip()
            if name in TASKS and os.fsencode(str(logdir)) in (process / "cmdline").read_bytes():
                yield name, int(process.name)
        except OSError:
            continue  # another user's, or it has just ended


def rss_mib(pid: int) -> float:
    """Resident memory of a process in MiB; OSError if it has ended."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / _MIB
    raise ProcessLookupError(pid)


def num_fds(pid: int) -> int:
    """Number of a process's open files; OSError if it has ended."""
    return len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


def growth(samples: Sequence[Sample], warmup_secs: float) -> list[Growth]:
    """How memory and open files of each role have changed; empty without samples in both parts.

    Args:
        samples: all looks.
        warmup_secs: left out.
    """
    old = [sample for sample in samples if sample.secs >= warmup_secs and sample.age_secs >= YOUNG_SECS]
    if not old:
        return []
    start, end = old[0].secs, old[-1].secs
    part = SHARE * (end - start)
    found = []
    for role, prefix in ROLES.items():
        first = [sample for sample in old if sample.task.startswith(prefix) and sample.secs <= start + part]
        last = [sample for sample in old if sample.task.startswith(prefix) and sample.secs >= end - part]
        if first and last:
            for figure in ("rss_mib", "num_fds"):
                medians = [statistics.median(getattr(sample, figure) for sample in some) for some in (first, last)]
                found.append(Growth(role=role, figure=figure, first=medians[0], last=medians[1]))
    return found


def find_problems(grown: Sequence[Growth], exit_code: int, orphans: Sequence[str], left: Sequence[str]) -> list[str]:
    """What is not as it should be, in words."""
    problems = [
        f"{one.figure} of {one.role} {one.first:.1f} -> {one.last:.1f} ({100 * one.share:+.1f} %)"
        for one in grown
        if one.share > MOST_GROWTH
    ]
    if not grown:
        problems.append("no process was old enough to be looked at")
    if exit_code != 128 + signal.SIGTERM:
        problems.append(f"training ended by itself, with exit code {exit_code}")
    return problems + [f"still runs: {orphan}" for orphan in orphans] + [f"left: {path}" for path in left]


def last_step(logdir: pathlib.Path) -> int:
    """The largest global_step that a worker has reported."""
    steps = [0]
    for path in (logdir / "metrics").glob("worker-*.jsonl"):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                steps.append(json.loads(line).get("global_step") or 0)
    return max(steps)


def write(
    folder: pathlib.Path,
    origin: Mapping[str, Any],
    samples: Sequence[Sample],
    grown: Sequence[Growth],
    figures: Mapping[str, Any],
    problems: Sequence[str],
) -> None:
    """Writes the three files."""
    with (folder / "samples.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Sample._fields)
        writer.writerows(samples)
    growths = [dataclasses.asdict(one) | {"share": one.share} for one in grown]
    results = {"provenance": origin, **figures, "growth": growths, "problems": list(problems)}
    (folder / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    lines = ["| role | figure | first part | last part | growth |", "|---|---|--:|--:|--:|"]
    lines += [f"| {g.role} | {g.figure} | {g.first:.1f} | {g.last:.1f} | {100 * g.share:+.1f} % |" for g in grown]
    restarts = ", ".join(f"{task} {count}" for task, count in figures["restarts"].items()) or "none"
    lines += ["", f"{figures['steps']:,} steps, {figures['kills']} kills; restarts: {restarts}."]
    lines += [f"Problem: {problem}." for problem in problems]
    (folder / "results.md").write_text("\n".join([*lines, "", origin_sentence(origin), ""]))


def _end(launcher: TaskProcess) -> int:
    """Asks the launcher to end, and kills it if it does not; its exit code."""
    launcher.terminate()
    until = time.monotonic() + _END_SECS
    while launcher.poll() is None:
        if time.monotonic() > until:
            launcher.kill()
        time.sleep(0.05)
    return launcher.exit_code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except RunError as error:
        sys.exit(f"error: {error}")

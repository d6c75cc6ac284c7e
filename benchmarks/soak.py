"""Trains for an hour while a task is killed every minute: do memory and open files of the tasks stay constant?

    python -m benchmarks.soak --help

README.md describes the results.
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
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks import arguments, disturbed_run
from benchmarks.process_memory import rss_mib
from benchmarks.report import Report, ResultColumn, Row
from ps_trainer.errors import RunError
from ps_trainer.launch.command import OUTPUT_NAME, cpu_environment, local_command
from ps_trainer.launch.process import TaskProcess

NUM_PS = 2
NUM_WORKERS = 3
TASKS = (*(f"ps-{index}" for index in range(NUM_PS)), *(f"worker-{index}" for index in range(NUM_WORKERS)))
ROLES = {"ps": "ps-", "workers": "worker-", "launcher": "launcher"}

# A younger process may not have made its first steps, so its memory says nothing about growth.
YOUNG_SECS = 20.0
# The first and the last part of the time with samples of a role are compared; each is this share of it.
SHARE = 0.25
MAX_GROWTH = 0.05
_LAUNCHER = "launcher"
_TASK = re.compile(r"(ps|worker)-\d+")
_END_SECS = 30.0


class Sample(NamedTuple):
    """Memory and open files of one process at one time.

    Attributes:
        secs: Seconds since the start of the soak.
        task: "ps-0", or "launcher".
        pid: Process id of the task.
        age_secs: Seconds since the process was first seen.
        rss_mib: Resident memory; pages that forked tasks share count for each task.
        num_fds: Number of open files.
    """

    secs: float
    task: str
    pid: int
    age_secs: float
    rss_mib: float
    num_fds: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class GrowthRow(Row):
    """The change of a role's figure from the first to the last part of the soak.

    Attributes:
        role: Key of `ROLES`.
        figure: Field of `Sample`.
        first: Median over all samples of the role's processes in the first part.
        last: Median over all samples of the role's processes in the last part.
        share: Relative growth.
    """

    COLUMNS = (
        ResultColumn("role", "role"),
        ResultColumn("figure", "figure"),
        ResultColumn("first part", "first", ".1f"),
        ResultColumn("last part", "last", ".1f"),
        ResultColumn("growth, %", lambda row: 100 * row.share, "+.1f"),
    )

    role: str
    figure: str
    first: float
    last: float
    share: float


def main(argv: Sequence[str]) -> int:
    """Runs the soak; writes `samples.csv` beside the report.

    Args:
        argv: Arguments, without the program's name.

    Returns:
        0, or 1 when a figure grew too much or something else is wrong with the run.
    """
    plan = parse_plan(argv)
    report = Report("benchmarks.soak", argv, plan.out_dir, ["growth"])
    samples: list[Sample] = []
    logdir = plan.out_dir / "run"
    run = functools.partial(train_and_sample, samples, plan.sample_secs)
    done = disturbed_run.train(flags_of(plan), logdir, plan.minutes * 60, run)
    with (plan.out_dir / "samples.csv").open("w", newline="") as file:
        csv.writer(file).writerows([Sample._fields, *samples])
    grown = growth(samples, plan.warmup_secs)
    problems = find_problems(grown) + done.problems
    restarts = done.summary.get("restarts", {})
    report.figures = {
        "steps": last_step(logdir),
        "kills": done.kills,
        "restarts": restarts,
        "samples": len(samples),
        "problems": problems,
    }
    counts = ", ".join(f"{task} {count}" for task, count in restarts.items()) or "none"
    report.notes = [f"{report.figures['steps']:,} steps, {done.kills} kills; restarts: {counts}."]
    report.notes += [f"Problem: {problem}." for problem in problems]
    for row in grown:
        report.add(row)
    return report.finish(has_failed=bool(problems))


def parse_plan(argv: Sequence[str]) -> argparse.Namespace:
    """Returns the plan that the flags describe; ends the program on a wrong flag."""
    parser = arguments.create_parser("benchmarks.soak", __doc__)
    parser.add_argument("--minutes", type=arguments.secs, default=60.0, help="length of the soak")
    parser.add_argument("--kill_every_secs", type=arguments.secs, default=60.0, help="seconds between two kills")
    parser.add_argument("--warmup_secs", type=float, default=120.0, help="time at the start that does not count")
    parser.add_argument("--sample_secs", type=arguments.secs, default=5.0, help="seconds between two samples")
    parser.add_argument("--roles", default="ps+worker+chief", help="roles of the tasks that may be killed")
    parser.add_argument("--seed", type=int, default=0, help="seed of the kills")
    parser.add_argument("--update", default="async", help="update rule")
    parser.add_argument("--model", default="softmax", help="model to train")
    parser.add_argument("--step_ms", type=float, default=0.0, help="wait in each step, which leaves cores to others")
    arguments.add_out_dir(parser)
    plan = parser.parse_args(argv)
    if not 0 <= plan.warmup_secs < plan.minutes * 60:
        parser.error(f"--warmup_secs={plan.warmup_secs:g} must be 0 or more and end within --minutes={plan.minutes:g}")
    plan.out_dir = arguments.new_folder(parser, plan.out_dir, "runs/soak")
    return plan


def flags_of(plan: argparse.Namespace) -> list[str]:
    """Returns the flags of `ps_trainer local`, without `--logdir`."""
    # No kill at the very end, where the run would be ended during the recovery.
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
        *([f"--straggler=det:mean_ms={plan.step_ms:g}"] if plan.step_ms else []),
    ]


def train_and_sample(
    samples: list[Sample],
    sample_secs: float,
    flags: Sequence[str],
    logdir: pathlib.Path,
    deadline_secs: float,
    *,
    cwd: pathlib.Path,
    environ: Mapping[str, str],
) -> float:
    """Trains until the time is over, then ends training by SIGTERM.

    Args:
        samples: List that receives all samples of all processes.
        sample_secs: Seconds between two samples of a process.
        flags: Flags of `ps_trainer local`, without `--logdir`.
        logdir: Folder of the run, which this function makes.
        deadline_secs: Time after which training is ended.
        cwd: Folder to start from.
        environ: Environment of the launcher.

    Returns:
        Seconds from the start of the launcher to its end.

    Raises:
        RunError: Training ended before the deadline, or not by SIGTERM.
    """
    logdir.mkdir(parents=True)
    launcher = TaskProcess(
        job_name=_LAUNCHER,
        task_index=0,
        command=local_command([*flags, f"--logdir={logdir}"]),
        log_path=logdir / OUTPUT_NAME,
        env=cpu_environment(environ),
        spawn=functools.partial(subprocess.Popen, cwd=cwd),
    )
    first_seen: dict[int, float] = {}
    launcher.start()
    try:
        while launcher.poll() is None and launcher.pid is not None and launcher.elapsed_secs < deadline_secs:
            for task, pid in processes_of(logdir, launcher.pid):
                age = launcher.elapsed_secs - first_seen.setdefault(pid, launcher.elapsed_secs)
                with contextlib.suppress(OSError):  # it has just ended
                    samples.append(Sample(launcher.elapsed_secs, task, pid, age, rss_mib(pid), num_fds(pid)))
            time.sleep(sample_secs)
    finally:
        _end_launcher(launcher)
    # The soak has more steps than its time allows, so only the SIGTERM above may end it.
    if launcher.exit_code != 128 + signal.SIGTERM:
        raise RunError(f"training ended by itself, with exit code {launcher.exit_code}")
    return launcher.elapsed_secs


def processes_of(logdir: pathlib.Path, launcher_pid: int) -> Iterator[tuple[str, int]]:
    """Returns name and pid of each task of the run, by the name that `top` shows, and of its launcher."""
    yield _LAUNCHER, launcher_pid
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            # A forked task keeps the command line of its fork server, which ends with the folder. Only `comm` names the
            # task.
            name = (process / "comm").read_text().strip()
            if _TASK.fullmatch(name) and os.fsencode(str(logdir)) in (process / "cmdline").read_bytes():
                yield name, int(process.name)
        except OSError:
            continue  # another user's, or it has just ended


def num_fds(pid: int) -> int:
    """Returns the number of a process's open files; OSError if it has ended."""
    return len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


def growth(samples: Sequence[Sample], warmup_secs: float) -> list[GrowthRow]:
    """Returns the change of memory and open files of each role that has samples.

    Args:
        samples: All samples.
        warmup_secs: Time at the start that does not count.
    """
    old = [sample for sample in samples if sample.secs >= warmup_secs and sample.age_secs >= YOUNG_SECS]
    found = []
    for role, prefix in ROLES.items():
        of_role = [sample for sample in old if sample.task.startswith(prefix)]
        if not of_role:
            continue
        start, end = of_role[0].secs, of_role[-1].secs
        part = SHARE * (end - start)
        parts = [s for s in of_role if s.secs <= start + part], [s for s in of_role if s.secs >= end - part]
        for figure in ("rss_mib", "num_fds"):
            # A median, so that a few samples in the middle of a save or a restart do not count.
            first, last = (statistics.median(getattr(sample, figure) for sample in some) for some in parts)
            found.append(GrowthRow(role=role, figure=figure, first=first, last=last, share=last / first - 1.0))
    return found


def find_problems(grown: Sequence[GrowthRow]) -> list[str]:
    """Describes what is wrong with the growth, in words."""
    unseen = [role for role in ROLES if role not in {row.role for row in grown}]
    problems = [f"{role}: no process was old enough to be sampled; give more --minutes" for role in unseen]
    return problems + [
        f"{row.figure} of {row.role} {row.first:.1f} -> {row.last:.1f} ({100 * row.share:+.1f} %)"
        for row in grown
        if row.share > MAX_GROWTH
    ]


def last_step(logdir: pathlib.Path) -> int:
    """Returns the largest global_step that a worker has reported."""
    steps = [0]
    for path in (logdir / "metrics").glob("worker-*.jsonl"):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                steps.append(json.loads(line).get("global_step") or 0)
    return max(steps)


def _end_launcher(launcher: TaskProcess) -> None:
    """Asks the launcher to end, and kills it if it does not."""
    launcher.terminate()
    until = time.monotonic() + _END_SECS
    while launcher.poll() is None:
        if time.monotonic() > until:
            launcher.kill()
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

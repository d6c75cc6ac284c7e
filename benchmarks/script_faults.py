"""What becomes of a TF1 script in each fault, with TensorFlow's classes and with one import changed?

    python -m benchmarks.script_faults --help

README.md describes the cases.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks import arguments
from benchmarks.contenders import REPOSITORY
from benchmarks.report import Report, ResultColumn, Row
from ps_trainer.cluster.ports import pick_free_ports

SCRIPTS = {"stock": "examples/tf1_scripts/tutorial_2017.py", "drop_in": "examples/tf1_scripts/tutorial.py"}
NUM_STEPS = 150

_ENDLESS = "--train_steps=1000000000"
_BEGUN_SECS = 90.0  # for the first steps; TensorFlow's worker may sleep for 30 s before it begins
_LATE_SECS = 4.0
_ENVIRON = {
    "PYTHONUNBUFFERED": "1",
    "PS_TRAINER_START_TIMEOUT_SECS": "15",
    "PS_TRAINER_HEARTBEAT_TIMEOUT_SECS": "4",
    "PS_TRAINER_RECOVER_TIMEOUT_SECS": "0",
}
_STEPS = re.compile(r"worker \d(?: is done)?: (\d+) steps of its own")


class Cluster(NamedTuple):
    """The tasks of one run that were started, by name.

    Attributes:
        start: Function that starts a task: "ps-0", "worker-0", "worker-1".
        tasks: Processes by name.
        logs: Folder of their output, in files of the same names.
    """

    start: Callable[[str], subprocess.Popen[bytes]]
    tasks: dict[str, subprocess.Popen[bytes]]
    logs: pathlib.Path

    def start_all(self) -> None:
        """Starts every task."""
        for name in ("ps-0", "worker-0", "worker-1"):
            self.start(name)

    def steps(self, name: str) -> int | None:
        """The last number of steps that a worker has printed; None before the first."""
        found = _STEPS.findall((self.logs / name).read_text(errors="replace")) if name in self.tasks else []
        return int(found[-1]) if found else None

    def wait_for_steps(self, *names: str) -> None:
        """Waits until workers have made steps; gives up after a while, which the row then shows."""
        deadline = time.monotonic() + _BEGUN_SECS
        while any((self.steps(name) or 0) < 50 for name in names) and time.monotonic() < deadline:
            time.sleep(0.1)


class Case(NamedTuple):
    """A situation.

    Attributes:
        words: The situation, for the table.
        flags: Flags of the script.
        play: Function that starts the tasks and does what the case is about.
    """

    words: str
    flags: Sequence[str]
    play: Callable[[Cluster], None]


def _undisturbed(cluster: Cluster) -> None:
    cluster.start_all()
    cluster.wait_for_steps("worker-0")


def _with_a_late_worker(cluster: Cluster) -> None:
    cluster.start("ps-0")
    cluster.start("worker-0")
    time.sleep(_LATE_SECS)
    cluster.start("worker-1")
    cluster.wait_for_steps("worker-0")


def _signalled(name: str, signum: int) -> Callable[[Cluster], None]:
    def play(cluster: Cluster) -> None:
        cluster.start_all()
        # In stock asynchronous runs worker 1 often sleeps, so the chief's steps are enough.
        cluster.wait_for_steps("worker-0", *(["worker-1"] if name == "worker-1" else []))
        cluster.tasks[name].send_signal(signum)

    return play


_ASYNC = (f"--train_steps={NUM_STEPS}",)
_SYNC = (*_ASYNC, "--sync_replicas")
CASES = {
    "async": Case("asynchronous, undisturbed", _ASYNC, _undisturbed),
    "sync": Case("synchronous, undisturbed", _SYNC, _undisturbed),
    "late": Case(f"synchronous, worker 1 starts {_LATE_SECS:.0f} s late", _SYNC, _with_a_late_worker),
    "no_ps": Case("the ps task is missing", _ASYNC, lambda cluster: (cluster.start("worker-0"), None)[1]),
    "ps_killed": Case("the ps task is killed", (_ENDLESS,), _signalled("ps-0", signal.SIGKILL)),
    "worker_killed": Case(
        "synchronous, worker 1 is killed", (_ENDLESS, "--sync_replicas"), _signalled("worker-1", signal.SIGKILL)
    ),
    "worker_frozen": Case(
        "synchronous, worker 1 is frozen", (_ENDLESS, "--sync_replicas"), _signalled("worker-1", signal.SIGSTOP)
    ),
    "chief_term": Case("SIGTERM to the chief", (_ENDLESS, "--sync_replicas"), _signalled("worker-0", signal.SIGTERM)),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FaultRow(Row):
    """One case with one script.

    Attributes:
        case: Key of `CASES`.
        classes: Key of `SCRIPTS`.
        codes: Exit code of each task that was not killed or frozen, "running" where it had not ended.
        ended_secs: Seconds from the fault, or from the start, until the last of these tasks had ended; None if one had
            not at the limit.
        steps: Last number of own steps that each worker printed.
        checkpoint: Whether the chief's folder holds a checkpoint.
    """

    COLUMNS = (
        ResultColumn("situation", lambda row: CASES[row.case].words),
        ResultColumn("classes", "classes"),
        ResultColumn("exit codes", "codes"),
        ResultColumn("ended after, s", "ended_secs", ".1f"),
        ResultColumn("steps of each worker", "steps"),
        ResultColumn("checkpoint", lambda row: "yes" if row.checkpoint else "no"),
    )

    case: str
    classes: str
    codes: str
    ended_secs: float | None
    steps: str
    checkpoint: bool


def main(argv: Sequence[str]) -> int:
    """Runs every case with both scripts, one after the other; returns 0.

    Args:
        argv: Arguments, without the program's name.
    """
    plan = parse_plan(argv)
    report = Report("benchmarks.script_faults", argv, plan.out_dir)
    report.notes.append(f"A task that still ran {plan.limit_secs:.0f} s after the fault counts as running.")
    for case in plan.cases:
        for classes in SCRIPTS:
            report.add(run(case, classes, plan.out_dir / f"{case}-{classes}", plan.limit_secs))
    return report.finish()


def parse_plan(argv: Sequence[str]) -> argparse.Namespace:
    """The plan that the flags describe; ends the program on a wrong flag."""
    parser = arguments.create_parser("benchmarks.script_faults", __doc__)
    parser.add_argument("--cases", type=arguments.choices(CASES, all_as="all"), default="all", help="cases, or all")
    parser.add_argument("--limit_secs", type=arguments.secs, default=45.0, help="time for the tasks to end")
    arguments.add_out_dir(parser)
    plan = parser.parse_args(argv)
    plan.out_dir = arguments.new_folder(parser, plan.out_dir, "runs/script_faults")
    return plan


def run(case: str, classes: str, folder: pathlib.Path, limit_secs: float) -> FaultRow:
    """Plays one case with one script."""
    folder.mkdir()
    with started(SCRIPTS[classes], CASES[case].flags, folder) as cluster:
        CASES[case].play(cluster)
        hit_at = time.monotonic()
        victims = {"ps_killed": "ps-0", "worker_killed": "worker-1", "worker_frozen": "worker-1"}
        others = {name: task for name, task in cluster.tasks.items() if name != victims.get(case)}
        while any(task.poll() is None for task in others.values()) and time.monotonic() - hit_at < limit_secs:
            time.sleep(0.1)
        codes = {name: task.poll() for name, task in others.items()}
        ended_secs = None if None in codes.values() else time.monotonic() - hit_at
        return FaultRow(
            case=case,
            classes=classes,
            codes=", ".join(f"{name} {'running' if code is None else code}" for name, code in codes.items()),
            ended_secs=ended_secs,
            steps=", ".join(str(cluster.steps(name) or 0) for name in cluster.tasks if name.startswith("worker")),
            checkpoint=any((folder / "checkpoints").glob("model.ckpt-*.index")),
        )


@contextlib.contextmanager
def started(script: str, flags: Sequence[str], folder: pathlib.Path) -> Iterator[Cluster]:
    """A cluster whose tasks the body starts; on exit every process of it is killed."""
    ports = pick_free_ports(3)
    hosts = [f"--ps_hosts=localhost:{ports[0]}", f"--worker_hosts=localhost:{ports[1]},localhost:{ports[2]}"]
    # Only the save at a signal is of interest, so the script's own saves are as rare as can be.
    checkpoints = [f"--checkpoint_dir={folder / 'checkpoints'}", "--save_steps=1000000000"]
    environ: Mapping[str, str] = {**os.environ, **_ENVIRON}

    def start(name: str) -> subprocess.Popen[bytes]:
        job, index = name.split("-")
        command = [sys.executable, script, *hosts, f"--job_name={job}", f"--task_index={index}", *flags, *checkpoints]
        with (folder / name).open("wb") as log:
            tasks[name] = subprocess.Popen(
                command, cwd=REPOSITORY, env=environ, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        return tasks[name]

    tasks: dict[str, subprocess.Popen[bytes]] = {}
    try:
        yield Cluster(start, tasks, folder)
    finally:
        for task in tasks.values():
            task.kill()
            task.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

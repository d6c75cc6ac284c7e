"""Measures how a TF1 script ends in each fault, with TensorFlow's classes and with one import changed.

    python -m benchmarks.script_faults --help

README.md describes the cases.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
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

CLASSES = {"stock": "_2017", "drop_in": ""}
"""Origin of a script's classes; the value is the end of its file's name."""

NUM_STEPS = 150

_NUM_ENDLESS = 1_000_000_000
_NUM_LONG = 3000  # steps of asynchronous workers, which continue without a lost one, from its loss to the end
_BEGUN_SECS = 90.0  # for the first steps; TensorFlow's worker may sleep for 30 s before it begins
_LATE_SECS = 4.0
_ENVIRON = {
    "PYTHONUNBUFFERED": "1",
    "PS_TRAINER_START_TIMEOUT_SECS": "15",
    "PS_TRAINER_HEARTBEAT_TIMEOUT_SECS": "4",
    "PS_TRAINER_RECOVER_TIMEOUT_SECS": "0",
}
_STEPS = re.compile(r"(?:worker|chief) \d(?: is done)?: (\d+) local steps")


class ExampleScript(NamedTuple):
    """An example script, in `examples/tf1_scripts`.

    Attributes:
        folder_flag: Flag with the folder of its checkpoints.
        save_flags: Flags by which the script's own saves are as rare as can be: only those at a signal are of interest.
        sync_flags: Flags that make its training synchronous, if it can be.
        has_task_flags: Whether flags describe cluster and task; otherwise TF_CONFIG does.
    """

    folder_flag: str
    save_flags: Sequence[str] = ()
    sync_flags: Sequence[str] = ()
    has_task_flags: bool = True


SCRIPTS = {
    "tutorial": ExampleScript("--checkpoint_dir", ("--save_steps=1000000000",), ("--sync_replicas",)),
    "word2vec": ExampleScript("--checkpoint_dir", (), ("--sync_replicas",)),
    "estimator": ExampleScript("--model_dir", has_task_flags=False),
}


class StartedTasks(NamedTuple):
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
        """Returns the last number of steps that a worker has printed; None before the first."""
        found = _STEPS.findall((self.logs / name).read_text(errors="replace")) if name in self.tasks else []
        return int(found[-1]) if found else None

    def wait_for_steps(self, *names: str) -> None:
        """Waits until workers have made steps; gives up after a while, which the row then shows."""
        deadline = time.monotonic() + _BEGUN_SECS
        while any((self.steps(name) or 0) < 50 for name in names) and time.monotonic() < deadline:
            time.sleep(0.1)


class Situation(NamedTuple):
    """A situation.

    Attributes:
        words: The situation, for the table.
        play: Function that starts the tasks and does what the case is about.
        is_endless: Whether the script makes steps until the case ends it.
        is_sync: Whether the script trains synchronously, if it can.
    """

    words: str
    play: Callable[[StartedTasks], None]
    is_endless: bool = False
    is_sync: bool = True


def _undisturbed(cluster: StartedTasks) -> None:
    cluster.start_all()
    cluster.wait_for_steps("worker-0")


def _with_a_late_worker(cluster: StartedTasks) -> None:
    cluster.start("ps-0")
    cluster.start("worker-0")
    time.sleep(_LATE_SECS)
    cluster.start("worker-1")
    cluster.wait_for_steps("worker-0")


def _signalled(name: str, signum: int) -> Callable[[StartedTasks], None]:
    def play(cluster: StartedTasks) -> None:
        cluster.start_all()
        # In stock asynchronous runs worker 1 often sleeps, so the chief's steps are enough.
        cluster.wait_for_steps("worker-0", *(["worker-1"] if name == "worker-1" else []))
        cluster.tasks[name].send_signal(signum)

    return play


CASES = {
    "async": Situation("undisturbed", _undisturbed, is_sync=False),
    "sync": Situation("undisturbed", _undisturbed),
    "late": Situation(f"worker 1 starts {_LATE_SECS:.0f} s late", _with_a_late_worker),
    "no_ps": Situation("the ps task is missing", lambda cluster: (cluster.start("worker-0"), None)[1], is_sync=False),
    "ps_killed": Situation("the ps task is killed", _signalled("ps-0", signal.SIGKILL), is_endless=True, is_sync=False),
    "worker_killed": Situation("worker 1 is killed", _signalled("worker-1", signal.SIGKILL), is_endless=True),
    "worker_frozen": Situation("worker 1 is frozen", _signalled("worker-1", signal.SIGSTOP), is_endless=True),
    "chief_term": Situation("SIGTERM to the chief", _signalled("worker-0", signal.SIGTERM), is_endless=True),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FaultRow(Row):
    """One case with one script.

    Attributes:
        script: Key of `SCRIPTS`.
        case: Key of `CASES`.
        classes: Key of `CLASSES`.
        codes: Exit code of each task that was not killed or frozen, "running" where it had not ended.
        ended_secs: Seconds from the fault, or from the start, until the last of these tasks had ended; None if one had
            not at the limit.
        steps: Last number of own steps that each worker printed.
        checkpoint: Whether the chief's folder holds a checkpoint.
    """

    COLUMNS = (
        ResultColumn("script", "script"),
        ResultColumn("situation", lambda row: _words(row.script, row.case)),
        ResultColumn("classes", "classes"),
        ResultColumn("exit codes", "codes"),
        ResultColumn("ended after, s", "ended_secs", ".1f"),
        ResultColumn("steps of each worker", "steps"),
        ResultColumn("checkpoint", lambda row: "yes" if row.checkpoint else "no"),
    )

    script: str
    case: str
    classes: str
    codes: str
    ended_secs: float | None
    steps: str
    checkpoint: bool


def main(argv: Sequence[str]) -> int:
    """Runs every case with each script and class, one after the other; returns 0.

    Args:
        argv: Arguments, without the program's name.
    """
    plan = parse_plan(argv)
    report = Report("benchmarks.script_faults", argv, plan.out_dir)
    report.notes.append(f"A task that still ran {plan.limit_secs:.0f} s after the fault counts as running.")
    for script, case, classes in itertools.product(plan.scripts, plan.cases, plan.classes):
        report.add(run(script, case, classes, plan.out_dir / f"{script}-{case}-{classes}", plan.limit_secs))
    return report.finish()


def parse_plan(argv: Sequence[str]) -> argparse.Namespace:
    """Returns the plan that the flags describe; ends the program on a wrong flag."""
    parser = arguments.create_parser("benchmarks.script_faults", __doc__)
    parser.add_argument("--cases", type=arguments.choices(CASES, all_as="all"), default="all", help="cases, or all")
    parser.add_argument(
        "--scripts", type=arguments.choices(SCRIPTS, all_as="all"), default=["tutorial"], help="scripts, or all"
    )
    parser.add_argument(
        "--classes",
        type=arguments.choices(CLASSES, all_as="all"),
        default="all",
        help=f"origin of the classes: {', '.join(CLASSES)}, or all",
    )
    parser.add_argument("--limit_secs", type=arguments.secs, default=45.0, help="time for the tasks to end")
    arguments.add_out_dir(parser)
    plan = parser.parse_args(argv)
    plan.out_dir = arguments.new_folder(parser, plan.out_dir, "runs/script_faults")
    return plan


def run(script: str, case: str, classes: str, folder: pathlib.Path, limit_secs: float) -> FaultRow:
    """Plays one case with one script."""
    folder.mkdir()
    with started(script, case, classes, folder) as cluster:
        CASES[case].play(cluster)
        hit_at = time.monotonic()
        victims = {"ps_killed": "ps-0", "worker_killed": "worker-1", "worker_frozen": "worker-1"}
        others = {name: task for name, task in cluster.tasks.items() if name != victims.get(case)}
        while any(task.poll() is None for task in others.values()) and time.monotonic() - hit_at < limit_secs:
            time.sleep(0.1)
        codes = {name: task.poll() for name, task in others.items()}
        ended_secs = None if None in codes.values() else time.monotonic() - hit_at
        return FaultRow(
            script=script,
            case=case,
            classes=classes,
            codes=", ".join(f"{name} {'running' if code is None else code}" for name, code in codes.items()),
            ended_secs=ended_secs,
            steps=", ".join(str(cluster.steps(name) or 0) for name in cluster.tasks if name.startswith("worker")),
            checkpoint=any((folder / "checkpoints").glob("model.ckpt-*.index")),
        )


@contextlib.contextmanager
def started(script: str, case: str, classes: str, folder: pathlib.Path) -> Iterator[StartedTasks]:
    """Yields a cluster whose tasks the body starts; on exit every process of it is killed."""
    hosts = [f"localhost:{port}" for port in pick_free_ports(3)]
    path = f"examples/tf1_scripts/{script}{CLASSES[classes]}.py"
    flags = [*_flags(script, case), f"{SCRIPTS[script].folder_flag}={folder / 'checkpoints'}"]

    def start(name: str) -> subprocess.Popen[bytes]:
        environ: Mapping[str, str] = {**os.environ, **_ENVIRON}
        job, index = name.split("-")
        if SCRIPTS[script].has_task_flags:
            place = [f"--ps_hosts={hosts[0]}", f"--worker_hosts={hosts[1]},{hosts[2]}"]
            place += [f"--job_name={job}", f"--task_index={index}"]
        else:
            place = []
            environ = {**environ, "TF_CONFIG": _tf_config(hosts, name)}
        with (folder / name).open("wb") as log:
            tasks[name] = subprocess.Popen(
                [sys.executable, path, *place, *flags],
                cwd=REPOSITORY,
                env=environ,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return tasks[name]

    tasks: dict[str, subprocess.Popen[bytes]] = {}
    try:
        yield StartedTasks(start, tasks, folder)
    finally:
        for task in tasks.values():
            task.kill()
            task.wait()


def _is_sync(script: str, case: str) -> bool:
    return CASES[case].is_sync and bool(SCRIPTS[script].sync_flags)


def _words(script: str, case: str) -> str:
    return f"{'synchronous' if _is_sync(script, case) else 'asynchronous'}, {CASES[case].words}"


def _flags(script: str, case: str) -> list[str]:
    goes_on = case in ("worker_killed", "worker_frozen") and not _is_sync(script, case)
    num_steps = _NUM_LONG if goes_on else _NUM_ENDLESS if CASES[case].is_endless else NUM_STEPS
    sync_flags = SCRIPTS[script].sync_flags if _is_sync(script, case) else ()
    return [f"--train_steps={num_steps}", *sync_flags, *SCRIPTS[script].save_flags]


def _tf_config(hosts: Sequence[str], name: str) -> str:
    jobs = {"ps-0": ("ps", 0), "worker-0": ("chief", 0), "worker-1": ("worker", 0)}
    cluster = {"ps": hosts[:1], "chief": hosts[1:2], "worker": hosts[2:]}
    return json.dumps({"cluster": cluster, "task": dict(zip(("type", "index"), jobs[name], strict=True))})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Stand-ins for the tasks of a cluster: small scripts run as real processes, and processes that do not exist."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping

from ps_trainer.launch.process import TaskProcess

DEADLINE_SECS = 20.0

_PRELUDE = """
import json, os, pathlib, signal, subprocess, sys, time
flags = dict(arg.lstrip("-").split("=", 1) for arg in sys.argv[1:])
name = flags["job_name"] + "-" + flags["task_index"]
logdir = pathlib.Path(flags["logdir"])
def record(**values):
    (logdir / "metrics").mkdir(exist_ok=True)
    with (logdir / "metrics" / (name + ".jsonl")).open("a") as file:
        file.write(json.dumps({"wall_time": time.time(), **values}) + "\\n")
def mark(what, text=""):
    (logdir / "marks").mkdir(exist_ok=True)
    part = logdir / "marks" / (what + ".part" + name)
    part.write_text(text)
    part.rename(logdir / "marks" / what)
def has(what):
    return (logdir / "marks" / what).exists()
def wait_for(what):
    end = time.monotonic() + 20
    while not has(what):
        if time.monotonic() > end:
            sys.exit("never saw " + what)
        time.sleep(0.01)
def sleep_for_ever():
    while True:
        time.sleep(60)
def on_term(act):
    signal.signal(signal.SIGTERM, lambda *_: act())
def grandchild():
    return subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"]).pid
"""


def task_command(behaviours: Mapping[str, str]) -> list[str]:
    """Command of a task that runs the Python lines given for its name (`worker-0`) or else for its job (`worker`).

    Each task first runs the lines given as `before` and then leaves the mark `pid-<name>`.
    """
    script = (
        f"{_PRELUDE}\nbehaviours = json.loads({json.dumps(json.dumps(dict(behaviours)))})\n"
        'exec(behaviours.get("before", ""))\n'
        'mark("pid-" + name, str(os.getpid()))\n'
        'exec(behaviours.get(name, behaviours.get(flags["job_name"], "")))\n'
    )
    return [sys.executable, "-S", "-c", script]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Polls until the condition holds; fails after `DEADLINE_SECS`."""
    end = time.monotonic() + DEADLINE_SECS
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {DEADLINE_SECS:g} s for {what}")
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not only a zombie."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def marked_pids(logdir: pathlib.Path) -> list[int]:
    """The pids in the marks of the tasks."""
    return [int(path.read_text()) for path in (logdir / "marks").glob("pid-*") if ".part" not in path.name]


def marks(logdir: pathlib.Path) -> set[str]:
    """Names of the marks that tasks left."""
    return {path.name for path in (logdir / "marks").glob("*") if ".part" not in path.name}


def assert_all_gone(logdir: pathlib.Path, num_processes: int) -> None:
    """Fails unless that number of processes left their pids, and all have ended or end before the deadline."""
    pids = marked_pids(logdir)
    assert len(pids) == num_processes
    wait_until(lambda: not any(is_alive(pid) for pid in pids), "the end of every task")


def end_leftovers(logdir: pathlib.Path) -> Iterator[None]:
    """Body of a fixture that kills the leftovers of a failed test."""
    yield
    for pid in marked_pids(logdir):
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


class ScriptedTask(TaskProcess):
    """A task without a process: `exits` maps the number of a poll, from 1, to the exit code that it returns.

    Args:
        name: Name of the task, as in "worker-0".
        exits: Pair (number of the poll, exit code); None if the task runs until it is asked to end.
        *later: Such a pair or None for each restart; further restarts have None.
    """

    def __init__(self, name: str, exits: tuple[int, int] | None = None, *later: tuple[int, int] | None):
        job_name, _, index = name.partition("-")
        super().__init__(job_name=job_name, task_index=int(index), command=["none"], log_path=pathlib.Path(name))
        self._all_exits = [exits, *later]
        self._exits: tuple[int, int] | None = None
        self._num_polls = 0
        self.signals: list[int] = []

    @property
    def is_running(self) -> bool:
        """Whether the task has started and not ended."""
        return self.started_at is not None and self.exit_code is None

    def start(self) -> None:
        """Counts a start; starts no process."""
        self._exits = self._all_exits[self.num_starts] if self.num_starts < len(self._all_exits) else None
        self._num_polls = 0
        self.num_starts += 1
        self.started_at = 0.0
        self.exit_code = self.ended_at = None

    @property
    def pid(self) -> int:
        """A pid that differs at each start."""
        return self.num_starts

    def send(self, signum: int) -> None:
        """Records the signal; SIGKILL and SIGTERM end the task."""
        if self.is_running:
            self.signals.append(signum)
            if signum in (signal.SIGKILL, signal.SIGTERM):
                self._exits = (0, -signum)

    def poll(self) -> int | None:
        """The exit code of the script, or None while the task runs."""
        self._num_polls += self.is_running
        if self.is_running and self._exits and self._num_polls >= self._exits[0]:
            self.end(self._exits[1])
        return self.exit_code

    def terminate(self) -> None:
        """Ends the task at once if it runs."""
        if self.is_running:
            self.is_asked_to_end = True
            self.end(-signal.SIGTERM)

    def kill(self) -> None:
        """Ends the task at once, like `terminate`."""
        self.terminate()

    def end(self, exit_code: int) -> None:
        """Ends the task now."""
        self.exit_code = exit_code
        self.ended_at = self.started_at

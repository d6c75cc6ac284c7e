"""Scripts of a user as real processes, forked from one that has imported TensorFlow, which saves seconds for each."""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import pathlib
import re
import runpy
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType

from ps_trainer.cluster.ports import pick_free_ports
from tests.testing.processes import START_SECS, wait_until, wait_until_frozen

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tensorflow.compat.v1", "ps_trainer.tf1"])


def _run(path: str, arguments: Sequence[str], log: str, env: Mapping[str, str]) -> None:
    """Runs a script as `python path arguments` does; in the child."""
    os.setsid()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.environ.update(env)
    tempfile.tempdir = None  # a new process has not yet read TMPDIR
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(path))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = 0
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(bool(error.code))
    except BaseException as error:  # noqa: BLE001 - Python's own end of a script
        sys.last_value = error
        try:
            sys.excepthook(*sys.exc_info())
            code = 1
        except SystemExit as end:
            code = end.code
    # As at Python's own end, which `os._exit` passes over: a script may have left its session open.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class ScriptTask:
    """One process of a script."""

    def __init__(
        self, name: str, path: pathlib.Path, arguments: Sequence[str], log: pathlib.Path, env: Mapping[str, str]
    ):
        self.name, self._log = name, log
        log.touch()
        self._process = _context.Process(
            target=_run, args=(str(path), list(arguments), str(log), dict(env)), daemon=True
        )
        self._process.start()

    @property
    def log(self) -> str:
        """Output so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def exit_code(self) -> int | None:
        """Exit code; None while the process runs."""
        return self._process.exitcode

    def send(self, signum: int) -> None:
        """Sends a signal to the process."""
        if self.exit_code is None:
            os.kill(self._process.pid, signum)

    def freeze(self) -> None:
        """Stops the process; returns when it is stopped."""
        self.send(signal.SIGSTOP)
        wait_until_frozen(self._process.pid, self.name)

    def wait(self, deadline_secs: float) -> int:
        """Waits for the end; returns the exit code."""
        wait_until(lambda: self.exit_code is not None, deadline_secs, f"{self.name} still runs; its log:\n{self.log}")
        return self.exit_code

    def wait_for_log(self, pattern: str, deadline_secs: float = START_SECS) -> None:
        """Waits until the output matches `pattern`."""

        def is_there() -> bool:
            has_ended = self.exit_code is not None
            if re.search(pattern, self.log):
                return True
            assert not has_ended, f"{self.name} ended with {self.exit_code} and never printed {pattern!r}:\n{self.log}"
            return False

        wait_until(is_there, deadline_secs, f"{self.name} has not said {pattern!r}; its log:\n{self.log}")

    def kill(self) -> None:
        """Kills the process if it still runs, and reaps it."""
        self._process.kill()
        self._process.join()


class ScriptRun:
    """A cluster of a script's processes; use it as a context manager, which leaves none behind.

    With `by_flags=False` the script gets its task from TF_CONFIG, and worker 0 is the task of the job "chief".

    Args:
        folder: Empty folder for logs and checkpoints.
        path: The script. It takes --ps_hosts, --worker_hosts, --job_name and --task_index.
        flags: Flags of every task.
        env: Variables to add to the environment of every task.
        is_slow: Whether each step takes 50 ms longer, so that a test that waits leaves the cores to other tests;
            every tenth step is printed.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        path: pathlib.Path,
        *flags: str,
        num_ps: int = 1,
        num_workers: int = 2,
        env: Mapping[str, str] | None = None,
        by_flags: bool = True,
        is_slow: bool = False,
    ):
        self._by_flags = by_flags
        self.folder, self._path, self._flags = folder, _slowed(path, folder) if is_slow else path, flags
        hosts = [f"localhost:{port}" for port in pick_free_ports(num_ps + num_workers)]
        self.ps_hosts, self.worker_hosts = hosts[:num_ps], hosts[num_ps:]
        self._env = {"PYTHONUNBUFFERED": "1", "PS_TRAINER_START_TIMEOUT_SECS": "60", **(env or {})}
        self._tasks: list[ScriptTask] = []

    @property
    def checkpoint_dir(self) -> str:
        """Folder of the checkpoints."""
        return str(self.folder / "checkpoints")

    def __enter__(self) -> ScriptRun:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.kill()
            print(f"\n===== {task.name}", task.log[-6000:], sep="\n")

    def start(self, job: str, index: int = 0, *flags: str, env: Mapping[str, str] | None = None) -> ScriptTask:
        """Starts one task."""
        hosts = [f"--ps_hosts={','.join(self.ps_hosts)}", f"--worker_hosts={','.join(self.worker_hosts)}"]
        arguments = [*hosts, f"--job_name={job}", f"--task_index={index}"] if self._by_flags else []
        arguments += [*self._flags, *flags]
        if not self._by_flags:
            env = {**(env or {}), "TF_CONFIG": self._tf_config(job, index)}
        name = f"{job}-{index}"
        log = self.folder / f"{name}.{sum(task.name == name for task in self._tasks)}.out"
        self._tasks.append(ScriptTask(name, self._path, arguments, log, {**self._env, **(env or {})}))
        return self._tasks[-1]

    def _tf_config(self, job: str, index: int) -> str:
        cluster = {"ps": self.ps_hosts, "chief": self.worker_hosts[:1], "worker": self.worker_hosts[1:]}
        of_chief = job == "worker" and index == 0
        task = {"type": "chief" if of_chief else job, "index": max(0, index - (job == "worker"))}
        return json.dumps({"cluster": cluster, "task": task})

    def start_all(self) -> tuple[list[ScriptTask], list[ScriptTask]]:
        """Starts every task; returns the ps tasks and the workers."""
        ps = [self.start("ps", index) for index in range(len(self.ps_hosts))]
        return ps, [self.start("worker", index) for index in range(len(self.worker_hosts))]


def _slowed(script: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """A copy of a script that sleeps in each step, and prints every tenth."""
    loop = re.compile(r"^( *while not .*should_stop\(\).*\n)( *)", re.MULTILINE)
    text, count = loop.subn(r'\1\2__import__("time").sleep(0.05)\n\2', script.read_text(encoding="utf-8"))
    assert count == 1, f"{script} has {count} loops of steps"
    text = text.replace("local_step % 50 == 0", "local_step % 10 == 0")
    copy = folder / script.name
    copy.write_text(text, encoding="utf-8")
    return copy

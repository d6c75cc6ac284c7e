"""A cluster of real processes: a test starts its tasks, waits for their output and state, and leaves none behind."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import tensorflow.compat.v1 as tf

from benchmarks import leftovers
from ps_trainer.cluster.ports import pick_free_ports
from ps_trainer.launch.forkserver import PROGRAM, ForkServer

ROOT = pathlib.Path(__file__).resolve().parents[2]

START_SECS = 180.0  # for several tasks to import TensorFlow and make their first steps on a busy machine
END_SECS = 10.0  # for a task to end after a signal: what the project promises
LOST_SECS = 90.0  # for a task to notice that another one was killed, and to end
UNLIMITED = "--max_steps=1000000000"

_POLL_SECS = 0.05
_LOG_LINES = 60
_FLAGS = (
    "--model=softmax",
    "--dataset=digits",
    "--optimizer=sgd",  # it has no slots, unlike the default of the model
    "--report_secs=0.2",
    "--intra_op_threads=1",
    "--inter_op_threads=2",
    "--start_timeout_secs=60",
    "--stall_timeout_secs=60",
)
_NO_RECOVERY = "--recover_timeout_secs=0"  # default, which a test with recovery overrides


def wait_until(condition: Callable[[], Any], deadline_secs: float, what: str) -> Any:
    """The first true value of `condition`, which is polled; raises AssertionError after the deadline."""
    deadline = time.monotonic() + deadline_secs
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"after {deadline_secs:g} s: {what}")
        time.sleep(_POLL_SECS)
    return value


def wait_until_frozen(pid: int, name: str) -> None:
    """Returns when SIGSTOP has stopped the process; raises AssertionError if the process continues."""
    stat = pathlib.Path(f"/proc/{pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", START_SECS, f"{name} is not stopped")


class _Forked:
    """The part of `subprocess.Popen` that `Task` uses, for a process forked from one that has imported TensorFlow."""

    def __init__(self, server: ForkServer, arguments: Sequence[str], **kwargs: Any):
        self._process = server.popen([*PROGRAM, *arguments], **kwargs)
        self.pid = self._process.pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def wait(self) -> None:
        if self._code is None:
            self._code = self._process.wait()

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Task:
    """A process of the project, in a separate session, with its output in a log file.

    Args:
        name: Name of the process in messages.
        command: Arguments of `python`; for a forked process the arguments of `python -m ps_trainer`.
        log_path: File to which the output is appended.
        env: The whole environment of the process.
        server: Fork server that starts the process; None starts a fresh process.
        netns: Network namespace of a forked process; None = the namespace of the test.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_path: pathlib.Path,
        env: Mapping[str, str],
        server: ForkServer | None = None,
        netns: str | None = None,
    ):
        self.name = name
        self.log_path = log_path
        with log_path.open("ab") as log:
            if server is not None:
                self._popen = _Forked(server, command, stdout=log, env=env, netns=netns)
                return
            self._popen = subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code; None while the process runs."""
        return self._popen.poll()

    @property
    def log(self) -> str:
        """Output so far."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def send(self, signum: int) -> None:
        """Sends a signal to this process only."""
        self._popen.send_signal(signum)

    def freeze(self) -> None:
        """Stops this process and returns once it has stopped, which takes a moment after the signal."""
        self.send(signal.SIGSTOP)
        wait_until_frozen(self.pid, self.name)

    def thaw(self) -> None:
        """Lets the process continue."""
        self.send(signal.SIGCONT)

    def wait(self, deadline_secs: float) -> int:
        """Waits for the process and returns its exit code; raises AssertionError if it still runs at the deadline."""
        wait_until(lambda: self.exit_code is not None, deadline_secs, f"{self.name} (pid {self.pid}) still runs")
        return self.exit_code

    def wait_for_log(self, pattern: str, deadline_secs: float = START_SECS) -> None:
        """Waits until the output matches `pattern`; AssertionError at the deadline or if the process ends first."""

        def is_there() -> bool:
            has_ended = self.exit_code is not None  # asked before the log is read, so that the last output counts
            if re.search(pattern, self.log):
                return True
            assert not has_ended, f"{self.name} ended with {self.exit_code} and never logged {pattern!r}"
            return False

        wait_until(is_there, deadline_secs, f"{self.name} has not said {pattern!r}")

    def kill(self) -> None:
        """Kills the process if it still runs, and reaps it."""
        if self.exit_code is None:
            self._popen.kill()
        self._popen.wait()


class ClusterRun:
    """The processes, ports and log folder of one run. Use as a context manager.

    On exit it kills by pid each process that still runs, and prints the end of every log. Pytest shows these only if
    the test failed.

    Args:
        folder: Existing empty folder; it holds the run's logdir, which is unique on this machine.
        num_ps: Number of ps tasks; 0 = the workers that a test starts hold the parameters.
        num_workers: Number of workers.
        flags: Flags for every task, after the standard ones.
        env: Variables to add to the environment.
        server: Fork server that starts all tasks at once; None starts each as a fresh process by `run_ps.py` or
            `run_worker.py`.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        num_ps: int = 1,
        num_workers: int = 2,
        flags: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        server: ForkServer | None = None,
    ):
        self._server = server
        self.folder = folder
        self.logdir = folder / "logdir"
        self.num_workers = num_workers
        hosts = [f"localhost:{port}" for port in pick_free_ports(num_ps + num_workers)]
        self.ps_hosts, self.worker_hosts = hosts[:num_ps], hosts[num_ps:]
        self.tasks: list[Task] = []
        asks = any(flag.startswith("--recover_timeout_secs") for flag in flags)
        self._flags = [*_FLAGS, *([] if asks else [_NO_RECOVERY]), *flags]
        self._env = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        for name in ("TF_CONFIG", "PS_TRAINER_PARENT_PID"):
            self._env.pop(name, None)

    def __enter__(self) -> ClusterRun:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self.tasks:
            task.kill()
        for pid in self.remaining():
            os.kill(pid, signal.SIGKILL)
        for path in sorted({task.log_path for task in self.tasks} | set(self.logdir.glob("logs/*.log"))):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            print(f"\n===== {path.name}, last {_LOG_LINES} of {len(lines)} lines", *lines[-_LOG_LINES:], sep="\n")

    def start_ps(self, index: int = 0, *flags: str) -> Task:
        """Starts a ps task."""
        return self._start_task("ps", index, flags)

    def start_worker(self, index: int, *flags: str) -> Task:
        """Starts a worker; worker 0 is the chief."""
        return self._start_task("worker", index, flags)

    def start_all(self, *flags: str) -> list[Task]:
        """Starts every task by hand: ps tasks first, then workers."""
        started = [self.start_ps(index, *flags) for index in range(len(self.ps_hosts))]
        return started + [self.start_worker(index, *flags) for index in range(self.num_workers)]

    def start_local(self, *flags: str) -> Task:
        """Starts `python -m ps_trainer local` with this run's numbers of tasks."""
        counts = [f"--num_ps={len(self.ps_hosts)}", f"--num_workers={self.num_workers}"]
        return self.start_command("local", *counts, *self._flags, f"--logdir={self.logdir}", *flags)

    def start_command(self, command: str, *flags: str, log_name: str | None = None) -> Task:
        """Starts `python -m ps_trainer <command>` with these flags only."""
        program = [] if self._server else ["-m", "ps_trainer"]
        return self._start(log_name or command, [*program, command, *flags])

    def wait_for_step(self, step: int, deadline_secs: float = START_SECS, workers: Sequence[int] | None = None) -> None:
        """Waits until each of `workers` (None means all) has reported a global_step of at least `step`.

        Raises:
            AssertionError: If the deadline passes, or if a task that was running at the call ends.
        """
        running = [task for task in self.tasks if task.exit_code is None]
        wanted = range(self.num_workers) if workers is None else workers

        def is_reached() -> bool:
            for task in running:
                assert task.exit_code is None, f"{task.name} ended with {task.exit_code} before step {step}"
            return all(self.last_step(worker) >= step for worker in wanted)

        wait_until(is_reached, deadline_secs, f"workers {list(wanted)} have not all reached step {step}")

    def last_step(self, worker: int) -> int:
        """The global_step of the worker's last report; -1 before the first."""
        return max((line["global_step"] for line in self.metrics(f"worker-{worker}", "train")), default=-1)

    def logged_steps(self, worker: int) -> list[dict[str, Any]]:
        """The lines of the worker's step log (`--step_log`), in order."""
        path = self.logdir / "steps" / f"worker-{worker}.jsonl"
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def wait_for_logged_steps(self, worker: int, count: int) -> None:
        """Waits until the worker has logged that number of steps."""
        wait_until(lambda: len(self.logged_steps(worker)) >= count, START_SECS, f"worker {worker} lacks steps")

    def metrics(self, task_name: str, kind: str) -> list[dict[str, Any]]:
        """The task's lines of one kind ("state", "train", "eval") in its metrics file, in order."""
        path = self.logdir / "metrics" / f"{task_name}.jsonl"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in lines if line["kind"] == kind]

    def time_of_state(self, task_name: str, pattern: str) -> float:
        """Seconds since the epoch at which the task reported the first state that matches `pattern`."""
        for line in self.metrics(task_name, "state"):
            if re.search(pattern, line["state"]):
                return line["wall_time"]
        raise AssertionError(f"{task_name} has not reported a state that matches {pattern!r}")

    def summary(self) -> dict[str, Any]:
        """The contents of summary.json."""
        return json.loads((self.logdir / "summary.json").read_text(encoding="utf-8"))

    def wait_for_checkpoint(self) -> int:
        """Waits for the run's first checkpoint; returns the global_step of the latest."""
        wait_until((self.logdir / "checkpoints" / "checkpoint").exists, START_SECS, "no checkpoint was saved")
        return self.checkpoint_step()

    def checkpoint_step(self) -> int:
        """The global_step of the latest checkpoint; it reads every tensor with a plain TensorFlow reader."""
        reader = tf.train.load_checkpoint(str(self.logdir / "checkpoints"))
        values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
        assert len(values) > 1, f"the checkpoint holds only {list(values)}"
        return int(values["global_step"])

    def remaining(self) -> list[int]:
        """Pids of this run's live processes."""
        return list(leftovers.living(self.folder))

    def wait_until_gone(self, deadline_secs: float) -> None:
        """Waits until all processes of this run have ended."""
        wait_until(lambda: not self.remaining(), deadline_secs, f"pids {self.remaining()} still run")

    def _start(self, name: str, arguments: Sequence[str]) -> Task:
        self.tasks.append(Task(name, arguments, self.folder / f"{name}.out", self._env, self._server))
        return self.tasks[-1]

    def _start_task(self, job_name: str, index: int, flags: Sequence[str]) -> Task:
        program = ["task", f"--job_name={job_name}"] if self._server else [f"run_{job_name}.py"]
        return self._start(f"{job_name}-{index}", [*program, *self._cluster_flags(index), *self._flags, *flags])

    def _cluster_flags(self, index: int) -> list[str]:
        of_ps = f"--ps_hosts={','.join(self.ps_hosts)}" if self.ps_hosts else "--placement=colocated"
        hosts = [of_ps, f"--worker_hosts={','.join(self.worker_hosts)}"]
        return [*hosts, f"--task_index={index}", f"--logdir={self.logdir}"]

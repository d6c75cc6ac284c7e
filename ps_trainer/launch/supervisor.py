"""Supervision of the tasks of one run: start them, notice how they end, and leave none behind."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from ps_trainer import errors
from ps_trainer.launch.process import TaskProcess
from ps_trainer.launch.signals import SignalRecorder
from ps_trainer.launch.status import Board

POLL_SECS = 0.05
REPEATED_SIGNAL_SECS = 0.5  # some tools send one Ctrl-C twice; a second one of the user's comes later
_ORDER = ("ps", "worker", "evaluator")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Deadlines in seconds.

    Attributes:
        workers_end: for workers and evaluators to end after SIGTERM (the chief saves a checkpoint).
        all_end: for everything to end, from the same moment on; what is left then is killed.
        ps_exit: for the ps tasks to end by themselves after the last worker.
        evaluator_exit: the same for the evaluator.
        settle: how long to look for the cause once a task failed only because of another one.
    """

    workers_end: float = 7.0
    all_end: float = 8.5
    ps_exit: float = 30.0
    evaluator_exit: float = 600.0
    settle: float = 3.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended.

    Attributes:
        exit_code: 0 done, 1 failed, 2 wrong usage, 128 + signal interrupted.
        culprit: the task because of which the run failed, or None.
        problem: one line on what that task did, or None.
        signum: the signal that interrupted the run, or None.
    """

    exit_code: int
    culprit: TaskProcess | None = None
    problem: str | None = None
    signum: int | None = None


class Watcher(Protocol):
    """Who is told what happens: see `ps_trainer.launch.view`."""

    def update(self) -> None:
        """Some time has passed."""

    def on_failure(self, outcome: Outcome) -> None:
        """The culprit is known; the other tasks are ended next."""

    def on_interrupt(self, signum: int) -> None:
        """A signal came; the tasks are ended next."""


class Supervisor:
    """Runs tasks to their end.

    Args:
        tasks: not yet started; started in this order.
        board: read for what the tasks say of themselves.
        watcher: told what happens.
        signals: entered by the caller.
        limits: deadlines.
        clock: seconds, monotonic.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        *,
        tasks: Sequence[TaskProcess],
        board: Board,
        watcher: Watcher,
        signals: SignalRecorder,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._tasks = tasks
        self._board = board
        self._watcher = watcher
        self._signals = signals
        self._limits = limits
        self._clock = clock
        self._sleep = sleep
        self._failed: list[TaskProcess] = []  # in the order of preference as the culprit
        self._failed_at: float | None = None
        self._workers_done_at: float | None = None
        self._end_at: float | None = None

    def run(self) -> Outcome:
        """Starts the tasks and returns when all have ended, by themselves or not; blocks until then.

        On a failure or a signal the workers and evaluators are asked to end, then the ps tasks, then what
        is left is killed. The same happens, without display, when anything in here raises.

        Raises:
            RunError: a task cannot be started.
        """
        try:
            for task in self._tasks:
                if self._signals.first is None:
                    task.start()
            outcome = self._watch()
            if outcome.signum is not None:
                self._watcher.on_interrupt(outcome.signum)
            elif outcome.exit_code:
                self._watcher.on_failure(outcome)
            self._end(self._watcher.update)
            return outcome
        except BaseException:
            self._end(lambda: None)
            raise

    def _watch(self) -> Outcome:
        while True:
            if self._signals.first is not None:
                return Outcome(exit_code=128 + self._signals.first, signum=self._signals.first)
            self._note_failures()
            outcome = self._failure() or self._overdue()
            if outcome is not None:
                return outcome
            if not any(task.is_running for task in self._tasks) and not self._failed:
                return Outcome(exit_code=errors.EXIT_DONE)
            self._watcher.update()
            self._sleep(POLL_SECS)

    def _note_failures(self) -> None:
        found = [task for task in self._tasks if task.is_running and task.poll()]
        if found:
            found.sort(key=lambda task: (task.exit_code > 0, _ORDER.index(task.job_name), task.task_index))
            self._failed += found
            self._failed_at = self._clock() if self._failed_at is None else self._failed_at

    def _failure(self) -> Outcome | None:
        if not self._failed:
            return None
        self._board.refresh()
        causes = [task for task in self._failed if not self._board.status_of(task).is_peer_failure]
        is_settling = self._clock() < self._failed_at + self._limits.settle
        if not causes and is_settling and any(task.is_running for task in self._tasks):
            return None
        culprit = (causes or self._failed)[0]
        code = errors.EXIT_USAGE if culprit.exit_code == errors.EXIT_USAGE else errors.EXIT_FAILED
        return Outcome(exit_code=code, culprit=culprit, problem=culprit.outcome())

    def _overdue(self) -> Outcome | None:
        if any(task.is_running for task in self._tasks if task.job_name == "worker"):
            return None
        now = self._clock()
        if self._workers_done_at is None:
            self._workers_done_at = now
        for job_name, limit in (("ps", self._limits.ps_exit), ("evaluator", self._limits.evaluator_exit)):
            late = [task for task in self._tasks if task.job_name == job_name and task.is_running]
            if late and now > self._workers_done_at + limit:
                problem = f"still runs {limit:g} s after the last worker ended"
                return Outcome(exit_code=errors.EXIT_FAILED, culprit=late[0], problem=problem)
        return None

    def _end(self, tick: Callable[[], None]) -> None:
        if self._end_at is None:
            self._end_at = self._clock()
        ps = [task for task in self._tasks if task.job_name == "ps"]
        try:
            self._ask([task for task in self._tasks if task not in ps], self._end_at + self._limits.workers_end, tick)
            self._ask(ps, self._end_at + self._limits.all_end, tick)
        finally:
            for task in self._tasks:
                task.kill()
            self._collect(self._clock() + 1.0)
        tick()

    def _ask(self, tasks: Sequence[TaskProcess], until: float, tick: Callable[[], None]) -> None:
        for task in tasks:
            task.terminate()
        while _still_running(tasks) and self._clock() < until:
            if self._signals.has_ctrl_c_after(self._end_at + REPEATED_SIGNAL_SECS):
                return
            tick()
            self._sleep(POLL_SECS)

    def _collect(self, until: float) -> None:
        while _still_running(self._tasks) and self._clock() < until:
            self._sleep(POLL_SECS / 10)


def _still_running(tasks: Sequence[TaskProcess]) -> bool:
    for task in tasks:
        task.poll()
    return any(task.is_running for task in tasks)

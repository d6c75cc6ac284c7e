"""`TaskSupervisor`: starts the tasks of a run, restarts those that died if allowed, and leaves no task behind.

The life of a run, in `TaskSupervisor.run`:

    start every task
    until every task has ended, or one has failed for good:
        note which tasks have ended: done, to be restarted, or failed
        restart the tasks whose delay is over
        inject the faults that are due
    ask workers and evaluators to end, then the ps tasks; kill what is left
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from ps_trainer import errors
from ps_trainer.launch.event_log import EventLog
from ps_trainer.launch.injector import Injector
from ps_trainer.launch.process import TaskProcess
from ps_trainer.launch.restarts import Restarts
from ps_trainer.launch.signals import SignalRecorder
from ps_trainer.launch.status import Board

POLL_SECS = 0.05
REPEATED_SIGNAL_SECS = 0.5  # some tools send one Ctrl-C twice; a user presses it again only later
CHIEF = "worker-0"
_ORDER = ("ps", "worker", "evaluator")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShutdownDeadlines:
    """Deadlines in seconds.

    Attributes:
        workers_end: Time for workers and evaluators to end after SIGTERM (the chief saves a checkpoint).
        all_end: Time for every task to end, from the same moment on; then the rest is killed.
        ps_exit: Time for the ps tasks to end by themselves after the last worker has ended, or is done with training.
        evaluator_exit: The same time for the evaluator.
        settle: Time to look for the cause after a task failed only because of another task.
        helper_exit: Time for a worker that is done, and only helps to evaluate, to end after the last ps task.
    """

    # In all below 10 s, the time that `docker stop` gives a program between SIGTERM and SIGKILL.
    workers_end: float = 7.0
    all_end: float = 8.5
    ps_exit: float = 30.0
    evaluator_exit: float = 600.0
    settle: float = 3.0
    helper_exit: float = 10.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """The end of a run.

    Attributes:
        exit_code: 0 done, 1 failed, 2 wrong usage, 128 + signal interrupted.
        culprit: Task that made the run fail, or None.
        problem: One line about the failure of that task, or None.
        signum: Signal that interrupted the run, or None.
        rejection: Error of that task if it has rejected the input before any worker reported a step, else None.
    """

    exit_code: int
    culprit: TaskProcess | None = None
    problem: str | None = None
    signum: int | None = None
    rejection: str | None = None


class RunObserver(Protocol):
    """Receives the events of a run; `ps_trainer.launch.view` shows them to the user."""

    def update(self) -> None:
        """Shows how far the tasks are; the supervisor calls it every few milliseconds."""

    def on_event(self, task: TaskProcess, text: str) -> None:
        """Notes that a fault was injected into a task, or that a task is restarted; `text` describes it."""

    def on_failure(self, outcome: RunOutcome) -> None:
        """Notes the culprit of a failed run, before the supervisor ends the other tasks."""

    def on_interrupt(self, signum: int) -> None:
        """Notes a signal, before the supervisor ends the tasks."""


class TaskSupervisor:
    """Runs tasks to their end.

    Args:
        board: Status of the tasks, which are not started yet; they are started in its order.
        observer: Receiver of the events.
        signals: Recorder of signals, which the caller has entered.
        deadlines: Deadlines.
        restarts: Policy that decides which tasks are restarted; None = no task is.
        injector: Injector of the requested faults; None = no faults.
        log: Log that records the restarts; None = no record.
        time_fn: Monotonic time in seconds.
        sleep: Function that waits for a number of seconds.
    """

    def __init__(
        self,
        *,
        board: Board,
        observer: RunObserver,
        signals: SignalRecorder,
        deadlines: ShutdownDeadlines,
        restarts: Restarts | None = None,
        injector: Injector | None = None,
        log: EventLog | None = None,
        time_fn: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._tasks = [status.process for status in board.tasks]
        self._board = board
        self._observer = observer
        self._signals = signals
        self._deadlines = deadlines
        self._restarts = restarts or Restarts()
        self._injector = injector
        self._log = log
        self._time_fn = time_fn
        self._sleep = sleep
        self._restart_at: dict[TaskProcess, float] = {}
        self._failed: list[TaskProcess] = []  # the most likely culprit first
        self._failed_at: float | None = None
        self._workers_done_at: float | None = None
        self._ps_ended_at: float | None = None
        self._end_at: float | None = None

    def run(self) -> RunOutcome:
        """Starts the tasks and blocks until all have ended, by themselves or by force.

        On a failure or a signal, it first asks workers and evaluators to end, which need the ps tasks to save a
        checkpoint. Then it asks the ps tasks. It kills the tasks that are left. It does the same, without display, on
        any exception.

        Raises:
            RunError: A task cannot be started.
        """
        try:
            if self._injector is not None:
                self._injector.begin()
            for task in self._tasks:
                if self._signals.first is None:
                    self._start(task)
            outcome = self._watch()
            if outcome.signum is not None:
                self._observer.on_interrupt(outcome.signum)
            elif outcome.exit_code and outcome.rejection is None:
                self._observer.on_failure(outcome)
            self._end(self._observer.update)
            return outcome
        except BaseException:
            # KeyboardInterrupt and SystemExit must not leave tasks behind either.
            self._end(lambda: None)
            raise

    def _watch(self) -> RunOutcome:
        while True:
            # Signals before ends: a process manager may have sent SIGTERM to the tasks, too. They did not fail.
            if self._signals.first is not None:
                return RunOutcome(exit_code=128 + self._signals.first, signum=self._signals.first)
            self._note_ends()
            outcome = self._find_failure() or self._find_overdue()
            if outcome is not None:
                return outcome
            if not any(task.is_running for task in self._tasks) and not self._failed and not self._restart_at:
                return RunOutcome(exit_code=errors.EXIT_DONE)
            self._end_late_tasks()
            self._restart_what_is_due()
            self._observer.update()
            self._sleep(self._inject())

    def _start(self, task: TaskProcess) -> None:
        if self._injector is not None:
            self._injector.prepare(task)
        task.start()

    def _inject(self) -> float:
        """Injects the faults that are due; returns how long to sleep."""
        if self._injector is None:
            return POLL_SECS
        self._injector.tick(self._observer.on_event)
        return min(POLL_SECS, self._injector.secs_to_next)

    def _note_ends(self) -> None:
        """Finds the tasks that have ended, and decides which are restarted and which have failed."""
        ended = [task for task in self._tasks if task.is_running and task.poll()]
        # Workers first: a ps task is restarted only if a worker runs or will run.
        ended.sort(key=lambda task: task.job_name == "ps")
        found = [task for task in ended if not self._will_restart(task) and not self._is_excused(task)]
        if found:
            # Tasks that a signal killed come first: an exit with an error is often the effect of a lost task.
            found.sort(key=lambda task: ((task.exit_code or 0) > 0, _ORDER.index(task.job_name), task.task_index))
            self._failed += found
            self._failed_at = self._time_fn() if self._failed_at is None else self._failed_at

    def _will_restart(self, task: TaskProcess) -> bool:
        if task.job_name != "evaluator" and (self._is_trained() or not self._is_needed(task)):
            return False
        if self._is_done_worker(task):
            return False
        # The reason for its end is the last line that a task writes, so it may not have been read yet.
        self._board.refresh()
        status = self._board.status_of(task)
        delay_secs = self._restarts.delay_for(task, is_peer_failure=status.is_peer_failure)
        if delay_secs is None:
            return False
        self._restart_at[task] = self._time_fn() + delay_secs
        restart_message = self._restarts.restart_message(task, delay_secs, is_peer_failure=status.is_peer_failure)
        self._observer.on_event(task, f"{status.reason}; {restart_message}" if status.reason else restart_message)
        if self._log is not None:
            step, number = self._board.reached_step, self._restarts.counts[task.name]
            self._log.write("restart", task.name, step, number=number, delay_secs=delay_secs, ended=task.outcome())
        return True

    def _restart_what_is_due(self) -> None:
        for task in [task for task, at in self._restart_at.items() if self._time_fn() >= at]:
            del self._restart_at[task]
            self._start(task)

    def _is_trained(self) -> bool:
        """Returns whether the chief is done: then the run is complete, and no ps task or worker is restarted."""
        return any(task.name == CHIEF and task.exit_code == errors.EXIT_DONE for task in self._tasks)

    def _is_needed(self, task: TaskProcess) -> bool:
        """Returns whether the run needs a task: a worker always, a ps task only while there are workers."""
        return task.job_name != "ps" or bool(self._running_workers())

    def _end_late_tasks(self) -> None:
        """Cancels restarts once the run is complete, and ends restarted workers that no longer find a ps task."""
        if not self._is_trained():
            return
        self._restart_at = {task: at for task, at in self._restart_at.items() if task.job_name == "evaluator"}
        ps = [task for task in self._tasks if task.job_name == "ps"]
        if any(task.is_running for task in ps):
            return
        self._ps_ended_at = self._time_fn() if self._ps_ended_at is None else self._ps_ended_at
        is_late = bool(ps) and self._time_fn() > self._ps_ended_at + self._deadlines.helper_exit
        for task in self._tasks:
            if task.job_name == "worker" and task.is_running and task.num_starts > 1:
                task.terminate()
            if is_late and task.is_running and self._is_done_worker(task):
                task.kill()  # it is frozen

    def _is_excused(self, task: TaskProcess) -> bool:
        """Returns whether a task's failure does not make the run fail.

        A task that was asked to end is excused, and so is a worker that was done. A ps task that only reports a
        worker's failure after training was complete is excused, too, if the launcher has restarted tasks: that worker
        would have been restarted.
        """
        if task.is_asked_to_end:
            return True
        if self._is_done_worker(task):
            return True
        if not (self._restarts.counts and task.job_name == "ps" and self._is_trained()):
            return False
        self._board.refresh()
        return self._board.status_of(task).is_peer_failure

    def _is_done_worker(self, task: TaskProcess) -> bool:
        """Returns whether a worker's part of the run is done; the chief's is when its process has ended."""
        if task.job_name != "worker" or task.name == CHIEF:
            return False
        self._board.refresh()
        return self._board.status_of(task).is_done

    def _running_workers(self) -> list[TaskProcess]:
        """Returns the workers that run or are about to."""
        workers = [task for task in self._tasks if task.job_name == "worker"]
        return [task for task in workers if task.is_running or task in self._restart_at]

    def _find_failure(self) -> RunOutcome | None:
        if not self._failed or self._failed_at is None:
            return None
        self._board.refresh()
        causes = [task for task in self._failed if not self._board.status_of(task).is_peer_failure]
        is_settling = self._time_fn() < self._failed_at + self._deadlines.settle
        if not causes and is_settling and any(task.is_running for task in self._tasks):
            return None
        culprit = (causes or self._failed)[0]
        is_rejected = culprit.exit_code == errors.EXIT_USAGE
        return RunOutcome(
            exit_code=errors.EXIT_USAGE if is_rejected else errors.EXIT_FAILED,
            culprit=culprit,
            problem=self._restarts.problem(culprit),
            rejection=culprit.last_error() if is_rejected and self._board.reached_step is None else None,
        )

    def _find_overdue(self) -> RunOutcome | None:
        # A worker that is done may be frozen, or wait for a frozen ps task.
        workers = self._running_workers()
        if workers and not (self._is_trained() and all(map(self._is_done_worker, workers))):
            self._workers_done_at = None
            return None
        now = self._time_fn()
        if self._workers_done_at is None:
            self._workers_done_at = now
        for job_name, limit in (("ps", self._deadlines.ps_exit), ("evaluator", self._deadlines.evaluator_exit)):
            late = [task for task in self._tasks if task.job_name == job_name and task.is_running]
            if late and now > self._workers_done_at + limit:
                problem = f"still runs {limit:g} s after the last worker was done"
                return RunOutcome(exit_code=errors.EXIT_FAILED, culprit=late[0], problem=problem)
        return None

    def _end(self, tick: Callable[[], None]) -> None:
        # If the display fails during `_end`, `run` calls it again; the tasks then get no second period of grace.
        end_at = self._end_at = self._time_fn() if self._end_at is None else self._end_at
        ps = [task for task in self._tasks if task.job_name == "ps"]
        try:
            if self._injector is not None:
                self._injector.end()  # a frozen task could not end
            others = [task for task in self._tasks if task not in ps]
            for task in ps:
                task.announce_end()  # a ps task may end with the last worker, before it is asked
            self._ask_to_end(others, end_at, end_at + self._deadlines.workers_end, tick)
            self._ask_to_end(ps, end_at, end_at + self._deadlines.all_end, tick)
        finally:
            for task in self._tasks:
                task.kill()
            # A process that hangs inside the kernel (a dead network disk) outlives SIGKILL, so this wait is short.
            self._collect(self._time_fn() + 1.0)
        tick()

    def _ask_to_end(self, tasks: Sequence[TaskProcess], end_at: float, until: float, tick: Callable[[], None]) -> None:
        for task in tasks:
            task.terminate()
        while _still_running(tasks) and self._time_fn() < until:
            if self._signals.has_ctrl_c_after(end_at + REPEATED_SIGNAL_SECS):
                return
            tick()
            self._sleep(POLL_SECS)

    def _collect(self, until: float) -> None:
        while _still_running(self._tasks) and self._time_fn() < until:
            self._sleep(POLL_SECS / 10)


def _still_running(tasks: Sequence[TaskProcess]) -> bool:
    for task in tasks:
        task.poll()
    return any(task.is_running for task in tasks)

"""`Injector`: injects the planned faults (`ps_trainer/disturbances/faults.py`) into the tasks of a local cluster.

A step is reached when the first worker reports it. A worker writes a line into its metrics at once when it reaches a
step at which a fault is due (`training/worker_faults.py`). The supervisor reads the metrics 20 times a second.

A fault waits for its task: if the task is about to be restarted, the fault happens after the restart. A task that has
finished misses its fault.
"""

from __future__ import annotations

import dataclasses
import functools
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from ps_trainer.disturbances import due_faults
from ps_trainer.disturbances import faults as faults_lib
from ps_trainer.disturbances.due_faults import DueFaults, Raise
from ps_trainer.disturbances.faults import Fault
from ps_trainer.launch.event_log import EventLog
from ps_trainer.launch.process import TaskProcess
from ps_trainer.launch.status import Board

_MILLI = 1e-3
_SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "freeze": signal.SIGSTOP, "slow_ps": signal.SIGSTOP}
_EVENT_TEXTS = {
    "kill": "SIGKILL",
    "term": "SIGTERM",
    "freeze": "frozen (SIGSTOP)",
    "continue": "continues (SIGCONT)",
    "cut": "link cut",
    "restore": "link restored",
    "slow": "slow from now on",
    "even": "at full speed again",
    "missed": "had ended before",
}


@dataclasses.dataclass(frozen=True)
class FaultResult:
    """Outcome of a planned fault.

    Attributes:
        fault: Fault as it was planned.
        global_step: Highest step that a worker had reported when it happened; None if no worker had.
        missed: Reason why it did not happen; None if it happened.
    """

    fault: Fault
    global_step: int | None = None
    missed: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns the entry about the fault in summary.json."""
        how = {"global_step": self.global_step} if self.missed is None else {"missed": self.missed}
        return {"fault": self.fault.text, "task": self.fault.task, **how}


@dataclasses.dataclass(kw_only=True)
class _Ongoing:
    """A fault that has begun and has not ended.

    Attributes:
        fault: Fault as it was planned.
        end_event: Event that ends the fault.
        ends_at: End of the fault in the time of `time_fn`; None if it lasts until the end of the run.
        end: Function that removes the fault.
        pid: Pid of the frozen process, whose end also ends the fault; None if the fault outlives a restart of its task.
        next_at: For `slow_ps`, the next time at which the task stops or continues.
        is_stopped: True if the task is stopped now.
    """

    fault: Fault
    end_event: str
    ends_at: float | None
    end: Callable[[], None]
    pid: int | None = None
    next_at: float | None = None
    is_stopped: bool = True


class Injector:
    """The faults of one run.

    Args:
        faults: Planned faults, from `faults.parse_all`.
        tasks: Tasks of the run.
        board: Status of the tasks, which knows the step.
        log: Log that records every event.
        set_link: Method `set_link` of the hosts that the tasks run on.
        time_fn: Monotonic time in seconds.
    """

    def __init__(
        self,
        faults: Sequence[Fault],
        *,
        tasks: Sequence[TaskProcess],
        board: Board,
        log: EventLog,
        set_link: Callable[..., None],
        time_fn: Callable[[], float] = time.monotonic,
    ):
        self._pending = list(faults)
        self._milestones = faults_lib.milestones(faults)
        self._tasks = {task.name: task for task in tasks}
        self._board = board
        self._log = log
        self._set_link = set_link
        self._time_fn = time_fn
        self._started_at = time_fn()
        self._ongoing: list[_Ongoing] = []
        self._happened: list[FaultResult] = []
        self._killed: dict[str, int | None] = {}  # task -> pid
        self._is_over = False

    def prepare(self, task: TaskProcess) -> None:
        """Sets the environment of a worker so that it reports and raises when due; call before each of its starts."""
        if not self._milestones or task.job_name != "worker":
            return
        self._board.refresh()
        self._take_raised()  # so that a restarted worker does not raise again
        raises = [
            Raise(fault.step, fault.text)
            for fault in self._pending
            if fault.kind == "raise" and fault.task == task.name and fault.step is not None
        ]
        due = DueFaults(tuple(self._milestones), tuple(raises))
        task.env = {**(task.env or {}), due_faults.VARIABLE: due.to_text()}

    def begin(self) -> None:
        """Starts the time from which `after_secs` counts; call just before the tasks start."""
        self._started_at = self._time_fn()

    def tick(self, tell: Callable[[TaskProcess, str], None]) -> None:
        """Injects and ends the faults that are due.

        Args:
            tell: Function that receives a task and a description of its event.

        Raises:
            RunError: The link of a host cannot be set.
        """
        # Once the tasks are asked to end, no fault may hit one that saves its last checkpoint.
        if self._is_over or not (self._pending or self._ongoing):
            return
        self._board.refresh()
        for ongoing in list(self._ongoing):
            self._go_on(ongoing, tell)
        self._take_raised()
        for fault in list(self._pending):
            if fault.kind != "raise" and self._is_due(fault):
                self._do(fault, self._tasks[fault.task], tell)

    @property
    def secs_to_next(self) -> float:
        """Seconds until the next call of `tick` that must not be late; infinite if there is none."""
        times = [at for ongoing in self._ongoing for at in (ongoing.next_at, ongoing.ends_at) if at is not None]
        return max(0.0, min(times, default=float("inf")) - self._time_fn())

    def end(self) -> None:
        """Ends all ongoing faults, so that the tasks can end, and cancels the faults that have not happened."""
        self._is_over = True
        while self._ongoing:
            self._ongoing.pop().end()

    def report(self) -> list[FaultResult]:
        """Returns the result of each fault, in the order of events; faults that did not happen come last."""
        self._board.refresh()
        self._take_raised()
        never = "the run ended before"
        return self._happened + [FaultResult(fault, missed=never) for fault in self._pending]

    def _take_raised(self) -> None:
        raised = {event.fault: event for event in self._board.events if event.event == "raise"}
        for fault in [fault for fault in self._pending if fault.kind == "raise" and fault.text in raised]:
            self._pending.remove(fault)
            self._happened.append(FaultResult(fault, raised[fault.text].global_step))

    def _is_due(self, fault: Fault) -> bool:
        if fault.after_secs is not None:
            return self._time_fn() >= self._started_at + fault.after_secs
        return fault.step is not None and (self._board.reached_step or 0) >= fault.step

    def _do(self, fault: Fault, task: TaskProcess, tell: Callable[[TaskProcess, str], None]) -> None:
        if not task.is_running or self._killed.get(task.name) == task.pid:
            # After any other end the task may be restarted, so the fault stays pending for the new process.
            if task.exit_code == 0:
                self._pending.remove(fault)
                self._happened.append(FaultResult(fault, missed="the task had ended before"))
                self._note("missed", fault, tell)
            return
        self._pending.remove(fault)
        self._happened.append(FaultResult(fault, self._board.reached_step))
        self._note("slow" if fault.kind == "slow_ps" else fault.kind, fault, tell)
        if fault.kind == "cut":
            self._set_link(task.name, is_up=False)
            self._last(fault, "restore", functools.partial(self._set_link, task.name, is_up=True))
            return
        task.send(_SIGNALS[fault.kind])
        if fault.kind == "kill":
            self._killed[task.name] = task.pid  # it has died, even if the supervisor has not noticed yet
        if fault.kind in ("freeze", "slow_ps"):
            end = functools.partial(task.send, signal.SIGCONT)
            self._last(fault, "continue" if fault.kind == "freeze" else "even", end)

    def _last(self, fault: Fault, end_event: str, end: Callable[[], None]) -> None:
        now = self._time_fn()
        self._ongoing.append(
            _Ongoing(
                fault=fault,
                end_event=end_event,
                ends_at=None if fault.secs is None else now + fault.secs,
                end=end,
                pid=self._tasks[fault.task].pid if fault.kind == "freeze" else None,
                next_at=None if fault.ms is None else now + fault.ms * _MILLI,
            )
        )

    def _go_on(self, ongoing: _Ongoing, tell: Callable[[TaskProcess, str], None]) -> None:
        now = self._time_fn()
        task = self._tasks[ongoing.fault.task]
        if ongoing.pid is not None and (ongoing.pid != task.pid or not task.is_running):
            self._ongoing.remove(ongoing)  # killed while it was frozen
        elif ongoing.ends_at is not None and now >= ongoing.ends_at:
            self._ongoing.remove(ongoing)
            self._note(
                ongoing.end_event, ongoing.fault, tell
            )  # before the signal, so that the event precedes the task's own reports
            ongoing.end()
        elif ongoing.next_at is not None and ongoing.fault.ms is not None and now >= ongoing.next_at:
            ongoing.is_stopped = not ongoing.is_stopped
            ongoing.next_at = now + ongoing.fault.ms * _MILLI
            task.send(signal.SIGSTOP if ongoing.is_stopped else signal.SIGCONT)

    def _note(self, event: str, fault: Fault, tell: Callable[[TaskProcess, str], None]) -> None:
        step = self._board.reached_step
        self._log.write(event, fault.task, step, fault=fault.text)
        at = "" if step is None else f" at step {step}"
        tell(self._tasks[fault.task], f"{_EVENT_TEXTS[event]}{at}, by --fault={fault.text}")

"""Carries out the faults of a drill (`ps_trainer/disturbances/faults.py`) on the tasks of a local cluster.

A step is reached when the first worker says so: workers of a drill write a line into their metrics at once when they
come to a step at which something is due (`disturbances/worker_faults.py`), and the supervisor looks there 20 times
a second.

A fault waits for its task: one that is down, and about to be started again, meets it when it runs. One that has done
its work misses it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from ps_trainer.disturbances import faults as faults_lib
from ps_trainer.disturbances.faults import Fault
from ps_trainer.launch.events import EventLog
from ps_trainer.launch.process import TaskProcess
from ps_trainer.launch.status import Board

_MILLI = 1e-3
_SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "freeze": signal.SIGSTOP, "slow_ps": signal.SIGSTOP}
_WORDS = {
    "kill": "SIGKILL",
    "term": "SIGTERM",
    "freeze": "frozen (SIGSTOP)",
    "continue": "goes on (SIGCONT)",
    "cut": "link cut",
    "restore": "link restored",
    "slow": "slow from now on",
    "even": "at full speed again",
    "missed": "had ended before",
}


@dataclasses.dataclass(kw_only=True)
class _Ongoing:
    """A fault that has begun and is not over.

    Attributes:
        fault: which.
        end_event: the event that ends it.
        ends_at: time of the clock, or None.
        end: puts things right.
        pid: of the process that was frozen, and with which the fault is over; None = whatever process the task is.
        next_at: of `slow_ps`, when the task is stopped or goes on.
        is_stopped: whether the task is stopped.
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
        faults: from `faults.parse_all`.
        tasks: of the run.
        board: tells the step.
        log: gets every event.
        set_link: `Hosts.set_link` of the hosts that the tasks run on.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        faults: Sequence[Fault],
        *,
        tasks: Sequence[TaskProcess],
        board: Board,
        log: EventLog,
        set_link: Callable[..., None],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._pending = list(faults)
        self._milestones = faults_lib.milestones(faults)
        self._tasks = {task.name: task for task in tasks}
        self._board = board
        self._log = log
        self._set_link = set_link
        self._clock = clock
        self._started_at = clock()
        self._ongoing: list[_Ongoing] = []
        self._happened: list[dict[str, Any]] = []
        self._killed: dict[str, int | None] = {}  # task -> pid
        self._is_over = False

    def prepare(self, task: TaskProcess) -> None:
        """Tells a worker, by its environment, what the drill needs of it; to be called before each of its starts."""
        if not self._milestones or task.job_name != "worker":
            return
        self._board.refresh()
        self._take_raised()  # nobody raises twice
        raises = [
            {"step": fault.step, "text": fault.text}
            for fault in self._pending
            if fault.kind == "raise" and fault.task == task.name
        ]
        task.env = {**(task.env or {}), faults_lib.VARIABLE: json.dumps({"steps": self._milestones, "raise": raises})}

    def begin(self) -> None:
        """The tasks are about to be started: `after_secs` count from here."""
        self._started_at = self._clock()

    def tick(self, tell: Callable[[TaskProcess, str], None]) -> None:
        """Does what is due.

        Args:
            tell: gets a task and what has been done to it, in words.

        Raises:
            RunError: the link of a host cannot be set.
        """
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
        """Seconds until `tick` has something to do that must not be late; infinite where there is nothing."""
        times = [at for ongoing in self._ongoing for at in (ongoing.next_at, ongoing.ends_at) if at is not None]
        return max(0.0, min(times, default=float("inf")) - self._clock())

    def end(self) -> None:
        """Puts everything right, so that the tasks can be asked to end; what has not happened will not."""
        self._is_over = True
        while self._ongoing:
            self._ongoing.pop().end()

    def report(self) -> list[dict[str, Any]]:
        """What became of each fault, as JSON values, in the order of events; those that never came last."""
        self._board.refresh()
        self._take_raised()
        never = "the run ended before"
        return self._happened + [{"fault": f.text, "task": f.task, "missed": never} for f in self._pending]

    def _take_raised(self) -> None:
        raised = {event.get("fault"): event for event in self._board.events if event.get("event") == "raise"}
        for fault in [fault for fault in self._pending if fault.kind == "raise" and fault.text in raised]:
            self._pending.remove(fault)
            step = raised[fault.text].get("global_step")
            self._happened.append({"fault": fault.text, "task": fault.task, "global_step": step})

    def _is_due(self, fault: Fault) -> bool:
        if fault.after_secs is not None:
            return self._clock() >= self._started_at + fault.after_secs
        return fault.step is not None and (self._board.reached_step or 0) >= fault.step

    def _do(self, fault: Fault, task: TaskProcess, tell: Callable[[TaskProcess, str], None]) -> None:
        if not task.is_running or self._killed.get(task.name) == task.pid:
            if task.exit_code == 0:
                self._pending.remove(fault)
                self._happened.append({"fault": fault.text, "task": fault.task, "missed": "the task had ended before"})
                self._note("missed", fault, tell)
            return
        self._pending.remove(fault)
        step = self._board.reached_step
        self._happened.append({"fault": fault.text, "task": fault.task, "global_step": step})
        self._note("slow" if fault.kind == "slow_ps" else fault.kind, fault, tell)
        if fault.kind == "cut":
            self._set_link(task.name, is_up=False)
            self._last(fault, "restore", functools.partial(self._set_link, task.name, is_up=True))
            return
        task.send(_SIGNALS[fault.kind])
        if fault.kind == "kill":
            self._killed[task.name] = task.pid  # it is gone, also before the supervisor has noticed
        if fault.kind in ("freeze", "slow_ps"):
            end = functools.partial(task.send, signal.SIGCONT)
            self._last(fault, "continue" if fault.kind == "freeze" else "even", end)

    def _last(self, fault: Fault, end_event: str, end: Callable[[], None]) -> None:
        now = self._clock()
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
        now = self._clock()
        task = self._tasks[ongoing.fault.task]
        if ongoing.pid is not None and (ongoing.pid != task.pid or not task.is_running):
            self._ongoing.remove(ongoing)  # killed while it was frozen
        elif ongoing.ends_at is not None and now >= ongoing.ends_at:
            self._ongoing.remove(ongoing)
            self._note(ongoing.end_event, ongoing.fault, tell)  # first, as in `_do`: what the task does comes later
            ongoing.end()
        elif ongoing.next_at is not None and ongoing.fault.ms is not None and now >= ongoing.next_at:
            ongoing.is_stopped = not ongoing.is_stopped
            ongoing.next_at = now + ongoing.fault.ms * _MILLI
            task.send(signal.SIGSTOP if ongoing.is_stopped else signal.SIGCONT)

    def _note(self, event: str, fault: Fault, tell: Callable[[TaskProcess, str], None]) -> None:
        step = self._board.reached_step
        self._log.write(event, fault.task, step, fault=fault.text)
        at = "" if step is None else f" at step {step}"
        tell(self._tasks[fault.task], f"{_WORDS[event]}{at}, by --fault={fault.text}")

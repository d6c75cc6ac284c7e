"""Watches, from a worker, the ps tasks, and through them the other workers."""

from __future__ import annotations

import dataclasses
import functools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.errors import PeerFailedError, PsLostError, RunReplacedError
from ps_trainer.runtime.control import PsControl, PsState
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.lost_task_errors import reason_to_stop
from ps_trainer.runtime.run_record import FINAL, RunRecord, RunStatus, Status, WorkerEntry
from ps_trainer.runtime.suspension import SuspensionDetector

# For a callback that is under way when the watcher is closed, such as a call of a rule's service to a frozen ps task. A
# worker closes the session of that call first, so the callback soon returns. No relation to `job_runner.ABORT_SECS`.
_CLOSE_SECS = 5.0


class _PsPoller:
    """Asks one ps task again and again, in a separate thread, since a call to a dead task takes seconds.

    Args:
        ps: Client of the ps task.
        poll_secs: Time from an answer to the next question.
        closing: Event that ends the thread.
        news: Event that is set at each answer.

    Attributes:
        ps: Client of the ps task.
        problem: Error of the last call that failed.
    """

    def __init__(self, ps: PsControl, poll_secs: float, closing: threading.Event, news: threading.Event):
        self.ps = ps
        self._poll_secs = poll_secs
        self.problem = "a call to it does not return"
        self._closing = closing
        self._news = news
        self._answers: queue.SimpleQueue[PsState | Exception] = queue.SimpleQueue()
        threading.Thread(target=self._ask, name=f"ask-{ps.name}", daemon=True).start()

    def answers(self) -> Iterator[PsState]:
        """Yields the answers since the last call of this method; raises errors other than a missing answer."""
        while not self._answers.empty():
            answer = self._answers.get()
            if isinstance(answer, Exception):
                raise answer
            yield answer

    def _ask(self) -> None:
        while not self._closing.wait(self._poll_secs):
            try:
                self._answers.put(self.ps.read())
            except tf.errors.OpError as error:
                # No loss yet: a busy ps task may miss the deadline of one call. `Watcher` judges by the silence.
                self.problem = error.message
            except Exception as error:  # noqa: BLE001 - raised by `answers`
                self._answers.put(error)
            self._news.set()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reactions:
    """Callbacks of a `Watcher`, by default without effect.

    An error of a callback asks the job to stop, as a `LostError` if it means that a task is lost. A callback must not
    wait for a task without a deadline, because the watcher watches nothing in that time.

    Attributes:
        on_worker_start: Callback with the index of another worker that has become ready to train.
        on_worker_return: Callback with the index of another worker that was restarted before its loss was noticed.
        on_worker_end: Callback with the index and status of another worker that has ended or is lost, and the
            join number of the process that has left.
        on_poll: Callback at every poll.
    """

    on_worker_start: Callable[[int], None] = lambda index: None
    on_worker_return: Callable[[int], None] = lambda index: None
    on_worker_end: Callable[[int, Status, int], None] = lambda index, status, join_number: None
    on_poll: Callable[[], None] = lambda: None


class Watcher:
    """A thread that polls every ps task, and asks the job to stop when this worker cannot continue.

    * A ps task that got a signal writes a notice, and ends the job.
    * A chief that failed or was interrupted ends the job.
    * A ps task that has not answered for `lost_after_secs`, or was restarted, is lost if it holds state of the run. A
      worker beside its control plane that holds none is lost as a worker only, as ps 0 reports it.
    * A run that replaces this one ends it.

    Args:
        controls: Client of each ps task.
        run: Record of the run.
        worker_index: Index of this worker.
        stop: Request by which the watcher stops the job.
        reactions: Callbacks about the other workers.
        lost_after_secs: Time without an answer after which a ps task counts as lost.
        poll_secs: Time from an answer of a ps task to the next question; at most a third of `lost_after_secs`.
        time_fn: Monotonic time in seconds.

    Attributes:
        run_status: Status of the run; None before the first poll.
        reached: Sentence which says that the target metric is reached; empty before that.
        roster: Last report of each worker, by index; a copy of the roster on ps 0.
    """

    def __init__(
        self,
        controls: Sequence[PsControl],
        run: RunRecord,
        worker_index: int,
        stop: StopRequest,
        reactions: Reactions,
        *,
        lost_after_secs: float = 30.0,
        poll_secs: float = 0.25,
        time_fn: Callable[[], float] = time.monotonic,
    ):
        self._controls = controls
        self._run = run
        self._worker_index = worker_index
        self._stop = stop
        self._reactions = reactions
        self._lost_after_secs = lost_after_secs
        self._poll_secs = min(poll_secs, lost_after_secs / 3)
        self._time_fn = time_fn
        self._started: dict[int, int] = {}  # index -> its join number
        self._ended: dict[int, tuple[Status, int]] = {}
        self._closing = threading.Event()
        self._news = threading.Event()
        self.run_status: RunStatus | None = None
        self.reached = run.reached
        self.roster: Mapping[int, WorkerEntry] = {}
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; returns when it has ended, or after a few seconds if a callback does not return."""
        self._closing.set()
        self._news.set()
        if self._thread.is_alive():  # it was never started if the run failed early
            self._thread.join(_CLOSE_SECS)

    def _watch(self) -> None:
        pause = SuspensionDetector(self._time_fn())
        pollers = [_PsPoller(ps, self._poll_secs, self._closing, self._news) for ps in self._controls]
        answered_at = dict.fromkeys(pollers, self._time_fn())
        while True:
            # Waits for news instead of a fixed time, so that a start does not wait for the next poll of this loop too.
            self._news.wait(self._poll_secs)
            self._news.clear()
            if self._closing.is_set():
                return
            self._call_or_stop(self._reactions.on_poll)
            now = self._time_fn()
            paused = pause.secs_suspended(now)
            for poller in pollers:
                # This process asked nothing while it was suspended, so that time is not a silence of the ps task.
                answered_at[poller] += paused
                self._call_or_stop(functools.partial(self._take_answers, poller, answered_at, now))
                silent = now - answered_at[poller]
                if (
                    silent > self._lost_after_secs
                    and self._run.holds_state(poller.ps.ps)
                    and not self._closing.is_set()
                ):
                    reason = f"{poller.ps.name} has not answered for {silent:.0f} s ({poller.problem})"
                    self._stop.request(PsLostError(reason))

    def _call_or_stop(self, look: Callable[[], None]) -> None:
        """Calls `look`; an error asks the job to stop, and the thread continues to watch."""
        try:
            look()
        except Exception as error:  # noqa: BLE001 - a job whose state is not understood must not continue
            if not self._closing.is_set():
                self._stop.request(reason_to_stop(error))

    def _take_answers(self, poller: _PsPoller, answered_at: dict[_PsPoller, float], now: float) -> None:
        for state in poller.answers():
            answered_at[poller] = now
            self._look_at(poller.ps, state)

    def _look_at(self, ps: PsControl, state: PsState) -> None:
        if state.notice is not None:
            self._stop.request(PeerFailedError(f"the job ends because {state.notice.reason}"))
        if self._run.holds_state(ps.ps) and state.incarnation != self._run.incarnations[ps.ps]:
            self._stop.request(PsLostError(f"{ps.name} was restarted, without the state of the run"))
        # Every ps task keeps a roster. One of them is enough, and only ps 0 holds the run record to which it belongs.
        if ps.ps != 0 or state.run is None:
            return
        if state.run.run_id != self._run.run_id:
            self._stop.request(RunReplacedError("the chief has replaced the run by a new one"))
        elif state.run.failure:
            self._stop.request(PeerFailedError(f"the chief ended: {state.run.failure}"))
        if state.roster is None or state.roster.run_id != self._run.run_id:
            return
        self.run_status, self.reached, self.roster = state.run.status, state.run.reached, state.roster.workers
        for index, entry in self.roster.items():
            if index != self._worker_index and not self._closing.is_set():
                self._look_at_worker(index, entry)

    def _look_at_worker(self, index: int, entry: WorkerEntry) -> None:
        status, join_number = entry.status, entry.joining
        # If a worker was restarted between two polls, only its join number shows it.
        if status in (Status.JOINED, Status.TRAINING) and self._started.get(index, join_number) != join_number:
            del self._started[index]
            logging.warning("worker %d was restarted", index)
            self._reactions.on_worker_return(index)
        if status is Status.TRAINING and index not in self._started:
            self._started[index] = join_number
            self._ended.pop(index, None)
            self._reactions.on_worker_start(index)
        if status not in (*FINAL, Status.LOST) or self._ended.get(index) == (status, join_number):
            return
        # Noted before the callback, so that an error in it does not repeat the report at each poll.
        self._ended[index] = status, join_number
        self._started.pop(index, None)
        if status is not Status.DONE:
            reason = f"worker {index} {status}: {entry.reason or 'it gave no reason'}"
            logging.warning("%s", reason)
            # A lost chief may come back, and continue the run.
            if index == 0 and status is not Status.LOST:
                self._stop.request(PeerFailedError(f"the chief ended: {reason}"))
        self._reactions.on_worker_end(index, status, join_number)

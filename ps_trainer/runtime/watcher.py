"""Watches, from a worker, what the ps tasks know of the others."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.errors import PeerFailedError, PsLostError, RunReplacedError
from ps_trainer.runtime import control
from ps_trainer.runtime.control import PsControl, PsState
from ps_trainer.runtime.lost import reason_to_stop
from ps_trainer.runtime.supervise import StopRequest
from ps_trainer.runtime.suspension import SuspensionDetector

_POLL_SECS = 0.25
_CLOSE_SECS = 5.0  # for a callback that is under way when the watcher is closed


class _Asked:
    """A ps task that is asked again and again, in a thread of its own: where it does not answer, a call takes seconds.

    Args:
        ps: its client.
        closing: ends the thread.
        news: set at each answer.

    Attributes:
        ps: see above.
        problem: what the last call failed with.
    """

    def __init__(self, ps: PsControl, closing: threading.Event, news: threading.Event):
        self.ps = ps
        self.problem = "a call to it does not return"
        self._closing = closing
        self._news = news
        self._answers: queue.SimpleQueue[PsState | Exception] = queue.SimpleQueue()
        threading.Thread(target=self._ask, name=f"ask-{ps.name}", daemon=True).start()

    def answers(self) -> Iterator[PsState]:
        """What it has answered since the last call of this; raises what no silence explains."""
        while not self._answers.empty():
            answer = self._answers.get()
            if isinstance(answer, Exception):
                raise answer
            yield answer

    def _ask(self) -> None:
        while not self._closing.wait(_POLL_SECS):
            try:
                self._answers.put(self.ps.read())
            except tf.errors.OpError as error:
                self.problem = error.message
            except Exception as error:  # noqa: BLE001 - raised where the answers are looked at
                self._answers.put(error)
            self._news.set()


class Watcher:
    """A thread that polls every ps task and asks the job to stop when another task's end ends it too.

    * a ps task that got a signal (its notice) ends the job;
    * a chief that failed or was interrupted ends the job;
    * a ps task that has not answered for `lost_after_secs`, or was started anew, is lost;
    * a run that the chief has begun in place of this one ends it.

    An error of a callback asks the job to stop as well: as a `LostError` where it says that a task is lost, else as it
    is. No callback may wait for a task without a deadline, as nobody watches meanwhile.

    Args:
        controls: client of each ps task.
        run: the run's record.
        worker_index: this worker's.
        stop: asked to stop.
        on_worker_start: called with the index of every other worker that is ready to train.
        on_worker_return: called with the index of one that has come back before anybody knew that it was gone.
        on_worker_end: called with index and status of every other worker that ends, or is lost, and the number of its
            joining that is over.
        on_poll: called at every poll.
        lost_after_secs: see above.
        clock: seconds, monotonic.

    Attributes:
        run_status: of the run record; "" before the first poll.
        reached: of the run record: that the target metric is reached, in words; "" as long as it is not.
        roster: what each worker said last, by index; a copy of ps 0's.
    """

    def __init__(
        self,
        controls: Sequence[PsControl],
        run: Mapping[str, Any],
        worker_index: int,
        stop: StopRequest,
        on_worker_start: Callable[[int], None],
        on_worker_return: Callable[[int], None],
        on_worker_end: Callable[[int, str, int], None],
        on_poll: Callable[[], None],
        *,
        lost_after_secs: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._controls = controls
        self._run = run
        self._worker_index = worker_index
        self._stop = stop
        self._on_worker_start = on_worker_start
        self._on_worker_return = on_worker_return
        self._on_worker_end = on_worker_end
        self._on_poll = on_poll
        self._lost_after_secs = lost_after_secs
        self._clock = clock
        self._started: dict[int, int] = {}  # index -> number of its joining
        self._ended: dict[int, tuple[str, int]] = {}
        self._closing = threading.Event()
        self._news = threading.Event()
        self.run_status = ""
        self.reached = run.get("reached", "")
        self.roster: dict[int, dict] = {}
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; returns when it has ended, or soon after that where a callback does not return."""
        self._closing.set()
        self._news.set()
        if self._thread.is_alive():  # not where the run failed before it was watched
            self._thread.join(_CLOSE_SECS)

    def _watch(self) -> None:
        pause = SuspensionDetector(self._clock())
        asked = [_Asked(ps, self._closing, self._news) for ps in self._controls]
        answered_at = dict.fromkeys(asked, self._clock())
        while True:
            self._news.wait(_POLL_SECS)  # who waits for the others' start is not to wait for a look as well
            self._news.clear()
            if self._closing.is_set():
                return
            self._guarded(self._on_poll)
            now = self._clock()
            paused = pause.look(now)
            for one in asked:
                answered_at[one] += paused
                self._guarded(lambda one=one, now=now: self._look_at_answers(one, answered_at, now))
                silent = now - answered_at[one]
                if silent > self._lost_after_secs and not self._closing.is_set():
                    reason = f"{one.ps.name} has not answered for {silent:.0f} s ({one.problem})"
                    self._stop.request(PsLostError(reason))

    def _guarded(self, look: Callable[[], None]) -> None:
        """Looks at something; an error asks the job to stop, and the thread goes on to watch."""
        try:
            look()
        except Exception as error:  # noqa: BLE001 - a job whose state is not understood must not go on
            if not self._closing.is_set():
                self._stop.request(reason_to_stop(error))

    def _look_at_answers(self, one: _Asked, answered_at: dict[_Asked, float], now: float) -> None:
        for state in one.answers():
            answered_at[one] = now
            self._look_at(one.ps, state)

    def _look_at(self, ps: PsControl, state: PsState) -> None:
        if state.notice:
            self._stop.request(PeerFailedError(f"the job ends because {state.notice['reason']}"))
        if state.hello.get("incarnation") != self._run["ps"][ps.ps]:
            self._stop.request(PsLostError(f"{ps.name} was started anew, without the state of the run"))
        if ps.ps != 0 or not state.run:
            return
        if state.run["run_id"] != self._run["run_id"]:
            self._stop.request(RunReplacedError("the chief has begun the run anew"))
        elif failure := state.run.get("failure"):
            self._stop.request(PeerFailedError(f"the chief ended: {failure}"))
        if state.roster.get("run_id") != self._run["run_id"]:
            return
        self.run_status, self.reached = state.run["status"], state.run.get("reached", "")
        self.roster = {int(index): entry for index, entry in state.roster["workers"].items()}
        for index, entry in self.roster.items():
            if index != self._worker_index and not self._closing.is_set():
                self._look_at_worker(index, entry)

    def _look_at_worker(self, index: int, entry: dict) -> None:
        status = entry["status"]
        joining = entry.get("joining", 0)
        if status in (control.JOINED, control.TRAINING) and self._started.get(index, joining) != joining:
            del self._started[index]
            logging.warning("worker %d was started again", index)
            self._on_worker_return(index)
        if status == control.TRAINING and index not in self._started:
            self._started[index] = joining
            self._ended.pop(index, None)
            self._on_worker_start(index)
        if status not in (*control.FINAL, control.LOST) or self._ended.get(index) == (status, joining):
            return
        self._ended[index] = status, joining
        self._started.pop(index, None)
        if status != control.DONE:
            reason = f"worker {index} {status}: {entry.get('reason')}"
            logging.warning("%s", reason)
            if index == 0 and status != control.LOST:
                self._stop.request(PeerFailedError(f"the chief ended: {reason}"))
        self._on_worker_end(index, status, joining)

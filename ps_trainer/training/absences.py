"""`Absences`: decides whether the run continues, waits or ends when a worker is lost or ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from absl import logging

from ps_trainer.config import TrainConfig
from ps_trainer.errors import PeerFailedError, PeerLostError
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.run_record import Status
from ps_trainer.runtime.suspension import SuspensionDetector
from ps_trainer.updates.chief_service import ChiefService


class _Need(NamedTuple):
    """An absent worker that the update rule needs.

    Attributes:
        reason: Sentence about the absence, for messages.
        join_number: Join number of the process that has ended.
    """

    reason: str
    join_number: int


class Absences:
    """Tracks the absent workers; on the chief it also informs the rule's service.

        absent worker, and                       the chief
        at least `min_workers` are left          tells the service, which makes updates without the worker
        fewer are left, and it may return        does not tell the service. The other workers wait within their step,
                                                 keep their sessions, and continue when the worker has rejoined
        it is absent for `recover_timeout_secs`  ends the run, if the service was not told
        fewer are left, and it cannot return     ends the run

    Args:
        config: Configuration of the run.
        num_workers: Number of workers that train.
        min_workers: Smallest number of workers with which the rule makes updates.
        service: Service of the rule, on a chief whose rule has one.
        needs_all: Whether the rule uses collectives. Then no step ends while a worker is absent, so the job stops at
            once.
        is_crash_safe: Whether the state on the ps tasks stays right when a worker dies (`UpdateRule.is_crash_safe`). If
            not, the job stops as soon as fewer workers than `min_workers` are left.
        stop: Stop request, made when the run cannot continue.
        report: Function that reports for which worker the run waits.
        time_fn: Function that returns monotonic seconds.

    Attributes:
        waited_at: Last time at which a worker that may return was absent. A step that began before may take long
            without being a stall.
    """

    def __init__(
        self,
        config: TrainConfig,
        num_workers: int,
        min_workers: int,
        service: ChiefService | None,
        *,
        needs_all: bool,
        is_crash_safe: bool = True,
        stop: StopRequest,
        report: Callable[[str], None],
        time_fn: Callable[[], float] = time.monotonic,
    ):
        self._config = config
        self._num_workers = num_workers
        self._min_workers = min_workers
        self._service = service
        self._needs_all = needs_all
        self._is_crash_safe = is_crash_safe
        # SIGTERM often means that the machine was preempted: it, or another one, will run the worker again.
        self._may_be_replaced = config.recover_timeout_secs > 0 and not needs_all
        self._stop = stop
        self._report = report
        self._time_fn = time_fn
        self._pause = SuspensionDetector(time_fn())
        self._gone: set[int] = set()
        self._may_return: dict[int, float] = {}  # time at which each of them was lost, if it may return
        self._waited_for: dict[int, _Need] = {}  # those of them that the service still counts
        self.waited_at = time_fn()

    def on_worker_start(self, index: int) -> None:
        """Notes that a worker is ready to train."""
        self._forget(index)
        if self._service is not None:
            self._service.worker_came(index)
            # With this worker, enough may be there again. Then no worker waits any more for the workers still absent.
            self._tell_if_enough()

    def on_worker_end(self, index: int, status: Status, join_number: int) -> None:
        """Notes that a worker is done, is lost, or has ended otherwise.

        Args:
            index: Index of the worker.
            status: Status with which it ended.
            join_number: Join number of the process that has ended.
        """
        self._forget(index)
        if status != Status.DONE:
            self._gone.add(index)
            if status == Status.LOST or (status == Status.INTERRUPTED and self._may_be_replaced):
                self._may_return[index] = self._time_fn()
        if status != Status.DONE and (self._needs_all or not (self._is_crash_safe or self._is_enough())):
            error = PeerLostError if index in self._may_return else PeerFailedError
            self._stop.request(error(self._need_of(index, status)))
        elif self._service is not None and (status == Status.DONE or self._is_enough()):
            # A worker that is done pushes nothing more, so the service must know it, whatever `min_workers` says.
            if status != Status.DONE:
                num_left = self._num_workers - len(self._gone)
                logging.warning("worker %d %s; training continues with the other %d", index, status, num_left)
            self._service.worker_left(index, join_number)
        elif self._service is not None:
            self._wait_for(index, _Need(self._need_of(index, status), join_number))

    def on_worker_return(self, index: int) -> None:
        """Notes that a worker was restarted before its loss was noticed."""
        if not self._is_crash_safe and self._min_workers == self._num_workers:
            rule = self._config.update
            self._stop.request(PeerLostError(f"worker {index} was restarted, and update rule {rule} needs all"))

    def check(self) -> None:
        """Checks the time limits; called several times a second.

        Raises:
            PeerFailedError: A worker that the rule needs has been absent for `recover_timeout_secs`.
        """
        now = self._time_fn()
        paused = self._pause.secs_suspended(now)
        for index in list(self._may_return):
            # This process could not see a return while it was suspended, so that time does not count.
            self._may_return[index] += paused
            if now - self._may_return[index] > self._config.recover_timeout_secs:
                del self._may_return[index]
                if index in self._waited_for:
                    limit = f"{self._config.recover_timeout_secs:.0f} s (--recover_timeout_secs)"
                    raise PeerFailedError(f"{self._waited_for[index].reason}; it did not rejoin within {limit}")
        if self._may_return:
            self.waited_at = now

    def _wait_for(self, index: int, need: _Need) -> None:
        if index in self._may_return:
            self._waited_for[index] = need
            self._report(f"{need.reason}; waiting up to {self._config.recover_timeout_secs:.0f} s for it to rejoin")
        else:
            self._stop.request(PeerFailedError(need.reason))

    def _tell_if_enough(self) -> None:
        """Tells the service of the absent workers that it still counts, if enough other workers are left."""
        if self._service is not None and self._is_enough():
            for index in sorted(self._waited_for):
                need = self._waited_for.pop(index)
                self._service.worker_left(index, need.join_number)

    def _is_enough(self) -> bool:
        return self._num_workers - len(self._gone) >= self._min_workers

    def _need_of(self, index: int, status: Status) -> str:
        needed = "all" if self._min_workers == self._num_workers else f"{self._min_workers} workers"
        return f"worker {index} {status}, and update rule {self._config.update} needs {needed}"

    def _forget(self, index: int) -> None:
        self._gone.discard(index)
        self._may_return.pop(index, None)
        self._waited_for.pop(index, None)

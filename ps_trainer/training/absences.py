"""The workers that are gone, as another worker sees it: whether the run goes on without them, waits, or ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from absl import logging

from ps_trainer.config import TrainConfig
from ps_trainer.errors import PeerFailedError, PeerLostError
from ps_trainer.runtime.run_record import Status
from ps_trainer.runtime.supervise import StopRequest
from ps_trainer.runtime.suspension import SuspensionDetector
from ps_trainer.updates.base import ChiefService


class _Need(NamedTuple):
    """Of a worker that is gone, and that the rule needs.

    Attributes:
        reason: that it is so, in words.
        joining: number of its joining that is over.
    """

    reason: str
    joining: int


class Absences:
    """Keeps the workers that are gone; on the chief it tells the rule's service of them.

    The service of a rule is told of a worker that is gone as long as `min_workers` are left: updates are made without
    it. With fewer, the service is not told: the rule still counts the worker, and the other workers wait for it within
    their step. They keep their sessions, and go on as soon as it has rejoined. A worker that does not come back within
    `recover_timeout_secs` ends the run.

    Args:
        config: the run.
        num_workers: workers that train.
        min_workers: the workers without which the rule makes no update.
        service: the rule's, on a chief whose rule has one.
        needs_all: whether the workers are joined by collectives. Then no step ends without a worker that is gone, so
            the job is asked to stop at once.
        stop: asked to stop where the run ends for want of a worker.
        say: told what is waited for.
        clock: seconds, monotonic.

    Attributes:
        waited_at: when a worker was last gone that may come back; that a step takes long until then is no stall.
    """

    def __init__(
        self,
        config: TrainConfig,
        num_workers: int,
        min_workers: int,
        service: ChiefService | None,
        *,
        needs_all: bool,
        stop: StopRequest,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._config = config
        self._num_workers = num_workers
        self._min_workers = min_workers
        self._service = service
        self._needs_all = needs_all
        # A machine that was taken away (SIGTERM) is given back, or another one is.
        self._may_be_replaced = config.recover_timeout_secs > 0 and not needs_all
        self._stop = stop
        self._say = say
        self._clock = clock
        self._pause = SuspensionDetector(clock())
        self._gone: set[int] = set()
        self._may_return: dict[int, float] = {}  # of those, since when they have been gone
        self._waited_for: dict[int, _Need] = {}  # of those, whom the service still counts
        self.waited_at = clock()

    def started(self, index: int) -> None:
        """A worker is ready to train."""
        self._forget(index)
        if self._service is not None:
            self._service.worker_came(index)
            self._tell_if_enough()

    def ended(self, index: int, status: Status, joining: int) -> None:
        """A worker is done, is lost, or has ended otherwise; `joining` is the number of its joining that is over."""
        self._forget(index)
        if status != Status.DONE:
            self._gone.add(index)
            if status == Status.LOST or (status == Status.INTERRUPTED and self._may_be_replaced):
                self._may_return[index] = self._clock()
        if self._needs_all and status != Status.DONE:
            error = PeerLostError if index in self._may_return else PeerFailedError
            self._stop.request(error(self._need_of(index, status)))
        elif self._service is not None and (status == Status.DONE or self._is_enough()):
            if status != Status.DONE:
                num_left = self._num_workers - len(self._gone)
                logging.warning("worker %d %s; training goes on with the other %d", index, status, num_left)
            self._service.worker_left(index, joining)
        elif self._service is not None:
            self._wait_for(index, _Need(self._need_of(index, status), joining))

    def look(self) -> None:
        """Looks at the clock; called a few times a second.

        Raises:
            PeerFailedError: a worker that updates need has been gone for `recover_timeout_secs`.
        """
        now = self._clock()
        paused = self._pause.look(now)
        for index in list(self._may_return):
            self._may_return[index] += paused
            if now - self._may_return[index] > self._config.recover_timeout_secs:
                del self._may_return[index]
                if index in self._waited_for:
                    limit = f"{self._config.recover_timeout_secs:.0f} s (--recover_timeout_secs)"
                    raise PeerFailedError(f"{self._waited_for[index].reason}; it did not come back within {limit}")
        if self._may_return:
            self.waited_at = now

    def _wait_for(self, index: int, need: _Need) -> None:
        if index in self._may_return:
            self._waited_for[index] = need
            self._say(f"{need.reason}; waiting up to {self._config.recover_timeout_secs:.0f} s for it to come back")
        else:
            self._stop.request(PeerFailedError(need.reason))

    def _tell_if_enough(self) -> None:
        """Tells the service of those who were waited for, now that enough others are there."""
        if self._is_enough():
            for index in sorted(self._waited_for):
                need = self._waited_for.pop(index)
                self._service.worker_left(index, need.joining)

    def _is_enough(self) -> bool:
        return self._num_workers - len(self._gone) >= self._min_workers

    def _need_of(self, index: int, status: Status) -> str:
        needed = "all" if self._min_workers == self._num_workers else f"{self._min_workers} workers"
        return f"worker {index} {status}, and update rule {self._config.update} needs {needed}"

    def _forget(self, index: int) -> None:
        self._gone.discard(index)
        self._may_return.pop(index, None)
        self._waited_for.pop(index, None)

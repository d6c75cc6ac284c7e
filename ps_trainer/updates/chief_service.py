"""`ChiefService`: the interface of the chief's work for an update rule between the workers' steps."""

from __future__ import annotations

import abc
from typing import NamedTuple

import tensorflow.compat.v1 as tf


class GradientCounts(NamedTuple):
    """Numbers of gradients so far, by the worker's index.

    Attributes:
        pushed: Gradients that arrived on the ps task.
        used: Gradients that updates used.
    """

    pushed: tuple[int, ...]
    used: tuple[int, ...]


class ChiefService(abc.ABC):
    """Acts for a rule in the chief's process, in a separate thread, between `start` and `stop`.

    Its methods may be called from any thread. The thread that calls `worker_came` and `worker_left` watches the other
    tasks, so these two methods must not wait for a frozen task.
    """

    @abc.abstractmethod
    def start(self, session: tf.Session) -> None:
        """Starts the thread.

        Args:
            session: Session of the service's own, each call of which has a deadline. `stop` closes it.
        """

    @abc.abstractmethod
    def worker_came(self, worker_index: int) -> None:
        """Records that a worker is ready to train; every worker counts from the start until it leaves. Never waits."""

    @abc.abstractmethod
    def worker_left(self, worker_index: int, join_number: int) -> None:
        """Records that a worker is lost or has no more data, so that nothing waits for it any more. Never waits.

        Args:
            worker_index: Index of the worker.
            join_number: Join number of the process that has left, 0 if the worker never joined. A later join of the
                worker stays, even if it arrives before the record is carried out.
        """

    @abc.abstractmethod
    def release(self) -> None:
        """Lets every worker that waits for the rule continue, with `RELEASED`; returns when that is done.

        Raises:
            tf.errors.OpError: A ps task does not answer.
        """

    @abc.abstractmethod
    def stop(self) -> None:
        """Ends the thread; returns when it has ended or its deadline is over. `error` tells what failed before."""

    @abc.abstractmethod
    def error(self) -> BaseException | None:
        """Returns the first error of the thread, or None."""

    @abc.abstractmethod
    def gradient_counts(self) -> GradientCounts | None:
        """Returns the gradients of each worker; None for a rule in which every gradient makes an update.

        The counts include the effect of all earlier calls of this service.

        Raises:
            tf.errors.OpError: A ps task does not answer.
        """

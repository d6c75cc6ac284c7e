"""`Straggler`: a delay in each step of a worker, between its pull and its push, for the flag `--straggler`.

The worker computes its gradient from the parameters and table rows that it has read, and holds it back for a sampled
time. Then it continues as if the computation had taken that much longer. A *paced* delay counts from the start of the
step, when the step's parameters are on the worker. The step then computes for that time in all, however long its
arithmetic takes. If the arithmetic takes longer than the delay, the step continues at once.

The worker read everything before the delay, so the logged staleness is the staleness of the gradient. Steps that send
nothing are delayed as well, each step once. A step that ends for lack of data is not delayed.

Workers need not share this setting: each worker follows its own flags.

The graph waits in a queue's dequeue, which blocks no thread of TensorFlow. A Python function in the graph samples the
delay and returns at once; a thread of this worker sleeps, then lets the step pass. That adds about 2 ms to the delay.
Each step waits for a pass with its own number. If a step is cancelled in its delay, its pass stays in the queue, and
the next step drops that pass.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.disturbances import delays
from ps_trainer.disturbances.delays import DelaySpec
from ps_trainer.store.pieces import Gradient


class _Question(NamedTuple):
    """A step that waits in its delay."""

    number: int  # number of its pass
    delay: float  # seconds that it still waits
    sampled: float  # its delay in seconds, the part before this question included


class Straggler:
    """Holds back the gradient of each step of one worker.

    Args:
        next_delay: Function that returns the delay of the next step in seconds.
        worker_index: Index of the worker.
        device: Device of the worker, "/job:worker/task:0".
        container: Container of the run's resources on the worker.
        is_paced: Whether the delay counts from `begin_step` instead of the end of the computation.
        time_fn: Function that returns monotonic seconds.

    Attributes:
        last_delay: Delay of the last step in seconds, of a paced one with the computation; 0 before the first step, and
            for a step whose delay was cut short.
    """

    def __init__(
        self,
        next_delay: Callable[[], float],
        *,
        worker_index: int,
        device: str,
        container: str,
        is_paced: bool = False,
        time_fn: Callable[[], float] = time.monotonic,
    ):
        self.worker_index = worker_index
        self.last_delay = 0.0
        self._next_delay = next_delay
        self._is_paced = is_paced
        self._time_fn = time_fn
        self._began_at = time_fn()
        self._device = device
        self._container = container
        self._asked: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        # Larger than the numbers of the stragglers before this one, whose passes may still be in the queue.
        self._newest = time.monotonic_ns()
        self._may_go = False
        self._thread: threading.Thread | None = None

    def begin_step(self) -> None:
        """Notes that a step begins; its parameters are on the worker."""
        self._began_at = self._time_fn()

    def hold_back(self, gradients: Sequence[Gradient]) -> list[Gradient]:
        """Returns the same gradients on the same devices, available once all are computed and the delay is over."""
        with tf.device(self._device), tf.name_scope("straggler"):
            with tf.control_dependencies([_values(gradient.value) for gradient in gradients]):
                number = tf.numpy_function(self._ask, [], tf.int64)
            number.set_shape([])
            passes = self._passes()
            first = tf.constant(0, tf.int64)
            passed = tf.while_loop(lambda last: last < number, lambda _: passes.dequeue(), [first])
            with tf.control_dependencies([passed]):
                return [_identity(gradient) for gradient in gradients]

    def start(self, open_session: Callable[[Callable[[], Any]], tuple[tf.Session, Any]]) -> None:
        """Starts the thread that sleeps for the steps; call before the first step.

        Args:
            open_session: Function that builds ops, by the function that it is given, and returns a session and what was
                built (`sessions.open_alone`). The session needs no other task: a step must not stay in its delay
                because another task is lost.
        """
        session, (pass_op, number) = open_session(self._build_pass)
        arguments = (session, pass_op, number)
        self._thread = threading.Thread(target=self._serve, args=arguments, name="straggler", daemon=True)
        self._thread.start()

    def let_go(self) -> None:
        """Lets the delayed step and all later steps pass at once; any thread may call this."""
        with self._changed:
            self._may_go = True
            self._changed.notify_all()

    def close(self) -> None:
        """Ends the thread; returns when it has ended."""
        self.let_go()
        self._asked.put(None)
        if self._thread is not None:
            self._thread.join()

    def _build_pass(self) -> tuple[tf.Operation, tf.Tensor]:
        """Builds the op that lets a step pass, and the placeholder of the step's number."""
        with tf.device(self._device):
            number = tf.placeholder(tf.int64, [])
            return self._passes().enqueue(number), number

    def _ask(self) -> np.int64:
        with self._changed:
            self._newest += 1
            sampled = self._next_delay()
            gone = self._time_fn() - self._began_at if self._is_paced else 0.0
            self._asked.put(_Question(self._newest, max(0.0, sampled - gone), sampled))
            self._changed.notify_all()
            return np.int64(self._newest)

    def _serve(self, session: tf.Session, pass_op: tf.Operation, number: tf.Tensor) -> None:
        with session:
            let_pass = session.make_callable(pass_op, feed_list=[number])
            while (asked := self._asked.get()) is not None:
                is_cut_short = self._wait(asked)
                # Before the step may pass, because the step's end reads it.
                self.last_delay = 0.0 if is_cut_short else asked.sampled
                let_pass(asked.number)

    def _wait(self, asked: _Question) -> bool:
        """Sleeps until the time is over; returns whether `let_go` was called before.

        A newer question ends the wait as well: the step of the older one was cancelled.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._may_go or self._newest != asked.number, asked.delay)
            return self._may_go

    def _passes(self) -> tf.FIFOQueue:
        """Returns the queue whose elements let a step pass; its shared name makes it the same queue in every graph."""
        with tf.get_default_graph().container(self._container):
            # Without a limit, so that the thread which lets steps pass never waits itself.
            return tf.FIFOQueue(-1, [tf.int64], shapes=[[]], shared_name=f"straggler/worker_{self.worker_index}")


def create(
    specs: Sequence[DelaySpec], *, seed: int, worker_index: int, device: str, container: str
) -> Straggler | None:
    """Creates the straggler of a worker; None if no spec applies to the worker.

    Args:
        specs: Specs from the flags of the run.
        seed: Seed of the run. The same seed, worker and spec give the same delays; a continued run repeats them from
            the first.
        worker_index: Index of the worker.
        device: Device of the worker, "/job:worker/task:0".
        container: Container of the run's resources on the worker.
    """
    spec = delays.spec_for(specs, worker_index)
    if spec is None:
        return None
    next_delay = spec.sampler(delays.rng_for(seed, worker_index), worker_index)
    is_paced = spec.distribution.options.paced
    return Straggler(next_delay, worker_index=worker_index, device=device, container=container, is_paced=is_paced)


def _values(value: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
    return value.values if isinstance(value, tf.IndexedSlices) else value


def _identity(gradient: Gradient) -> Gradient:
    # With stages a gradient may be on another worker. It stays there, so that the delay costs no message.
    with tf.device(gradient.piece.device):
        value = gradient.value
        if isinstance(value, tf.IndexedSlices):
            value = tf.IndexedSlices(tf.identity(value.values), tf.identity(value.indices), value.dense_shape)
        else:
            value = tf.identity(value)
    return gradient._replace(value=value)

"""`Straggler`: a delay in each step of a worker, between its pull and its push: `--straggler`.

The worker computes its gradient of the parameters and table rows that it has read, holds it back for a sampled time,
and goes on as if the computation had taken that much longer. Everything it has read is from before the delay, so
the staleness that is logged is the staleness of the gradient. Steps that send nothing are delayed as well, each step
once; a worker without data is not.

Workers need not agree on it: each obeys the flags that it was started with.

The wait is a queue's dequeue, which takes no thread of TensorFlow's: a Python function in the graph samples the delay
and returns at once, a thread of this worker sleeps, then lets the step pass. That adds some 2 ms to the delay.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.disturbances import delays
from ps_trainer.disturbances.delays import DelaySpec
from ps_trainer.store.pieces import Gradient


class Straggler:
    """Holds back the gradient of each step of one worker.

    Args:
        next_delay: gives the delay of the next step, in seconds.
        worker_index: of the worker.
        device: of the worker, "/job:worker/task:0".
        container: of what the run keeps on the worker.

    Attributes:
        last_delay: seconds that the last step was held back; 0 before the first one, and for one that was cut short.
    """

    def __init__(self, next_delay: Callable[[], float], *, worker_index: int, device: str, container: str):
        self.worker_index = worker_index
        self.last_delay = 0.0
        self._next_delay = next_delay
        self._device = device
        self._container = container
        self._asked: queue.SimpleQueue[float | None] = queue.SimpleQueue()
        self._let_go = threading.Event()
        self._thread: threading.Thread | None = None

    def hold_back(self, gradients: Sequence[Gradient]) -> list[Gradient]:
        """The same gradients, each where it is, to be had when all of them are computed and the delay is over."""
        with tf.device(self._device), tf.name_scope("straggler"):
            with tf.control_dependencies([_values(gradient.value) for gradient in gradients]):
                asked = tf.numpy_function(self._ask, [], tf.bool)
            passes = self._passes()
            with tf.control_dependencies([asked]):
                passed = passes.dequeue()
            with tf.control_dependencies([passed]):
                return [_identity(gradient) for gradient in gradients]

    def start(self, target: str, config: tf.ConfigProto) -> None:
        """Begins to serve the steps; to be called before the first one.

        Args:
            target: of the worker's own server.
            config: of a session on it, which needs no other task.
        """
        with tf.Graph().as_default() as graph, tf.device(self._device):
            pass_op = self._passes().enqueue(True)  # noqa: FBT003 - the element, as TensorFlow's queues take it
        session = tf.Session(target, graph=graph, config=config)
        self._thread = threading.Thread(target=self._serve, args=(session, pass_op), name="straggler", daemon=True)
        self._thread.start()

    def let_go(self) -> None:
        """Lets the step that is held back pass at once, and all that follow; may be called from any thread."""
        self._let_go.set()

    def close(self) -> None:
        """Ends the thread; returns when it has ended."""
        self.let_go()
        self._asked.put(None)
        if self._thread is not None:
            self._thread.join()

    def _ask(self) -> bool:
        self._asked.put(self._next_delay())
        return True

    def _serve(self, session: tf.Session, pass_op: tf.Operation) -> None:
        with session:
            let_pass = session.make_callable(pass_op)
            while (delay := self._asked.get()) is not None:
                is_cut_short = self._wait(delay)
                self.last_delay = 0.0 if is_cut_short else delay
                let_pass()

    def _wait(self, secs: float) -> bool:
        """Sleeps, but only until `let_go`; returns whether that was called."""
        return self._let_go.wait(secs)

    def _passes(self) -> tf.FIFOQueue:
        """The queue of what lets a step pass; every graph on the worker's server means the same one."""
        with tf.get_default_graph().container(self._container):
            return tf.FIFOQueue(-1, [tf.bool], shapes=[[]], shared_name=f"straggler/worker_{self.worker_index}")


def create(
    specs: Sequence[DelaySpec], *, seed: int, worker_index: int, device: str, container: str
) -> Straggler | None:
    """The straggler that a worker is; None if no spec applies to it.

    Args:
        specs: as the run's flags say.
        seed: of the run. The same seed, worker and spec give the same delays; a run that is continued begins anew.
        worker_index: of the worker.
        device: see `Straggler`.
        container: see there.
    """
    spec = delays.spec_for(specs, worker_index)
    if spec is None:
        return None
    next_delay = spec.sampler(delays.rng_for(seed, worker_index), worker_index)
    return Straggler(next_delay, worker_index=worker_index, device=device, container=container)


def _values(value: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
    return value.values if isinstance(value, tf.IndexedSlices) else value


def _identity(gradient: Gradient) -> Gradient:
    with tf.device(gradient.piece.device):
        value = gradient.value
        if isinstance(value, tf.IndexedSlices):
            value = tf.IndexedSlices(tf.identity(value.values), tf.identity(value.indices), value.dense_shape)
        else:
            value = tf.identity(value)
    return gradient._replace(value=value)

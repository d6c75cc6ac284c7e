"""`Ring`: one worker's part of a ring all-reduce, which keeps the workers' replicas of the dense parameters equal.

A collective op waits for the same op on every other worker. TensorFlow pairs the ops by a number that all workers give
to the `session.run` call, its step id. Three facts follow and shape this file:

* A run with a collective op contains no op on a ps task. Otherwise all workers' runs would have the same step id there,
  and the end of one run would cancel the others ("Cleanup ...", or a hang).
* Every worker makes the same runs with collective ops, in the same order, and cannot repeat a run that failed. So an
  earlier run, which may fail if the data end, computes the gradient and puts it into a staging area.
* TensorFlow finds collective ops by keys. No other run on the same servers may use the same keys, so they are derived
  from the run's id.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.errors import PeerFailedError
from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient, Piece
from ps_trainer.store.variables import create_local_variable
from ps_trainer.updates.base import RELEASED, Exchange, RuleContext
from ps_trainer.updates.fused_gradients import FusedGradients

# Each count is a separate run with all ps tasks, which is too expensive for every turn.
_COUNT_SECS = 0.2  # interval at which the chief writes its step to the clocks of the ps tasks
# TensorFlow keeps keys as int32.
_MAX_KEY = 2**31


class Turn(NamedTuple):
    """The result of an all-reduce.

    Attributes:
        global_step: The global_step after it, or `RELEASED` if no worker gave a gradient.
        num_gradients: Number of workers that gave a gradient.
    """

    global_step: int
    num_gradients: int


class Ring:
    """One worker's part of the all-reduce.

    Args:
        store: The created store, with replicas.
        gradients: Dense gradients, on the worker.
        context: The run; its applier has created the slots on the ps tasks.
        max_bytes: Size of the largest vector that is reduced at once.

    Attributes:
        give_op: Op that stages this worker's gradient for the next turn; part of the phase.
        join_op: Op that sets replica, slots and step to the values on the ps tasks.
        global_step: The global_step before the step, int64 scalar on the worker.
        given: Number of batches of each worker in the updates so far (`Exchange.given`).
    """

    def __init__(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext, max_bytes: int):
        self._store = store
        self._context = context
        self._gradients = gradients
        self._group_size = context.num_workers
        self._keys = _Keys(context.run_id)
        pieces = [gradient.piece for gradient in gradients]
        context.applier.create_replica_slots(pieces)
        with tf.device(store.worker_device):
            self._step = create_local_variable("ring/global_step", [], tf.int64)
            self.global_step = self._step.read_value()
            self.given = create_local_variable("ring/given", [self._group_size], tf.int64)
            fused = FusedGradients(
                [gradient.value for gradient in gradients], context.worker_index, context.num_workers, max_bytes
            )
            self.give_op = self._stage(fused.vectors)
            self._give_nothing_op = self._stage([tf.zeros_like(vector) for vector in fused.vectors])
            self._turn = self._build_turn(fused)
            self._barrier = self._reduce(tf.zeros([1]), instance=len(fused.vectors))
            # Two runs, with the keys of `_turn` and `_barrier`: TensorFlow numbers the runs of each set of keys.
            self._first_ops = [
                [self._reduce_alone(i) for i in range(len(fused.vectors))],
                [self._reduce_alone(len(fused.vectors))],
            ]
        self._copies = self._pairs(pieces)
        self.join_op = self._build_join(fused)
        self._publish_op = tf.group(*self._build_publish(), *self._build_count())
        self._count_op = tf.group(*self._build_count())
        self._calls: dict[str, Callable[[], list[int]]] = {}

    def prepare(self, session: tf.Session) -> None:
        """Runs collective ops of this worker alone, so that the leader numbers runs before another worker asks it."""
        if self._group_size > 1:
            for ops in self._first_ops:
                session.run(ops)

    def turn(self, session: tf.Session) -> Turn:
        """Reduces the gradients that all workers have staged, and applies their mean.

        Raises:
            PeerFailedError: The ring broke.
        """
        return Turn(*(int(value) for value in self._call("turn", self._turn, session)))

    def wait_for_all(self, session: tf.Session) -> None:
        """Returns when every worker has called it.

        Raises:
            PeerFailedError: The ring broke.
        """
        if self._group_size > 1:
            self._call("barrier", self._barrier, session)

    def give_nothing(self, session: tf.Session) -> None:
        """Stages zeros in place of a gradient, so that this worker does not count in the next turn's mean."""
        session.run(self._give_nothing_op)

    def count(self, session: tf.Session) -> None:
        """Sets the clocks of the ps tasks to this worker's step."""
        session.run(self._count_op)

    def publish(self, session: tf.Session) -> None:
        """Copies replica, slots and step to the ps tasks."""
        session.run(self._publish_op)

    def _call(self, name: str, fetch: tf.Tensor, session: tf.Session) -> list[int]:
        # `make_callable` saves most of the Python work of `session.run`, which matters in short turns.
        if name not in self._calls:
            self._calls[name] = session.make_callable(fetch)
        try:
            return self._calls[name]()
        except tf.errors.OpError as error:
            message = " ".join(error.message.replace("=", " ").split())
            raise PeerFailedError(
                f"the ring of the {self._group_size} workers broke: one of them was killed, or cannot be reached;"
                f" look at their logs, then restart all of them. TensorFlow says: {message}"
            ) from error

    def _stage(self, vectors: Sequence[tf.Tensor]) -> tf.Operation:
        return tf.raw_ops.Stage(values=vectors, shared_name=self._stage_name)

    @property
    def _stage_name(self) -> str:
        return f"ring/worker_{self._context.worker_index}"

    def _build_turn(self, fused: FusedGradients) -> tf.Tensor:
        """Builds the fields of `Turn`, int64 [2], which are known after the update."""
        vectors = tf.raw_ops.Unstage(dtypes=fused.dtypes, shared_name=self._stage_name)
        for vector, size in zip(vectors, fused.sizes, strict=True):
            vector.set_shape([size])
        # The position of a vector is its key: all workers build the same vectors in the same order.
        reduced = [self._reduce(vector, instance) for instance, vector in enumerate(vectors)]
        # Wait for all vectors before the first is used: if the ring breaks between two of them, nothing is applied.
        with tf.control_dependencies(reduced):
            reduced = [tf.identity(vector) for vector in reduced]
        givers, sums = fused.split(reduced)
        count = tf.reduce_sum(givers)

        def update() -> tf.Operation:
            means = [
                Gradient(gradient.piece, total / tf.cast(count, total.dtype))
                for gradient, total in zip(self._gradients, sums, strict=True)
            ]
            apply_op = self._context.applier.apply_to_replica(means, self.global_step) if means else tf.no_op()
            with tf.control_dependencies([apply_op, *self._count_bytes(fused)]):
                return tf.group(
                    self._step.assign_add(1, read_value=False), self.given.assign_add(givers, read_value=False)
                )

        # Without a giver the mean would be 0/0, and NaN would spread over the replica.
        update_op = tf.cond(count > 0, update, tf.no_op)
        with tf.control_dependencies([update_op]):
            step = self._step.read_value()
        return tf.stack([tf.where(count > 0, step, tf.constant(RELEASED, tf.int64)), count], name="ring/turn")

    def _count_bytes(self, fused: FusedGradients) -> list[tf.Operation]:
        """Counts the bytes of a turn: each worker sends n - 1 of n parts of the vectors twice around the ring."""
        sent = 2 * (self._group_size - 1) * fused.num_bytes // self._group_size
        return [self._context.push.sent_bytes.assign_add(sent, read_value=False)]

    def _reduce(self, vector: tf.Tensor, instance: int) -> tf.Tensor:
        if self._group_size == 1:
            return vector
        return _all_reduce(vector, self._group_size, self._keys.group, self._keys.instance(instance))

    def _reduce_alone(self, instance: int) -> tf.Tensor:
        """Builds an all-reduce of this worker with itself, under the key of `instance`."""
        return _all_reduce(tf.zeros([1]), 1, self._keys.alone, self._keys.instance(instance))

    def _pairs(self, pieces: Sequence[Piece]) -> list[tuple[Piece, tf.Variable, tf.Variable]]:
        """Returns (piece, variable on the ps, its copy on this worker) of parameters and slots."""
        applier = self._context.applier
        pairs = [(piece, piece.variable, piece.replica) for piece in self._store.dense]
        for piece in pieces:
            originals = [slot for owner, slot in applier.slots if owner is piece]
            copies = [slot for owner, slot in applier.replica_slots if owner is piece]
            pairs += [(piece, *pair) for pair in zip(originals, copies, strict=True)]
        return pairs

    def _build_join(self, fused: FusedGradients) -> tf.Operation:
        ops = []
        with tf.device(self._store.worker_device):
            # An earlier session of this process may have staged a gradient that no turn has taken.
            ops.append(tf.raw_ops.StageClear(dtypes=fused.dtypes, shared_name=self._stage_name))
            ops.append(self.given.initializer)
        for piece, original, copy in [*self._copies, (None, self._store.clocks[0], self._step)]:
            with tf.device(self._store.ps_device(0 if piece is None else piece.ps)):
                value = original.read_value()
            with tf.device(self._store.worker_device):
                ops.append(copy.assign(value, read_value=False))
        return tf.group(*ops)

    def _build_publish(self) -> list[tf.Operation]:
        ops = []
        for piece, original, copy in self._copies:
            with tf.device(self._store.worker_device):
                value = copy.read_value()
            with tf.device(self._store.ps_device(piece.ps)):
                ops.append(original.assign(value, read_value=False))
        return ops

    def _build_count(self) -> list[tf.Operation]:
        ops = []
        for ps, clock in enumerate(self._store.clocks):
            with tf.device(self._store.ps_device(ps)):
                ops.append(clock.assign(self.global_step, read_value=False))
        return ops


class RingExchange(Exchange):
    """The exchange of rules with a ring: one turn after each phase.

    Args:
        ring: Ring of this worker.
        is_chief: Whether this worker counts the turns on the ps tasks.
        time_fn: Monotonic time in seconds.
    """

    def __init__(self, ring: Ring, *, is_chief: bool, time_fn: Callable[[], float] = time.monotonic):
        self.given = ring.given
        self._ring = ring
        self._is_chief = is_chief
        self._time_fn = time_fn
        self._counted_at = time_fn()
        self._has_stepped = False

    def prepare(self, session: tf.Session) -> None:
        self._ring.prepare(session)

    def after_phase(self, session: tf.Session) -> int:
        global_step = self._take_turn(session)
        self._has_stepped = True
        return global_step

    def without_data(self, session: tf.Session) -> int:
        self._ring.give_nothing(session)
        return self.after_phase(session)

    def publish(self, session: tf.Session) -> None:
        """Copies replica, slots and step to the ps tasks, which still hold these values before the first step."""
        if self._has_stepped:
            self._ring.publish(session)

    def _take_turn(self, session: tf.Session) -> int:
        global_step = self._ring.turn(session).global_step
        if self._is_chief and self._time_fn() - self._counted_at > _COUNT_SECS:
            self._counted_at = self._time_fn()
            self._ring.count(session)
        return global_step


class _Keys:
    """Keys of a run's collective ops."""

    def __init__(self, run_id: str):
        self.group = zlib.crc32(f"group {run_id}".encode()) % _MAX_KEY
        self.alone = zlib.crc32(f"alone {run_id}".encode()) % _MAX_KEY
        self._first = zlib.crc32(f"instance {run_id}".encode()) % _MAX_KEY

    def instance(self, number: int) -> int:
        """Returns the key of the run's collective op `number`."""
        return (self._first + number) % _MAX_KEY


def _all_reduce(vector: tf.Tensor, group_size: int, group_key: int, instance_key: int) -> tf.Tensor:
    return tf.raw_ops.CollectiveReduce(
        input=vector,
        group_size=group_size,
        group_key=group_key,
        instance_key=instance_key,
        merge_op="Add",
        final_op="Id",
        subdiv_offsets=[0],
        communication_hint="ring",
    )

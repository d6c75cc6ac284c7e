"""The aggregation of rule `sync`: its accumulators and token queue, and the chief's loop over them.

Everything lies in the run's container on the ps tasks, so nothing outlives its run, and nothing is ever
closed: a waiting worker is let go by a token, not by an error.

A gradient is pushed together with a one-hot vector of its worker. The sums of those vectors are the
number of gradients in an update and, summed up over the run, the gradients used per worker; what a
worker pushed beyond them was dropped.

A worker that leaves while an update waits for its gradient would block that update: the chief pushes a
zero gradient in its place, with a zero vector, so that the average is over the others.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.store.base import Gradient, ParameterStore, Piece
from ps_trainer.store.variables import create_variable
from ps_trainer.updates.apply import Applier
from ps_trainer.updates.base import RELEASED, ChiefService

_STOP_SECS = 5.0


class ChiefOps(NamedTuple):
    """What the chief's loop runs.

    Attributes:
        update: waits for `required` gradients in every accumulator, applies their average, hands out tokens.
        global_step: int64 scalar.
        set_required: sets the gradients per update to `count`.
        set_live: sets the tokens per update to `count`.
        count: int32 scalar placeholder.
        stand_in: pushes one zero gradient everywhere, stamped with `stamp`.
        stamp: int64 scalar placeholder.
        release: puts a token worth `RELEASED` per worker into the queue.
        used: int64 [num_workers], gradients used so far.
    """

    update: tf.Operation
    global_step: tf.Tensor
    set_required: tf.Operation
    set_live: tf.Operation
    count: tf.Tensor
    stand_in: tf.Operation
    stamp: tf.Tensor
    release: tf.Operation
    used: tf.Tensor


class AggregationGraph:
    """Accumulators, token queue and counters on the ps tasks; shared by all workers' graphs by name.

    Attributes:
        tokens: int64 queue on ps 0.
        prepare_op: sets the accumulators' step to global_step; run by the chief before any worker joins.
        state: variables for the chief to initialise.
    """

    def __init__(self, store: ParameterStore, by_ps: Sequence[Sequence[Gradient]], num_workers: int):
        self._store = store
        self._num_workers = num_workers
        self._pieces = [[gradient.piece for gradient in part] for part in by_ps]
        self._accumulators: list[list[Any]] = []
        self._used: list[tf.ConditionalAccumulator] = []
        self._required: list[tf.Variable] = []
        prepares = []
        for ps, pieces in enumerate(self._pieces):
            with tf.device(store.ps_device(ps)):
                self._accumulators.append([_create_accumulator(piece) for piece in pieces])
                self._used.append(
                    tf.ConditionalAccumulator(
                        tf.float32, [num_workers], shared_name=f"sync/used_{ps}", reduction_type="SUM"
                    )
                )
                self._required.append(create_variable(f"sync/required_{ps}", [], "int32"))
                clock = store.clocks[ps].read_value()
                prepares += [a.set_global_step(clock) for a in [*self._accumulators[ps], self._used[ps]]]
        with tf.device(store.ps_device(0)):
            self.tokens = tf.FIFOQueue(-1, [tf.int64], [()], shared_name="sync/tokens")
            self._live = create_variable("sync/live", [], "int32")
            self._used_total = create_variable("sync/used_total", [num_workers], "int64")
        self.prepare_op = tf.group(*prepares)
        self.state = [*self._required, self._live, self._used_total]

    def push(self, ps: int, gradients: Sequence[Gradient], worker_index: int, stamp: tf.Tensor) -> tf.Operation:
        """The op that pushes this worker's gradients of ps task `ps`, stamped with its local step."""
        pushes = [
            _push(accumulator, gradient.value, stamp)
            for accumulator, gradient in zip(self._accumulators[ps], gradients, strict=True)
        ]
        who = tf.one_hot(worker_index, self._num_workers, dtype=tf.float32)
        return tf.group(*pushes, self._used[ps].apply_grad(who, stamp))

    def build_chief(self, applier: Applier) -> ChiefOps:
        """The chief's ops; call once, in the chief's graph."""
        counted, stand_ins = [], []
        with tf.device(self._store.worker_device):
            count = tf.placeholder(tf.int32, [], "sync/count")
            stamp = tf.placeholder(tf.int64, [], "sync/stamp")
        for ps, pieces in enumerate(self._pieces):
            used = self._update_ps(ps, applier, counted)
            if ps == 0:
                used_0 = used
            with tf.device(self._store.ps_device(ps)):
                stand_ins += [_push(a, _zero(p), stamp) for a, p in zip(self._accumulators[ps], pieces, strict=True)]
                stand_ins.append(self._used[ps].apply_grad(tf.zeros([self._num_workers]), stamp))
        with tf.device(self._store.ps_device(0)):
            count_used = self._used_total.assign_add(tf.cast(used_0, tf.int64), read_value=False)
            with tf.control_dependencies([*counted, count_used]):
                tokens = tf.fill(tf.reshape(self._live.read_value(), [1]), self._store.clocks[0].read_value())
                update = self.tokens.enqueue_many([tokens])
            release = self.tokens.enqueue_many([tf.fill([self._num_workers], tf.constant(RELEASED, tf.int64))])
            used_total = self._used_total.read_value()
            global_step = self._store.clocks[0].read_value()
        return ChiefOps(
            update=update,
            global_step=global_step,
            set_required=tf.group(*(required.assign(count, read_value=False) for required in self._required)),
            set_live=self._live.assign(count, read_value=False),
            count=count,
            stand_in=tf.group(*stand_ins),
            stamp=stamp,
            release=release,
            used=used_total,
        )

    def _update_ps(self, ps: int, applier: Applier, counted: list[tf.Operation]) -> tf.Tensor:
        """Take, average, apply and count on one ps task; returns the summed one-hot vectors."""
        with tf.device(self._store.ps_device(ps)):
            required = self._required[ps].read_value()
            used = self._used[ps].take_grad(required)
            share = 1.0 / tf.maximum(tf.reduce_sum(used), 1.0)
            pairs = [
                (piece, _scaled(_take(accumulator, required), share))
                for piece, accumulator in zip(self._pieces[ps], self._accumulators[ps], strict=True)
            ]
        apply_op = applier.apply(ps, pairs)
        with tf.device(self._store.ps_device(ps)), tf.control_dependencies([apply_op, used]):
            counted.append(self._store.clocks[ps].assign_add(1, read_value=False))
        return used


class SyncChief(ChiefService):
    """Runs the updates of rule `sync` in a thread of the chief's process.

    Args:
        ops: from `AggregationGraph.build_chief`.
        replicas_to_aggregate: gradients per update while all workers are there.
        num_workers: workers at the start.
        max_steps: global_step at which to stop, or None.
    """

    def __init__(self, ops: ChiefOps, replicas_to_aggregate: int, num_workers: int, *, max_steps: int | None):
        self._ops = ops
        self._replicas_to_aggregate = replicas_to_aggregate
        self._max_steps = max_steps
        self._live = set(range(num_workers))
        self._lock = threading.Lock()
        # Of the update in progress: its step, the gradients it waits for, the stand-ins pushed for it.
        self._step = self._required = self._stand_ins = 0
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._session: tf.Session | None = None
        self._thread = threading.Thread(target=self._run, name="sync-chief", daemon=True)

    def start(self, session: tf.Session) -> None:
        """See `ChiefService.start`."""
        self._session = session
        self._thread.start()

    def worker_came(self, worker_index: int) -> None:
        """See `ChiefService.worker_came`."""
        with self._lock:
            if worker_index in self._live or self._stopping.is_set():
                return
            self._live.add(worker_index)
            logging.info("sync: worker %d came; updates now need %d gradients", worker_index, self._required_now())
            self._session.run(self._ops.set_live, {self._ops.count: len(self._live)})

    def worker_left(self, worker_index: int) -> None:
        """See `ChiefService.worker_left`."""
        with self._lock:
            if worker_index not in self._live:
                return
            self._live.discard(worker_index)
            required = self._required_now()
            logging.info("sync: worker %d left; updates now need %d gradients", worker_index, required)
            if not required or self._stopping.is_set():
                return
            # The update in progress must not hand out a token for the worker that left. It may wait for
            # that worker's gradient: if it is over by now, the stamp is too old and the stand-in dropped.
            self._session.run(self._ops.set_live, {self._ops.count: len(self._live)})
            while self._required - self._stand_ins > required:
                self._stand_ins += 1
                self._session.run(self._ops.stand_in, {self._ops.stamp: self._step})

    def release(self) -> None:
        """See `ChiefService.release`."""
        if self._session is not None and not self._stopping.is_set():
            self._session.run(self._ops.release)

    def stop(self) -> None:
        """See `ChiefService.stop`."""
        self._stopping.set()
        if self._session is not None:
            self._session.close()  # cancels an update that waits
            self._thread.join(_STOP_SECS)
            if self._thread.is_alive():
                logging.warning("sync: the chief's thread did not end within %.0f s; left behind", _STOP_SECS)

    def error(self) -> BaseException | None:
        """See `ChiefService.error`."""
        return self._error

    def summary(self) -> dict[str, Any]:
        """Gradients used so far, by worker; call before `stop`."""
        return {"gradients_used": np.asarray(self._session.run(self._ops.used)).tolist()}

    def _required_now(self) -> int:
        return min(self._replicas_to_aggregate, len(self._live))

    def _run(self) -> None:
        try:
            step = int(self._session.run(self._ops.global_step))
            with self._lock:
                self._session.run(self._ops.set_live, {self._ops.count: len(self._live)})
            update = self._session.make_callable(self._ops.update)
            while not self._stopping.is_set() and (self._max_steps is None or step < self._max_steps):
                if not self._begin_update(step):
                    return
                update()
                step += 1
        except (tf.errors.OpError, RuntimeError) as error:
            if not self._stopping.is_set():
                logging.error("sync: the chief's updates ended: %s", error)
                self._error = error

    def _begin_update(self, step: int) -> bool:
        """Notes what the update of `step` waits for; returns whether any worker is left to wait for."""
        with self._lock:
            required = self._required_now()
            if required and required != self._required:
                self._session.run(self._ops.set_required, {self._ops.count: required})
            self._step, self._required, self._stand_ins = step, required, 0
            return required > 0


def _create_accumulator(piece: Piece) -> Any:
    kind = tf.SparseConditionalAccumulator if piece.is_table else tf.ConditionalAccumulator
    return kind(
        piece.variable.dtype.base_dtype,
        shape=piece.variable.shape,
        shared_name=f"sync/{piece.variable.op.name}",
        reduction_type="SUM",
    )


def _push(accumulator: Any, value: tf.Tensor | tf.IndexedSlices, stamp: tf.Tensor) -> tf.Operation:
    if isinstance(value, tf.IndexedSlices):
        return accumulator.apply_grad(value.indices, value.values, value.dense_shape, local_step=stamp)
    return accumulator.apply_grad(value, local_step=stamp)


def _take(accumulator: Any, required: tf.Tensor) -> tf.Tensor | tf.IndexedSlices:
    if isinstance(accumulator, tf.SparseConditionalAccumulator):
        return accumulator.take_indexed_slices_grad(required)
    return accumulator.take_grad(required)


def _scaled(value: tf.Tensor | tf.IndexedSlices, factor: tf.Tensor) -> tf.Tensor | tf.IndexedSlices:
    if isinstance(value, tf.IndexedSlices):
        return tf.IndexedSlices(value.values * tf.cast(factor, value.values.dtype), value.indices, value.dense_shape)
    return value * tf.cast(factor, value.dtype)


def _zero(piece: Piece) -> tf.Tensor | tf.IndexedSlices:
    """A gradient that changes nothing; for a table one row of zeros, as an empty one is refused."""
    shape = piece.variable.shape.as_list()
    if piece.is_table:
        rows = tf.zeros([1, *shape[1:]], piece.variable.dtype.base_dtype)
        return tf.IndexedSlices(rows, tf.zeros([1], tf.int64), tf.constant(shape, tf.int64))
    return tf.zeros(shape, piece.variable.dtype.base_dtype)

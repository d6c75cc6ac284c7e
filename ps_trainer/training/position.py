"""What each worker has read of the training examples: counted on ps task 0 by its pushes, saved with the parameters."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.checkpoints.stored_state import Count
from ps_trainer.store.base import ParameterStore
from ps_trainer.store.variables import create_variable
from ps_trainer.updates.base import RELEASED, Exchange, Phase, TrainStep

POSITION = "data/position"


def create_position(num_workers: int, ps_device: str) -> Count:
    """The examples that each worker has read, int64 [num_workers], over all epochs."""
    with tf.device(ps_device):
        variable = create_variable(POSITION, [num_workers], tf.int64)
    return Count(variable, functools.partial(_adapt, num_workers))


class BatchCounter:
    """Counts a worker's batches on ps task 0, each with the push that carries what was learned from it.

    A phase that pushes nothing notes its batch on the worker, and sends nothing for that. So the batches that a killed
    worker had not pushed yet are not counted, and are read again. With an exchange (`updates/base.py`) a batch is
    counted when that is over: if it fails, the batch is in no update.

    Args:
        counts: variable on ps task 0.
        amount: what a batch adds to it.
        store: gives the worker's device.

    Attributes:
        held: int64 [n, rank of `counts`], variable on the worker: places of its batches since its last push.
    """

    def __init__(self, counts: tf.Variable, amount: int, store: ParameterStore):
        self._counts = counts
        self._amount = amount
        self._device = store.worker_device
        with tf.device(self._device):
            self._none = tf.zeros([0, counts.shape.rank], tf.int64)
            self.held = tf.Variable(
                self._none,
                name="data/held",
                shape=[None, counts.shape.rank],
                collections=[tf.GraphKeys.LOCAL_VARIABLES],
                trainable=False,
                use_resource=True,
            )

    def start(self, worker_index: int) -> tf.Tensor:
        """Where the worker goes on reading: int64 scalar, in what `counts` counts for it and its held batches add."""
        with tf.device(self._counts.device):
            counted = self._counts.read_value()[worker_index]
        with tf.device(self._device):
            return counted + self._amount * tf.shape(self.held.read_value(), out_type=tf.int64)[0]

    def build(self, step: TrainStep, place: tf.Tensor | Sequence[int], batch: tf.Tensor) -> list[list[tf.Operation]]:
        """For each phase of a step the ops that count its batch.

        With an exchange no phase pushes. A place that only the worker knows is left to `count_exchanged`; what is
        counted for the worker as a whole is left to `publish`.

        Args:
            step: as the update rule builds it.
            place: int64 [rank of `counts`], where the batch is counted. Numbers do not travel.
            batch: a tensor of the batch on the worker. At the end of the data nothing is counted.
        """
        if step.exchange is not None and not isinstance(place, tf.Tensor):
            return [[] for _ in step.phases]
        if not any(phase.pushed is None for phase in step.phases):
            return [[self._add([place], phase.pushed)] for phase in step.phases]
        with tf.device(self._device), tf.control_dependencies([batch]):
            places = tf.concat([self.held.read_value(), tf.convert_to_tensor([place], tf.int64)], axis=0)
        return [self._hold_or_push(phase, places) for phase in step.phases]

    def saved(self, step: TrainStep) -> list[tf.Variable]:
        """Of batches that were not pushed, for a worker that takes up its own state: it has learned from them."""
        holds = step.exchange is None and any(phase.pushed is None for phase in step.phases)
        return [self.held] if step.worker_state and holds else []

    def count_exchanged(self) -> tf.Operation:
        """The op that counts the batches which this worker holds, when an exchange has taken them in."""
        with tf.device(self._device):
            places = self.held.read_value()
            with tf.control_dependencies([places]):
                reset_op = self.held.assign(self._none, read_value=False)
        return tf.group(self._add(places, None), reset_op)

    def publish(self, exchange: Exchange) -> tf.Operation:
        """The op that counts what workers have given in exchanges since the last time."""
        with tf.device(self._device):
            amounts = exchange.given.read_value() * self._amount
            with tf.control_dependencies([amounts]):
                reset_op = exchange.given.assign(tf.zeros_like(amounts), read_value=False)
        with tf.device(self._counts.device):
            return tf.group(self._counts.assign_add(amounts, read_value=False), reset_op)

    def _hold_or_push(self, phase: Phase, places: tf.Tensor) -> list[tf.Operation]:
        with tf.device(self._device), tf.control_dependencies([places]):
            left = places if phase.pushed is None else tf.identity(self._none)
            keep_op = self.held.assign(left, read_value=False)
        return [keep_op] if phase.pushed is None else [keep_op, self._add(places, phase.pushed)]

    def _add(self, places: tf.Tensor | Sequence, pushed: tf.Tensor | None) -> tf.Operation:
        """Counts batches when they are pushed, unless the rule has let the worker go; None: they are in."""
        with tf.device(self._counts.device):
            amounts = tf.constant([self._amount], self._counts.dtype.base_dtype)
            if pushed is not None:
                amounts = tf.where(tf.equal(pushed, RELEASED), tf.zeros_like(amounts), amounts)
            if isinstance(places, tf.Tensor):
                amounts = tf.tile(amounts, tf.shape(places)[:1])
            return self._counts.scatter_nd_add(tf.convert_to_tensor(places, tf.int64), amounts).op


def _adapt(num_workers: int, saved: np.ndarray | None) -> np.ndarray:
    """See `Count.adapt`."""
    if saved is None:
        logging.warning(
            "every worker reads its examples from the start: the checkpoint does not say what was read, as an older"
            " version saved it, or a run with --sharding=dynamic"
        )
        return np.zeros([num_workers], np.int64)
    if len(saved) == num_workers:
        return saved
    mean = int(saved.sum()) // num_workers
    logging.warning(
        "the checkpoint is of %d workers, and this run has %d: the examples are dealt out anew, and each worker goes on"
        " as if it had read %d of its own, so that as many passes are made in all; of the epoch under way some examples"
        " are read twice, and as many are not read",
        len(saved),
        num_workers,
        mean,
    )
    return np.full([num_workers], mean, np.int64)

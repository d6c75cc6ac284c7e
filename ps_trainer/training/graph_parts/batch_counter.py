"""Counts the training examples that each worker has read.

The counts are on ps task 0 and are saved with the parameters. The push that carries what a worker learned from a batch
counts the batch. So a worker that comes back continues after its last push.
"""

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

EXAMPLE_COUNTS = "data/position"


def create_example_counts(num_workers: int, ps_device: str) -> Count:
    """Creates the count of examples that each worker has read over all epochs, int64 [num_workers]."""
    with tf.device(ps_device):
        variable = create_variable(EXAMPLE_COUNTS, [num_workers], tf.int64)
    return Count(variable, functools.partial(_adapt, num_workers))


class BatchCounter:
    """Counts a worker's batches on ps task 0, each with the push that carries what the worker learned from it.

    A phase that pushes nothing notes its batch on the worker and sends nothing. If the worker is then killed, its
    batches since the last push are not counted, and are read again. Under a rule with an exchange (`updates/base.py`)
    a batch is counted after the exchange: if the exchange fails, the batch is in no update.

    Args:
        counts: Variable with the counts, on ps task 0.
        amount: Amount that each batch adds to its count.
        store: Parameter store; gives the worker's device.

    Attributes:
        held: Places in `counts` of this worker's batches since its last push; int64 [n, rank of `counts`], on the
            worker.
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
        """Builds the amount that the worker has read, its held batches included; int64 scalar, in units of `counts`."""
        with tf.device(self._counts.device):
            counted = self._counts.read_value()[worker_index]
        with tf.device(self._device):
            return counted + self._amount * tf.shape(self.held.read_value(), out_type=tf.int64)[0]

    def build(self, step: TrainStep, position: tf.Tensor | Sequence[int], batch: tf.Tensor) -> list[list[tf.Operation]]:
        """Builds for each phase of a step the ops that count its batch.

        Under a rule with an exchange no phase pushes. If only the worker knows the place of a batch,
        `count_exchanged` counts it; otherwise `publish` does.

        Args:
            step: Step as the update rule built it.
            position: Place of the batch in `counts`, [rank of `counts`]: Python numbers, which need no message, or an
                int64 tensor.
            batch: Tensor of the batch on the worker. The ops wait for it, so that nothing is counted at the end of
                the data.
        """
        if step.exchange is not None and not isinstance(position, tf.Tensor):
            return [[] for _ in step.phases]
        if not any(phase.pushed is None for phase in step.phases):
            # No batch has to be held. Place and amount are constants on the ps task, so the count costs no message.
            return [[self._add([position], phase.pushed)] for phase in step.phases]
        with tf.device(self._device), tf.control_dependencies([batch]):
            positions = tf.concat([self.held.read_value(), tf.convert_to_tensor([position], tf.int64)], axis=0)
        return [self._hold_or_push(phase, positions) for phase in step.phases]

    def saved_variables(self, step: TrainStep) -> list[tf.Variable]:
        """Returns the variables of held batches that belong to the worker's state, which has learned from these."""
        holds = step.exchange is None and any(phase.pushed is None for phase in step.phases)
        return [self.held] if step.worker_state and holds else []

    def count_exchanged(self) -> tf.Operation:
        """Builds the op that counts the held batches after an exchange."""
        with tf.device(self._device):
            places = self.held.read_value()
            # Without this edge, the variable could be reset before its places are read.
            with tf.control_dependencies([places]):
                reset_op = self.held.assign(self._none, read_value=False)
        return tf.group(self._add(places, None), reset_op)

    def publish(self, exchange: Exchange) -> tf.Operation:
        """Builds the op that counts the batches which all workers gave in exchanges since it last ran."""
        with tf.device(self._device):
            amounts = exchange.given.read_value() * self._amount
            with tf.control_dependencies([amounts]):
                reset_op = exchange.given.assign(tf.zeros_like(amounts), read_value=False)
        with tf.device(self._counts.device):
            return tf.group(self._counts.assign_add(amounts, read_value=False), reset_op)

    def _hold_or_push(self, phase: Phase, positions: tf.Tensor) -> list[tf.Operation]:
        with tf.device(self._device), tf.control_dependencies([positions]):
            left = positions if phase.pushed is None else tf.identity(self._none)
            keep_op = self.held.assign(left, read_value=False)
        return [keep_op] if phase.pushed is None else [keep_op, self._add(positions, phase.pushed)]

    def _add(self, positions: tf.Tensor | Sequence[tf.Tensor], pushed: tf.Tensor | None) -> tf.Operation:
        """Builds the op that counts batches.

        Args:
            positions: Places of the batches in the counts.
            pushed: `Phase.pushed`: nothing is counted if the rule released the worker without an update. None if the
                batches are in an update for certain.
        """
        with tf.device(self._counts.device):
            amounts = tf.constant([self._amount], self._counts.dtype.base_dtype)
            if pushed is not None:
                # Not `==`: in a plain graph it compares Python objects, so released steps would be counted.
                amounts = tf.where(tf.equal(pushed, RELEASED), tf.zeros_like(amounts), amounts)
            if isinstance(positions, tf.Tensor):
                amounts = tf.tile(amounts, tf.shape(positions)[:1])
            return self._counts.scatter_nd_add(tf.convert_to_tensor(positions, tf.int64), amounts).op


def _adapt(num_workers: int, saved: np.ndarray | None) -> np.ndarray:
    """Adapts the saved counts to the workers of this run (`Count.adapt`)."""
    if saved is None:
        logging.warning(
            "every worker reads its examples from the start: the checkpoint has no counts of the examples read; it was"
            " saved by an older version, or by a run with --sharding=dynamic"
        )
        return np.zeros([num_workers], np.int64)
    if len(saved) == num_workers:
        return saved
    mean = int(saved.sum()) // num_workers
    logging.warning(
        "the checkpoint was saved with %d workers, and this run has %d: the examples are distributed again. Each worker"
        " continues as if it had read %d of its examples, so that the number of epochs stays the same. In the current"
        " epoch some examples are read twice, and the same number is skipped",
        len(saved),
        num_workers,
        mean,
    )
    return np.full([num_workers], mean, np.int64)

"""`StalenessHook`: measures the staleness of a script's gradients, where its variables are packed."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.tf1.packing import Layout
from ps_trainer.tf1.placement import device_scope


class StalenessHook(tf.train.SessionRunHook):
    """Counts, for each step, the updates of other workers between this worker's pull and the end of its own update.

    A step is a run that fetches a train op itself, as `Optimizer.minimize` returned it.

    Args:
        layout: The packed variables; it gets the counts.
    """

    def __init__(self, layout: Layout):
        self._layout = layout
        self._staleness: dict[Any, tf.Tensor] = {}  # by train op

    def begin(self) -> None:
        """Adds the ops that measure."""
        step, pulled_at = tf.train.get_global_step(), self._layout.pulled_at
        if step is None or pulled_at is None:
            return
        for train_op in tf.get_collection(tf.GraphKeys.TRAIN_OP):
            with device_scope(step.device), tf.control_dependencies([train_op]):
                self._staleness[_op_of(train_op)] = tf.cast(step.read_value(), tf.int64) - 1 - pulled_at

    def before_run(self, run_context: tf.train.SessionRunContext) -> tf.train.SessionRunArgs | None:
        """Adds a fetch to a step."""
        for fetch in tf.nest.flatten(run_context.original_args.fetches):
            if (staleness := self._staleness.get(_op_of(fetch))) is not None:
                return tf.train.SessionRunArgs(staleness)
        return None

    def after_run(self, run_context: tf.train.SessionRunContext, run_values: tf.train.SessionRunValues) -> None:
        """Counts a step."""
        del run_context
        if run_values.results is not None:
            self._layout.staleness.append(int(run_values.results))

    def end(self, session: tf.Session) -> None:
        """Logs the mean."""
        del session
        counts = self._layout.staleness
        if counts:
            logging.info("staleness: %.2f on average of %d steps", sum(counts) / len(counts), len(counts))


def _op_of(fetch: Any) -> Any:
    """Returns the op of a fetch; a fetch by name is itself."""
    return fetch.op if isinstance(fetch, tf.Tensor) else fetch

"""Your own session hook: logs steps that took much longer than usual."""

from __future__ import annotations

import time

import tensorflow.compat.v1 as tf
from absl import logging


class SlowSteps(tf.train.SessionRunHook):
    """Logs each step that takes more than three times the mean of the steps before it.

    A hook's constructor takes no arguments. With a hook every step goes through `MonitoredSession`, which costs up to a
    millisecond.
    """

    def __init__(self) -> None:
        self._num_steps = 0
        self._total_secs = 0.0
        self._started_at = 0.0

    def before_run(self, run_context: tf.train.SessionRunContext) -> None:
        self._started_at = time.monotonic()

    def after_run(self, run_context: tf.train.SessionRunContext, run_values: tf.train.SessionRunValues) -> None:
        secs = time.monotonic() - self._started_at
        if self._num_steps and secs > 3 * self._total_secs / self._num_steps:
            logging.info("slow step: number %d of this worker took %.3f s", self._num_steps + 1, secs)
        self._num_steps += 1
        self._total_secs += secs

    def end(self, session: tf.Session) -> None:
        logging.info("slow steps: watched %d steps", self._num_steps)

"""A dataset whose source falls silent, for `--dataset=tests.processes.stuck_data:Stuck`."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.data.formats.digits import Digits

NUM_BATCHES = 10


class Stuck(Digits):
    """The digits; after ten batches, the next one waits for a queue that stays empty."""

    def train(self, **kwargs: Any) -> tf.data.Dataset:
        batches = super().train(**kwargs)
        silence = tf.FIFOQueue(1, [tf.int64], shapes=[[]])

        def wait(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            with tf.control_dependencies([silence.dequeue()]):
                return tf.nest.map_structure(tf.identity, batch)

        return batches.take(NUM_BATCHES).concatenate(batches.map(wait))

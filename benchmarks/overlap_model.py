"""The model of `benchmarks.overlap`: layers of one width, which may pause as if a device of their own computed them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import numpy as np
import tensorflow.compat.v1 as tf

from benchmarks.overlap_setting import NUM_LAYERS
from ps_trainer.models import layers
from ps_trainer.options import option


class Layered:
    """Dense layers of one width, each of which may also pause, as if it computed on a device of its own.

    Args:
        options: Options of the model.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Layered`."""

        width: int = option(512, "units of each layer", least=1)
        pause_ms: float = option(
            0.0, "pause of a layer on the way forward; on the way back it is twice as long", least=0
        )

    def __init__(self, options: Options):
        self._options = options

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch.

        Args:
            batch: "label" int64 [B].
            training: Not used; both graphs are the same.
        """
        del training
        width, secs = self._options.width, self._options.pause_ms / 1000
        x_BD = tf.ones([tf.shape(batch["label"])[0], width]) * tf.cast(batch["label"][:, None] + 1, tf.float32) / 100
        for number in range(NUM_LAYERS):
            w_DD = tf.get_variable(f"layer_{number}", [width, width])
            x_BD = tf.nn.tanh(tf.matmul(x_BD, w_DD))
            x_BD = _pause(x_BD, secs) if secs else x_BD
        loss_B = tf.reduce_mean(tf.square(x_BD), axis=1)
        return layers.ModelOutput(tf.reduce_mean(loss_B), loss_B, {})


def _pause(x_BD: tf.Tensor, secs: float) -> tf.Tensor:
    """Returns the same values a while later; their gradient comes twice as late."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]  # TensorFlow ships no types
    def pause(x_BD: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        return _later(x_BD, secs), lambda gradient_BD: _later(gradient_BD, 2 * secs)

    return pause(x_BD)


def _later(x_BD: tf.Tensor, secs: float) -> tf.Tensor:
    def sleep(values: np.ndarray) -> np.ndarray:
        time.sleep(secs)
        return values

    later_BD = tf.numpy_function(sleep, [x_BD], x_BD.dtype)
    later_BD.set_shape(x_BD.shape)
    return later_BD

"""Models whose set-up never ends by itself, for `--model=tests.processes.slow_starts:<Class>`."""

from __future__ import annotations

import os
import pathlib
import threading
import time
from typing import Any, NoReturn

import tensorflow.compat.v1 as tf

from ps_trainer.models import layers
from tests.processes.hooks import FOLDER_VARIABLE


def wait_for_ever(*_: Any) -> NoReturn:
    """Leaves the file `held`, and never returns."""
    pathlib.Path(os.environ[FOLDER_VARIABLE], "held").touch()
    while True:
        time.sleep(0.02)


class EndlessBuild:
    """Stays in the graph of the steps; the model's trace, in the main thread, ends."""

    def build(self, batch: dict[str, tf.Tensor], training: bool) -> layers.ModelOutput:
        if threading.current_thread() is not threading.main_thread():
            wait_for_ever()
        return layers.classifier_output(layers.dense(layers.flatten(batch["image"]), 10, "logits"), batch["label"])


class EndlessValues:
    """Stays in the initial values of its parameters, which the chief computes."""

    def build(self, batch: dict[str, tf.Tensor], training: bool) -> layers.ModelOutput:
        bias = tf.get_variable("bias", [10], initializer=self._never)
        logits = layers.dense(layers.flatten(batch["image"]), 10, "logits") + bias
        return layers.classifier_output(logits, batch["label"])

    @staticmethod
    def _never(shape: list[int], dtype: tf.DType = tf.float32, partition_info: Any = None) -> tf.Tensor:
        value = tf.numpy_function(wait_for_ever, [], dtype)
        value.set_shape(shape)
        return value

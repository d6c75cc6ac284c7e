"""Stages: parts of a model that workers of one group may compute, each its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow.compat.v1 as tf

STAGES = "model_stages"
"""Collection of the stages that a model has named, in the order of their beginnings."""

CURRENT_STAGE = "current_model_stage"
"""Collection that holds the stages one is in, the innermost last."""

STAGE_DEVICES = "model_stage_devices"
"""Collection of the device of each stage, made before the model is built by who computes stages apart."""


@contextlib.contextmanager
def stage(index: int) -> Iterator[None]:
    """What is built inside belongs to stage `index`, and so do the variables that are first asked for inside.

    What is built outside of all stages belongs to stage 0, which is the worker's own; the others are counted from 1
    without a gap. With `--placement=model_parallel` each stage is computed, forward and backward, by another worker of
    a group, which pulls the stage's parameters and pushes their gradients itself; between stages travels what the model
    hands from one to the next. Otherwise a stage makes no difference.

        with layers.stage(1):
            logits_BN = layers.dense(x_BD, 10, "logits")

    Source: J. Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012, section 3.

    Args:
        index: 0 or more. Inside of another stage, the inner one counts.

    Raises:
        ValueError: `index` is negative, or there are fewer devices than stages.
    """
    devices = tf.get_collection(STAGE_DEVICES)
    if index < 0:
        raise ValueError(f"stage {index}: stages are numbered from 0")
    if devices and index >= len(devices):
        raise ValueError(f"stage {index}: there are {len(devices)} stages, numbered from 0")
    tf.add_to_collection(STAGES, index)
    entered = tf.get_collection_ref(CURRENT_STAGE)
    entered.append(index)
    try:
        with tf.device(devices[index]) if devices else contextlib.nullcontext():
            yield
    finally:
        entered.pop()


def spread(layer: int, num_layers: int, num_stages: int) -> int:
    """The stage of `layer` of `num_layers` that are spread over stages in order, as evenly as they can be."""
    return layer * num_stages // num_layers

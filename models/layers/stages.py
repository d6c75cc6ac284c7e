"""Stages: parts of a model that different workers of a worker group may compute."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow.compat.v1 as tf

STAGES = "model_stages"
"""Collection of the stages that a model has entered, in that order."""

CURRENT_STAGE = "current_model_stage"
"""Collection of the stages that are open now, the innermost last."""

STAGE_DEVICES = "model_stage_devices"
"""Collection of the device of each stage, filled before the model is built; empty if one worker computes all stages."""


@contextlib.contextmanager
def stage(index: int) -> Iterator[None]:
    """Puts the layers that are built inside, and the variables they create, into stage `index`.

    Layers outside of all stages belong to stage 0, which the worker itself computes. The others are numbered from 1
    without a gap. With `--placement=model_parallel` another worker of the group computes each stage, forward and
    backward. That worker pulls the stage's parameters and pushes their gradients itself. Between workers travel only
    the tensors that the model hands from one stage to the next. With any other placement stages have no effect.

        with layers.stage(1):
            logits_BN = layers.dense(x_BD, 10, "logits")

    Source: J. Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012, section 3.

    Args:
        index: Number of the stage, 0 or more. Inside of another stage, the inner one counts.

    Raises:
        ValueError: `index` is negative, or there are fewer devices than stages.
    """
    devices = tf.get_collection(STAGE_DEVICES)
    if index < 0:
        raise ValueError(f"stage {index}: stages are numbered from 0")
    if devices and index >= len(devices):
        raise ValueError(f"stage {index}: there are {len(devices)} stages, numbered from 0")
    tf.add_to_collection(STAGES, index)
    # Collections, not Python variables, hold the stages: they belong to the graph, and a process builds several graphs.
    entered = tf.get_collection_ref(CURRENT_STAGE)
    entered.append(index)
    try:
        with tf.device(devices[index]) if devices else contextlib.nullcontext():
            yield
    finally:
        entered.pop()


def spread(layer: int, num_layers: int, num_stages: int) -> int:
    """Returns the stage of `layer` if `num_layers` layers are spread over stages in order, as evenly as possible."""
    return layer * num_stages // num_layers

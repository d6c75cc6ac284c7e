"""A model in a plain graph of one process: ordinary variables, and their values from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.errors import CheckpointError
from ps_trainer.store.trace import without_partitioner

_MAX_FED_BYTES = 2**26
"""Size of values from which a session gets them before the next one is read."""


def build_plain(model: Any, batch: Any) -> Any:
    """Builds the model in the default graph with ordinary variables, none of them partitioned."""
    with plain_scope():
        return model.build(batch, training=False)


def plain_scope() -> Any:
    """Returns a scope in which `tf.get_variable` makes ordinary variables, none of them partitioned."""
    return tf.variable_scope("", custom_getter=_whole_getter, use_resource=True)


def load_values(session: tf.Session, variables: Sequence[tf.Variable], values: Mapping[str, np.ndarray]) -> None:
    """Sets the variables of `build_plain`.

    Raises:
        CheckpointError: A variable is missing in `values`, or has another shape there.
    """
    # Several variables in one call: TensorFlow prepares the whole graph for each new set of ops.
    assign_ops: list[tf.Operation] = []
    feeds: dict[tf.Tensor, Any] = {}

    def flush() -> None:
        session.run(assign_ops, feeds)
        assign_ops.clear()
        feeds.clear()

    for variable in variables:
        value = values.get(variable.op.name)  # the only access: a `Checkpoint` reads the value from the disk each time
        check_shape(variable, None if value is None else value.shape)
        # Feeding the initializer's input assigns the value without further ops. Variables may share this input.
        initial = variable.initializer.inputs[1]
        if initial in feeds:
            flush()
        assign_ops.append(variable.initializer)
        feeds[initial] = value
        if sum(fed.nbytes for fed in feeds.values()) >= _MAX_FED_BYTES:
            flush()
    flush()


def check_shape(variable: tf.Variable, got: Sequence[int] | None) -> None:
    """Raises CheckpointError if a variable's value is missing, which None stands for, or has another shape."""
    name, shape = variable.op.name, variable.shape.as_list()
    if got is None or list(got) != shape:
        fault = "is missing in the checkpoint" if got is None else f"has the shape {list(got)}"
        raise CheckpointError(
            f"model variable {name!r} {fault}; the model needs the shape {shape};"
            " give the --model and --model_option that the checkpoint was trained with"
        )


def _whole_getter(getter: Callable[..., tf.Variable], name: str, *args: Any, **kwargs: Any) -> tf.Variable:
    # A checkpoint holds whole variables, whatever partitioner the model's code sets.
    return getter(name, *args, **without_partitioner(kwargs))

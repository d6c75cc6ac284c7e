"""Test metrics of given parameters, in a plain single-process graph: no cluster is needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.errors import CheckpointError
from ps_trainer.store.trace import whole
from ps_trainer.training.components import Components

_BATCH_SIZE = 256


def evaluate(components: Components, values: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The mean of the loss and of each of the model's metrics over all test examples.

    Args:
        components: of the run.
        values: model variable -> value, for example a `Checkpoint`.

    Raises:
        CheckpointError: a variable of the model is missing or has another shape.
    """
    with tf.Graph().as_default() as graph:
        iterator = tf.data.make_initializable_iterator(components.dataset.test(batch_size=_BATCH_SIZE))
        batch = iterator.get_next()
        with tf.variable_scope("", custom_getter=_whole_getter, use_resource=True):
            output = components.model.build(batch, training=False)
        size = tf.shape(tf.nest.flatten(batch)[0])[0]
        sums = {name: tf.reduce_sum(per_example) for name, per_example in output.metrics.items()}
        variables = tf.global_variables()
        init_op = tf.group(tf.local_variables_initializer(), tf.tables_initializer(), iterator.initializer)
    totals: defaultdict[str, float] = defaultdict(float)
    num_examples = 0
    with tf.Session(graph=graph) as session:
        _load(session, variables, values)
        session.run(init_op)
        while True:
            try:
                size_v, loss_v, sums_v = session.run([size, output.loss, sums])
            except tf.errors.OutOfRangeError:
                break
            num_examples += int(size_v)
            totals["loss"] += float(loss_v) * size_v
            for name, value in sums_v.items():
                totals[name] += float(value)
    return {name: total / num_examples for name, total in totals.items()}


def _whole_getter(getter: Callable[..., tf.Variable], name: str, *args: Any, **kwargs: Any) -> tf.Variable:
    return getter(name, *args, **whole(kwargs))


def _load(session: tf.Session, variables: list[tf.Variable], values: Mapping[str, np.ndarray]) -> None:
    for variable in variables:
        name = variable.op.name
        if name not in values or tuple(values[name].shape) != tuple(variable.shape.as_list()):
            got = f"has the shape {list(values[name].shape)}" if name in values else "is missing"
            raise CheckpointError(
                f"model variable {name!r} {got}, wanted {variable.shape.as_list()};"
                " evaluate with the --model and --model_option that the checkpoint was trained with"
            )
        session.run(variable.initializer, {variable.initializer.inputs[1]: values[name]})

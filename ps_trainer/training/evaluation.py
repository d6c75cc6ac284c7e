"""Test metrics of given parameters, in a plain single-process graph: no cluster is needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.decode_errors import data_error
from ps_trainer.errors import CheckpointError
from ps_trainer.store.trace import placeholders, whole
from ps_trainer.training.components import Components

_BATCH_SIZE = 256


def evaluate(components: Components, values: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Computes the mean of the loss and of each metric over all test examples, and the model's pooled metrics.

    The mean of the loss weighs each batch by the model's `loss_weight`, or by its number of examples if the model has
    none.

    Args:
        components: Components of the run.
        values: Values of the model variables by name, for example a `Checkpoint`.

    Returns:
        Value by name; empty for a dataset without test examples, whose `test` returns None.

    Raises:
        CheckpointError: a variable of the model is missing or has another shape.
        DataError: a test example is broken, or has an id or a label that is too large for the model.
    """
    with tf.Graph().as_default() as graph:
        examples = components.dataset.test(batch_size=_BATCH_SIZE)
        if examples is None:
            return {}
        iterator = tf.data.make_initializable_iterator(examples)
        batch = iterator.get_next()
        output = build_plain(components.model, batch)
        # The last batch may be smaller than the others.
        size = tf.shape(tf.nest.flatten(batch)[0])[0]
        sums = {name: tf.reduce_sum(per_example) for name, per_example in output.metrics.items()}
        pooled_metrics = getattr(
            output, "pooled", {}
        )  # a user's model may return a type of its own, without this field
        weight = getattr(output, "loss_weight", ())
        # An empty tuple says that the model gives no weight: None could not be fetched by a session.
        weight = size if isinstance(weight, tuple) else weight
        parts = {name: list(pooled.tensors) for name, pooled in pooled_metrics.items()}
        # Pairs (value, update op) of `tf.metrics`: each batch updates them, and the value is read at the end.
        streaming = dict(getattr(output, "streaming", {}))
        updates = [update for _, update in streaming.values()]
        variables = tf.global_variables()
        init_op = tf.group(tf.local_variables_initializer(), tf.tables_initializer(), iterator.initializer)
    totals: defaultdict[str, float] = defaultdict(float)
    collected: list[dict[str, list[np.ndarray]]] = []
    num_examples, total_loss, total_weight = 0, 0.0, 0.0
    with tf.Session(graph=graph) as session:
        load_values(session, variables, values)
        session.run(init_op)
        while True:
            try:
                fetched = session.run([size, output.loss, weight, sums, parts, updates])
            except tf.errors.OutOfRangeError:
                break
            except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
                raise data_error(error) or error from error
            size_v, loss_v, weight_v, sums_v, parts_v, _ = fetched
            collected.append(parts_v)
            num_examples += int(size_v)
            total_loss += float(loss_v) * float(weight_v)
            total_weight += float(weight_v)
            for name, value in sums_v.items():
                totals[name] += float(value)
        streamed = {name: float(session.run(value)) for name, (value, _) in streaming.items()}
    means = {name: total / num_examples for name, total in totals.items()}
    return (
        {"loss": total_loss / total_weight}
        | means
        | {name: _compute(pooled, [batch[name] for batch in collected]) for name, pooled in pooled_metrics.items()}
        | streamed
    )


def metric_names(components: Components) -> list[str]:
    """The names of the metrics that `evaluate` computes."""
    with tf.Graph().as_default():
        examples = components.dataset.test(batch_size=_BATCH_SIZE)
        if examples is None:
            return []
        output = build_plain(components.model, placeholders(examples.element_spec))
    return ["loss", *output.metrics, *getattr(output, "pooled", {}), *getattr(output, "streaming", {})]


def _compute(pooled: Any, batches: Sequence[Sequence[np.ndarray]]) -> float:
    return float(pooled.compute(*(np.concatenate(parts) for parts in zip(*batches, strict=True))))


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
        CheckpointError: a variable is missing in `values`, or has another shape there.
    """
    for variable in variables:
        name = variable.op.name
        if name not in values or tuple(values[name].shape) != tuple(variable.shape.as_list()):
            got = f"has the shape {list(values[name].shape)}" if name in values else "is missing in the checkpoint"
            raise CheckpointError(
                f"model variable {name!r} {got}; the model needs the shape {variable.shape.as_list()};"
                " give the --model and --model_option that the checkpoint was trained with"
            )
        # Feeding the initializer's input assigns the value without further ops for each variable.
        session.run(variable.initializer, {variable.initializer.inputs[1]: values[name]})


def _whole_getter(getter: Callable[..., tf.Variable], name: str, *args: Any, **kwargs: Any) -> tf.Variable:
    # A checkpoint holds whole variables, whatever partitioner the model's code sets.
    return getter(name, *args, **whole(kwargs))

"""Test metrics of given parameters, in a plain single-process graph: no cluster is needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.data.pipeline.decode_errors import data_error
from ps_trainer.errors import CheckpointError
from ps_trainer.store.trace import placeholders, without_partitioner
from ps_trainer.training.components import Components
from ps_trainer.training.evaluation_pace import NO_LIMITS, EvaluationLimits, EvaluationTooSlow, Pace

_BATCH_SIZE = 256


def evaluate(
    components: Components, values: Mapping[str, np.ndarray], limits: EvaluationLimits = NO_LIMITS
) -> dict[str, float]:
    """Computes the mean of the loss and of each metric over the test examples, and the model's pooled metrics.

    The mean of the loss weighs each batch by the model's `loss_weight`, or by its number of examples if the model has
    none. An evaluation that cannot finish in time starts again with every n-th example, so that it represents a file in
    some order. A warning tells their number.

    Args:
        components: Components of the run.
        values: Values of the model variables by name, for example a `Checkpoint`.
        limits: Limits of the evaluation.

    Returns:
        Value by name; empty for a dataset without test examples, whose `test` returns None.

    Raises:
        CheckpointError: A variable of the model is missing or has another shape.
        DataError: A test example is broken, or has an id or a label that is too large for the model.
    """
    total = getattr(components.dataset, "num_test_examples", None)
    pace = Pace(limits, total if limits.num_examples is None else limits.num_examples)
    try:
        sums = _sums_of(components, values, limits.num_examples, pace)
    except EvaluationTooSlow as slow:
        pace = Pace(limits._replace(max_secs=pace.secs_left()), slow.num_examples, may_begin_again=False)
        sums = _sums_of(components, values, slow.num_examples, pace)
    if sums is None:
        return {}
    if pace.is_cut or (total is not None and sums.num_examples < total):
        of_all = f" of {total}" if total is not None else ""
        logging.warning(
            "the evaluation used %d%s test examples; --eval_examples sets their number", sums.num_examples, of_all
        )
    return sums.metrics()


def _sums_of(
    components: Components, values: Mapping[str, np.ndarray], num_examples: int | None, pace: Pace
) -> _Sums | None:
    """Returns the sums over all test examples or `num_examples` of them; None if there are none."""
    with tf.Graph().as_default() as graph:
        examples = _examples(components.dataset, num_examples)
        if examples is None:
            return None
        iterator = tf.data.make_initializable_iterator(examples)
        batch = iterator.get_next()
        output = build_plain(components.model, batch)
        # The last batch may be smaller than the others.
        size = tf.shape(tf.nest.flatten(batch)[0])[0]
        per_example = {name: tf.reduce_sum(metric) for name, metric in output.metrics.items()}
        # A user's model may return its own type, without this field.
        pooled = getattr(output, "pooled", {})
        weight = getattr(output, "loss_weight", ())
        # An empty tuple says that the model gives no weight: None could not be fetched by a session.
        weight = size if isinstance(weight, tuple) else weight
        parts = {name: list(metric.tensors) for name, metric in pooled.items()}
        # Pairs (value, update op) of `tf.metrics`: each batch updates them, and the value is read at the end.
        streaming = dict(getattr(output, "streaming", {}))
        updates = [update for _, update in streaming.values()]
        variables = tf.global_variables()
        init_op = tf.group(tf.local_variables_initializer(), tf.tables_initializer(), iterator.initializer)
    sums = _Sums(pooled)
    with tf.Session(graph=graph) as session:
        load_values(session, variables, values)
        session.run(init_op)
        while not pace.is_cut:
            try:
                *fetched, _ = session.run([size, output.loss, weight, per_example, parts, updates])
            except tf.errors.OutOfRangeError:
                break
            except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
                raise data_error(error) or error from error
            sums.add(*fetched)
            pace.after_batch(sums.num_examples)
        sums.streamed = {name: float(session.run(value)) for name, (value, _) in streaming.items()}
    return sums


def _examples(dataset: Any, num_examples: int | None) -> Any:
    examples = dataset.test(batch_size=_BATCH_SIZE)
    if examples is None or num_examples is None:
        return examples
    if hasattr(dataset, "test_sample"):
        return dataset.test_sample(batch_size=_BATCH_SIZE, num_examples=num_examples)
    return examples.unbatch().take(num_examples).batch(_BATCH_SIZE)


class _Sums:
    """Sums over the batches of an evaluation.

    Args:
        pooled: The model's metrics that are computed from all examples together.
    """

    def __init__(self, pooled: Mapping[str, Any]):
        self._pooled = pooled
        self._totals: defaultdict[str, float] = defaultdict(float)
        self._collected: list[dict[str, list[np.ndarray]]] = []
        self._loss = self._weight = 0.0
        self.num_examples = 0
        self.streamed: dict[str, float] = {}

    def add(self, size: Any, loss: Any, weight: Any, sums: Mapping[str, Any], parts: dict[str, list[Any]]) -> None:
        """Adds a batch."""
        self._collected.append(parts)
        self.num_examples += int(size)
        self._loss += float(loss) * float(weight)
        self._weight += float(weight)
        for name, value in sums.items():
            self._totals[name] += float(value)

    def metrics(self) -> dict[str, float]:
        """Returns the loss and all metrics by name."""
        means = {name: total / self.num_examples for name, total in self._totals.items()}
        pooled = {
            name: _compute(metric, [batch[name] for batch in self._collected]) for name, metric in self._pooled.items()
        }
        return {"loss": self._loss / self._weight} | means | pooled | self.streamed


def metric_names(components: Components) -> list[str]:
    """Returns the names of the metrics that `evaluate` computes."""
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
        CheckpointError: A variable is missing in `values`, or has another shape there.
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
    return getter(name, *args, **without_partitioner(kwargs))

"""`ReplayEvaluator`: computes test metrics of parameters, any number of times in one graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.simulation.replay.graphs import GivenValues, create_iterator
from ps_trainer.store import fed_call
from ps_trainer.store.extents import VariableSpec

_BATCH_SIZE = 256


class ReplayEvaluator:
    """Computes means over all test examples, as `training.evaluation.evaluate` does.

    Args:
        model: Model to evaluate.
        dataset: Dataset, whose `test` returns None if it has no test examples.
        specs: Specifications of the model's variables.
    """

    def __init__(self, model: Any, dataset: DataSource, specs: Sequence[VariableSpec]):
        graph = tf.Graph()
        self._session: tf.Session | None = None
        with graph.as_default(), tf.device("/cpu:0"):
            examples = dataset.test(batch_size=_BATCH_SIZE)
            if examples is None:
                return
            iterator = create_iterator(examples)
            batch = iterator.get_next()
            feeds = {spec.name: tf.placeholder(tf.as_dtype(spec.dtype), spec.shape) for spec in specs}
            with tf.variable_scope("", custom_getter=GivenValues(feeds)):
                output = model.build(batch, training=False)
            sums = {name: tf.reduce_sum(per_example) for name, per_example in output.metrics.items()}
            size = tf.shape(tf.nest.flatten(batch)[0])[0]
            self._begin_op = iterator.initializer
            init_op = tf.group(tf.local_variables_initializer(), tf.tables_initializer())
        self._names, self._metrics = list(feeds), list(sums)
        self._session = tf.Session(graph=graph, config=tf.ConfigProto(device_count={"GPU": 0}))
        self._session.run(init_op)
        self._run = fed_call.make(self._session, [size, output.loss, *sums.values()], list(feeds.values()))

    def evaluate(self, values: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Computes the means of "loss" and of each of the model's metrics.

        Args:
            values: Values of all model variables, by name.

        Returns:
            Mean by name; empty without test examples.
        """
        if self._session is None:
            return {}
        self._session.run(self._begin_op)
        fed = [values[name] for name in self._names]
        totals: defaultdict[str, float] = defaultdict(float)
        num_examples = 0
        while True:
            try:
                size, loss, *sums = self._run(*fed)
            except tf.errors.OutOfRangeError:
                break
            num_examples += int(size)
            # The loss is the mean of a batch, and the last batch is smaller than the others.
            totals["loss"] += float(loss) * size
            for name, value in zip(self._metrics, sums, strict=True):
                totals[name] += float(value)
        return {name: float(value) / num_examples for name, value in totals.items()}

    def close(self) -> None:
        """Closes the session."""
        if self._session is not None:
            self._session.close()

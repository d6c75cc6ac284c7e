"""Test metrics of given parameters, in a plain single-process graph: no cluster is needed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.data.pipeline.decode_errors import data_error
from ps_trainer.store.trace import placeholders
from ps_trainer.training.batch_slices import BatchSlices
from ps_trainer.training.components import Components
from ps_trainer.training.evaluation_pace import NO_LIMITS, EvaluationLimits, EvaluationTooSlow, Pace
from ps_trainer.training.evaluation_sums import EvaluationSums
from ps_trainer.training.plain_model import build_plain, load_values
from ps_trainer.training.row_lookups import RowLookups

BATCH_SIZE = 256
"""Number of test examples in a batch; the last batch may be smaller."""


class Helpers(Protocol):
    """Other workers, which can help with an evaluation."""

    def count(self, used_cores: float) -> int:
        """Returns the number of workers that make it faster.

        Args:
            used_cores: Number of cores that the evaluation keeps busy.
        """

    def finish(
        self, evaluation: EvaluationGraph, values: Mapping[str, np.ndarray], sums: EvaluationSums, pace: Pace
    ) -> None:
        """Evaluates the rest of the test examples, with help, and adds it to `sums`.

        Args:
            evaluation: The evaluation, whose session is open.
            values: Values of the model variables.
            sums: Sums over the first batches.
            pace: Limits of the evaluation.
        """


def evaluate(
    components: Components,
    values: Mapping[str, np.ndarray],
    limits: EvaluationLimits = NO_LIMITS,
    helpers: Helpers | None = None,
) -> dict[str, float]:
    """Computes the mean of the loss and of each metric over the test examples, and the model's pooled metrics.

    The mean of the loss weighs each batch by the model's `loss_weight`, or by its number of examples if the model has
    none. An evaluation that cannot finish in time starts again with every n-th example, so that it represents a file in
    some order. A warning tells their number.

    Args:
        components: Components of the run.
        values: Values of the model variables by name, for example a `Checkpoint`.
        limits: Limits of the evaluation.
        helpers: Workers that help if it takes long; None = no workers.

    Returns:
        Value by name; empty for a dataset without test examples, whose `test` returns None.

    Raises:
        CheckpointError: A variable of the model is missing or has another shape.
        DataError: A test example is broken, or has an id or a label that is too large for the model.
    """
    total = getattr(components.dataset, "num_test_examples", None)
    pace = Pace(limits, _smaller(total, limits.num_examples))
    try:
        sums = _sums_of(components, values, limits.num_examples, pace, helpers)
    except EvaluationTooSlow as slow:
        pace = Pace(
            limits._replace(max_secs=pace.secs_left()), _smaller(total, slow.num_examples), may_begin_again=False
        )
        sums = _sums_of(components, values, slow.num_examples, pace, helpers)
    if sums is None:
        return {}
    if pace.is_cut if total is None else sums.num_examples < total:
        of_all = f" of {total}" if total is not None else ""
        logging.warning(
            "the evaluation used %d%s test examples; --eval_examples sets their number", sums.num_examples, of_all
        )
    return sums.metrics()


def _sums_of(
    components: Components,
    values: Mapping[str, np.ndarray],
    num_examples: int | None,
    pace: Pace,
    helpers: Helpers | None,
) -> EvaluationSums | None:
    """Returns the sums over all test examples or `num_examples` of them; None if there are none."""
    evaluation = EvaluationGraph(components, num_examples)
    if not evaluation.has_examples:
        return None
    if helpers is not None and evaluation.has_parts:
        pace.count_helpers = helpers.count

    def after_slice(num_examples: int) -> bool:
        # The decision for help ends this pass with a whole batch: parts of the rest follow.
        return pace.after_batch(num_examples) and not (pace.num_helpers and num_examples % BATCH_SIZE == 0)

    with evaluation.open(values):
        sums = evaluation.sums()
        evaluation.add_all(sums, after_slice)
        if helpers is not None and pace.num_helpers and not pace.is_cut and sums.num_examples < (pace.total or 0):
            helpers.finish(evaluation, values, sums, pace)
    return sums


class EvaluationGraph:
    """The model and the test examples in a separate graph, for one session.

    Args:
        components: Components of the run.
        num_examples: Number of test examples, spread over all; None = all.

    Attributes:
        num_examples: The number given.
        has_examples: Whether the dataset has test examples; without them the graph is empty.
        has_parts: Whether several workers can evaluate parts of the examples. `tf.metrics` keep their sums in one
            session, and a dataset must give parts.
        has_pooled: Whether the model has metrics that are computed from all examples together.
        variable_names: Names of the model variables that the session holds.
        looked_up: Names of the large model variables whose rows it only looks up.
    """

    def __init__(self, components: Components, num_examples: int | None):
        self.num_examples = num_examples
        self.has_pooled = False
        self.variable_names: tuple[str, ...] = ()
        self.looked_up: tuple[str, ...] = ()
        self._dataset = components.dataset
        self._graph = tf.Graph()
        self._session: tf.Session | None = None
        with self._graph.as_default():
            examples = _examples(components.dataset, num_examples)
            self.has_examples = examples is not None
            self.has_parts = False
            if examples is not None:
                self._build(components, examples)

    def _build(self, components: Components, examples: tf.data.Dataset) -> None:
        self._iterator = tf.data.make_initializable_iterator(examples)
        self._read = tf.nest.flatten(self._iterator.get_next())
        # Fed, so that a batch can be evaluated in slices.
        batch = placeholders(examples.element_spec)
        tensors = tf.nest.flatten(batch)
        self._slices = BatchSlices(tensors, BATCH_SIZE)
        output = build_plain(components.model, batch)
        size = tf.shape(tensors[0])[0]
        self._metric_names = tuple(output.metrics)
        per_example = {name: tf.reduce_sum(metric) for name, metric in output.metrics.items()}
        # A user's model may return its own type, without this field.
        self._pooled = getattr(output, "pooled", {})
        self.has_pooled = bool(self._pooled)
        weight = getattr(output, "loss_weight", ())
        # An empty tuple says that the model gives no weight: None could not be fetched by a session.
        weight = size if isinstance(weight, tuple) else weight
        parts = {name: list(metric.tensors) for name, metric in self._pooled.items()}
        # Pairs (value, update op) of `tf.metrics`: each batch updates them, and the value is read at the end.
        self._streaming = dict(getattr(output, "streaming", {}))
        updates = [update for _, update in self._streaming.values()]
        self._fetches = [size, output.loss, weight, per_example, parts, updates]
        streamed = [value for value, _ in self._streaming.values()]
        self._lookups = RowLookups(tf.global_variables(), tf.nest.flatten([self._fetches, streamed]))
        self.looked_up = self._lookups.names
        self.variable_names = tuple(variable.op.name for variable in self._lookups.others)
        self._begin_op = tf.local_variables_initializer()
        self._init_op = tf.group(self._begin_op, tf.tables_initializer())
        self.has_parts = not self._streaming and gives_parts(self._dataset)

    @contextlib.contextmanager
    def open(self, values: Mapping[str, Any]) -> Iterator[None]:
        """Opens the session with some values of the model variables; those in `looked_up` may be a `RowSource`."""
        with tf.Session(graph=self._graph) as self._session, self._lookups.use(values):
            load_values(self._session, self._lookups.others, values)
            self._session.run(self._init_op)
            yield

    def sums(self) -> EvaluationSums:
        """Returns sums over no batches yet."""
        return EvaluationSums(self._metric_names, self._pooled)

    def add_all(self, sums: EvaluationSums, after_batch: Callable[[int], bool]) -> None:
        """Adds all batches to `sums`.

        Args:
            sums: Sums over no batches yet.
            after_batch: Function that is told the number of examples after each batch, and returns whether to continue.
        """
        self._add(self._iterator.initializer, {}, sums, after_batch)
        sums.streamed = {name: float(self._run(value)) for name, (value, _) in self._streaming.items()}

    def prepare_parts(self, first_batch: int, num_parts: int) -> None:
        """Builds what `add_part` needs: part i has every `num_parts`-th batch from batch `first_batch` + i on."""
        with self._graph.as_default():
            number = tf.placeholder(tf.int64, [])
            batches = self._dataset.test_part(
                batch_size=BATCH_SIZE,
                num_examples=self.num_examples,
                first_batch=first_batch,
                part=number,
                num_parts=num_parts,
            )
            self._part = number, self._iterator.make_initializer(batches)

    def add_part(self, sums: EvaluationSums, part: int, after_batch: Callable[[int], bool]) -> None:
        """Adds the batches of a part to `sums`; the arguments are those of `add_all`."""
        number, initializer = self._part
        self._add(initializer, {number: part}, sums, after_batch)

    def _add(
        self,
        initializer: tf.Operation,
        feeds: Mapping[tf.Tensor, int],
        sums: EvaluationSums,
        after_batch: Callable[[int], bool],
    ) -> None:
        self._run(initializer, feeds)
        slices = self._slices.feeds(lambda: self._run(self._read), self._measure)
        while True:
            try:
                *fetched, _ = self._run(self._fetches, next(slices))
            except tf.errors.OutOfRangeError:
                return
            except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
                if (broken := data_error(error)) is None:
                    raise
                raise broken from error
            sums.add(*fetched)
            if not after_batch(sums.num_examples):
                return

    def _measure(self, feeds: Mapping[tf.Tensor, np.ndarray]) -> None:
        """Evaluates examples before all others, and forgets them: also what the model counts in local variables."""
        self._run(self._fetches[:-1], feeds)
        self._run(self._begin_op)

    def _run(self, fetches: Any, feeds: Mapping[tf.Tensor, Any] | None = None) -> Any:
        if self._session is None:
            raise RuntimeError("the evaluation is not open")
        return self._session.run(fetches, feeds)


def gives_parts(dataset: Any) -> bool:
    """Returns whether `dataset.test_part` gives the examples of `dataset.test`, which a subclass may have replaced."""
    module = getattr(getattr(type(dataset), "test", None), "__module__", None) or ""
    return hasattr(dataset, "test_part") and module.startswith("ps_trainer.")


def _examples(dataset: Any, num_examples: int | None) -> Any:
    examples = dataset.test(batch_size=BATCH_SIZE)
    if examples is None or num_examples is None:
        return examples
    if hasattr(dataset, "test_sample"):
        return dataset.test_sample(batch_size=BATCH_SIZE, num_examples=num_examples)
    return examples.unbatch().take(num_examples).batch(BATCH_SIZE)


def _smaller(total: int | None, wanted: int | None) -> int | None:
    return min((number for number in (total, wanted) if number is not None), default=None)


def metric_names(components: Components) -> list[str]:
    """Returns the names of the metrics that `evaluate` computes."""
    with tf.Graph().as_default():
        examples = components.dataset.test(batch_size=BATCH_SIZE)
        if examples is None:
            return []
        output = build_plain(components.model, placeholders(examples.element_spec))
    return ["loss", *output.metrics, *getattr(output, "pooled", {}), *getattr(output, "streaming", {})]

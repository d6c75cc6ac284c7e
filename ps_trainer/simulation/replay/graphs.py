"""Graphs of a replay: the model's gradient at fed parameters, and the optimizer's update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.simulation.replay.gradients import RowsGradient
from ps_trainer.simulation.replay.training_setup import TrainingSetup, WorkerResult
from ps_trainer.store.extents import VariableSpec
from ps_trainer.store.trace import is_local
from ps_trainer.store.variables import create_variable


class GradientGraph:
    """The model's loss, metrics and gradient at fed parameters.

    Attributes:
        feeds: Placeholders: an iterator's handle, then the trainable parameters.
        fetches: Tensors whose values `result` sorts.
        kinds: Whether a gradient consists of rows, by name of the variable; only variables that have a gradient.
        untrained: Variables that are not trainable, by name.
        load_untrained: Op that assigns each of them, and the op's placeholder, by name.
    """

    def __init__(self, model: Any, specs: Sequence[VariableSpec], like: tf.data.Iterator):
        handle = tf.placeholder(tf.string, [])
        batch = tf.data.Iterator.from_string_handle(
            handle, tf.data.get_output_types(like), tf.data.get_output_shapes(like), tf.data.get_output_classes(like)
        ).get_next()
        trained = {spec.name: tf.placeholder(tf.as_dtype(spec.dtype), spec.shape) for spec in specs if spec.trainable}
        self.untrained = {s.name: create_variable(s.name, s.shape, s.dtype) for s in specs if not s.trainable}
        self.load_untrained = {}
        for name, variable in self.untrained.items():
            value = tf.placeholder(variable.dtype.base_dtype, variable.shape)
            self.load_untrained[name] = (variable.assign(value, read_value=False), value)
        with tf.variable_scope("", custom_getter=GivenValues(trained | self.untrained)):
            output = model.build(batch, training=True)
        tables = {spec.name for spec in specs if spec.is_table}
        gradients = {}
        for name, value in zip(trained, tf.gradients(output.loss, list(trained.values())), strict=True):
            if value is not None:
                # A `tf.gather` from a dense variable also gives rows, but on the ps tasks only tables take rows.
                gradients[name] = value if name in tables else tf.convert_to_tensor(value)
        self.feeds = [handle, *trained.values()]
        self.kinds = {name: isinstance(value, tf.IndexedSlices) for name, value in gradients.items()}
        self._metrics = list(output.metrics)
        self.fetches = [output.loss, *(tf.reduce_mean(output.metrics[name]) for name in self._metrics)]
        for value in gradients.values():
            is_rows = isinstance(value, tf.IndexedSlices)
            self.fetches += [value.values, tf.cast(value.indices, tf.int64)] if is_rows else [value]
        # Fetched last, so that `result` may ignore their values.
        self.fetches += tf.get_collection(tf.GraphKeys.UPDATE_OPS)

    def result(self, outputs: list[Any]) -> WorkerResult:
        """Sorts the fetched values into loss, metrics and gradient."""
        values = iter(outputs)
        loss = float(next(values))
        metrics = {name: float(next(values)) for name in self._metrics}
        gradient: dict[str, np.ndarray | RowsGradient] = {}
        for name, is_rows in self.kinds.items():
            gradient[name] = RowsGradient(next(values), next(values)) if is_rows else next(values)
        return WorkerResult(loss, metrics, gradient)


class UpdateGraph:
    """The optimizer with its own copy of the variables.

    Attributes:
        clock: Placeholder of global_step.
        feeds: Placeholders: clock, number of earlier updates, factor of the learning rate, and the gradients.
        fetches: Trainable parameters after the update.
        kinds: Whether a gradient consists of rows, by name of the variable.
        learning_rate: Scheduled learning rate at `clock`.
        params: Placeholders of `load_params_op`.
        load_params_op: Op that assigns the parameters.
        slots: Placeholders of `load_slots_op`.
        load_slots_op: Op that assigns the slots.
        slot_reads: Values of the slots.
        init_ops: Ops that initialise the variables.
    """

    def __init__(self, training: TrainingSetup, specs: Sequence[VariableSpec], kinds: dict[str, bool]):
        self.kinds = kinds
        self.clock, num_applied = tf.placeholder(tf.int64, []), tf.placeholder(tf.int64, [])
        factor = tf.placeholder(tf.float32, [])
        trained = {spec.name: spec for spec in specs if spec.trainable}
        with tf.variable_scope("ps"):
            variables = {name: create_variable(name, spec.shape, spec.dtype) for name, spec in trained.items()}
        self.learning_rate = tf.convert_to_tensor(
            training.rate_schedule.build(training.learning_rate, self.clock), tf.float32
        )
        self.feeds, pairs = [self.clock, num_applied, factor], []
        for name, is_rows in kinds.items():
            value, feeds = _gradient_feed(trained[name], is_rows=is_rows)
            self.feeds += feeds
            pairs.append((value, variables[name]))
        optimizer = training.optimizer.create(self.learning_rate * factor, num_applied)
        with tf.control_dependencies([optimizer.apply_gradients(pairs)]):
            # New reads, which wait for the update. A fetch of the variable itself would run an older read op.
            self.fetches = [variable.read_value() for variable in variables.values()]
        slots = [optimizer.get_slot(variable, name) for _, variable in pairs for name in optimizer.get_slot_names()]
        slots = [slot for slot in slots if slot is not None]
        self.slot_reads = [slot.read_value() for slot in slots]
        self.params, self.load_params_op = _load(list(variables.values()))
        self.slots, self.load_slots_op = _load(slots)
        self.init_ops = [variable.initializer for variable in [*variables.values(), *slots]]


class GivenValues:
    """Custom getter of a variable scope: returns given tensors or variables instead of creating variables.

    Args:
        values: Tensors or variables to return, by name.
    """

    def __init__(self, values: Mapping[str, Any]):
        self._values = values
        self._given: set[str] = set()

    def __call__(self, getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        if is_local(kwargs):
            return getter(name, *args, **kwargs)
        value = self._values[name]
        if name not in self._given:  # as in `ParameterStore.model_getter`, a reused variable has only one loss
            self._given.add(name)
            regularizer = kwargs.get("regularizer")
            loss = None if regularizer is None else regularizer(tf.convert_to_tensor(value))
            if loss is not None:
                tf.add_to_collection(tf.GraphKeys.REGULARIZATION_LOSSES, loss)
        return value


def create_iterator(examples: tf.data.Dataset) -> tf.data.Iterator:
    """Creates an iterator without autotuning, which does not change the order of the examples.

    With autotuning, closing each iterator would wait up to a second for tf.data's autotuning thread.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return tf.data.make_initializable_iterator(examples.with_options(options))


def _gradient_feed(spec: VariableSpec, *, is_rows: bool) -> tuple[tf.Tensor | tf.IndexedSlices, list[tf.Tensor]]:
    dtype = tf.as_dtype(spec.dtype)
    if not is_rows:
        value = tf.placeholder(dtype, spec.shape)
        return value, [value]
    values, indices = tf.placeholder(dtype, [None, *spec.shape[1:]]), tf.placeholder(tf.int64, [None])
    return tf.IndexedSlices(values, indices, tf.constant(spec.shape, tf.int64)), [values, indices]


def _load(variables: list[tf.Variable]) -> tuple[list[tf.Tensor], tf.Operation]:
    """Builds placeholders for variables and the op that assigns them."""
    feeds = [tf.placeholder(variable.dtype.base_dtype, variable.shape) for variable in variables]
    assigns = [variable.assign(value, read_value=False) for variable, value in zip(variables, feeds, strict=True)]
    return feeds, tf.group(*assigns)

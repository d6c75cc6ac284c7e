"""Rejects a model whose `build` does what the run itself does, and finds variables that should be embedding tables.

A TF1 script makes its own optimizer, feeds placeholders, and returns whatever its loop needs. A model that was copied
from such a script builds without an error, and fails, or trains slowly, only in the cluster. So these checks look at
the graph of the trace, before the worker joins a run.
"""

from __future__ import annotations

import inspect
import pathlib
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.store.ancestors import ancestors
from ps_trainer.store.extents import VariableSpec
from ps_trainer.store.trace import ModelTrace

_OUTPUT = "layers.ModelOutput(loss, predictions, metrics), for example layers.classifier_output(logits, label)"
_FIELDS = ("loss", "predictions", "metrics")
_GATHERS = {"ResourceGather", "Gather", "GatherV2"}
_READS = {"ReadVariableOp", "Identity"}
_INITIALISES = {"VarIsInitializedOp", "AssignVariableOp"}
_MEGABYTE = 1e6
_MODELS = (pathlib.Path(__file__).parents[1] / "models").resolve()  # in a clone a symbolic link
# A smaller variable costs little, however it is read.
_MIN_BYTES = 50_000


def build(model: Any, name: str, batch: Any) -> Any:
    """Builds the model for training in the default graph, and returns its output.

    Args:
        model: Model.
        name: Its name, for messages.
        batch: Tensors of a batch: the only placeholders in the graph.

    Raises:
        OptionError: `build` has other parameters than (batch, training), or returns something else than a model's
            output. It reads tensors that the dataset does not give, or of another shape than a model or a layer of
            `ps_trainer.models` needs, or calls layers that TensorFlow no longer has. It makes updates by its own
            optimizer, or uses placeholders.
    """
    try:
        inspect.signature(model.build).bind(batch, training=True)
    except TypeError as error:
        raise OptionError(
            f"model {name!r}: build{inspect.signature(model.build)} cannot be called as build(batch, training=True)"
            f" ({error}); define it as build(self, batch, training)"
        ) from error
    try:
        output = model.build(_Batch(batch, name) if isinstance(batch, dict) else batch, training=True)
    except ValueError as error:
        if not _is_by_model_of_package(error):
            raise
        raise OptionError(f"model {name!r}: {error}") from error
    except AttributeError as error:
        if "Keras 3" not in str(error):
            raise
        raise OptionError(
            f"model {name!r}: TensorFlow 2.21 says: {error} Use the layers of ps_trainer.models.layers, or"
            " tf.get_variable and tf.nn"
        ) from error
    graph = tf.get_default_graph()
    # Before the output: a model with an optimizer mostly returns its train op, too.
    _check_optimizer(graph, name)
    _check_output(output, name)
    _check_placeholders(graph, name, output, batch)
    return output


def embedding_advice(trace: ModelTrace) -> str | None:
    """Finds plain variables of which the model only gathers rows; returns a warning, or None if there are none.

    Such a variable travels as a whole in every step, and so does its gradient. Of an embedding table only the rows of
    the batch travel.

    Args:
        trace: Trace of the model.
    """
    found: list[tuple[VariableSpec, int | None]] = []
    for spec, handle in trace.handles():
        if not spec.trainable or spec.is_table or not spec.shape or spec.num_bytes < _MIN_BYTES:
            continue
        indices = _gather_indices(handle)
        if not indices:
            continue
        counts = [index.shape.num_elements() for index in indices]
        known = None if None in counts else min(sum(count or 0 for count in counts), spec.shape[0])
        if known is None or 2 * known <= spec.shape[0]:
            found.append((spec, known))
    if not found:
        return None
    whole = f"{sum(spec.num_bytes for spec, _ in found) / _MEGABYTE:.2f} MB"
    share = ""
    if all(rows is not None for _, rows in found):
        needed = sum(spec.num_bytes / spec.shape[0] * (rows or 0) for spec, rows in found)
        share = f" (at most {needed / _MEGABYTE:.2f} MB)"
    names = ", ".join(spec.name for spec, _ in found)
    return (
        f"the model reads only some rows of {names} by a gather, but these are plain variables, so the whole {whole}"
        f" travel to the worker in every step, and a dense gradient of {whole} travels back; create them by"
        f" layers.embedding, so that only the batch's rows travel{share}"
    )


class _Batch(dict[str, Any]):
    """A batch that names its tensors when the model asks for another one."""

    def __init__(self, batch: Mapping[str, Any], model: str):
        super().__init__(batch)
        self._model = model

    def __missing__(self, key: str) -> Any:
        raise OptionError(
            f"model {self._model!r}: build reads batch[{key!r}], and the dataset gives {', '.join(sorted(self))};"
            " choose a dataset that fits the model by --dataset, or another form of this one (csv and parquet have"
            " --dataset_option=form=columns and form=sparse), or read one of these"
        )


def _is_by_model_of_package(error: ValueError) -> bool:
    """Returns whether a model or a layer of this package found what is wrong, and not TensorFlow or a user's code."""
    (*_, (frame, _)) = traceback.walk_tb(error.__traceback__)
    return pathlib.Path(frame.f_code.co_filename).resolve().parent.is_relative_to(_MODELS)


def _check_optimizer(graph: tf.Graph, name: str) -> None:
    # `tf.train.Optimizer.apply_gradients`, and so `minimize`, puts its op into this collection.
    train_ops = graph.get_collection(tf.GraphKeys.TRAIN_OP)
    if train_ops:
        raise OptionError(
            f"model {name!r}: build applies gradients by its own optimizer ({train_ops[0].name}); leave the"
            " optimizer and minimize out, return the loss, and choose the optimizer by --optimizer and --learning_rate"
        )
    if graph.get_collection(tf.GraphKeys.GLOBAL_STEP):
        raise OptionError(
            f"model {name!r}: build creates a global_step, but the run has its own; leave"
            " tf.train.get_or_create_global_step out, and choose a learning rate that depends on it by --schedule"
        )


def _check_output(output: Any, name: str) -> None:
    if any(not hasattr(output, field) for field in _FIELDS):
        raise OptionError(f"model {name!r}: build returned {_describe(output)}; return {_OUTPUT}")
    loss = output.loss
    if not tf.is_tensor(loss):
        raise OptionError(f"model {name!r}: the loss is {_describe(loss)}; it has to be a scalar tensor")
    if loss.shape.rank not in (None, 0):
        raise OptionError(
            f"model {name!r}: the loss has the shape {loss.shape}, and a loss is a scalar; return its mean,"
            " tf.reduce_mean(loss)"
        )


def _check_placeholders(graph: tf.Graph, name: str, output: Any, batch: Any) -> None:
    given = {tensor.op for tensor in tf.nest.flatten(batch)}
    results = [tensor for tensor in _tensors(output) if tf.is_tensor(tensor)]
    used = ancestors([*(tensor.op for tensor in results), *graph.get_collection(tf.GraphKeys.UPDATE_OPS)])
    own = sorted(op.name for op in used if op.type == "Placeholder" and op not in given)
    if own:
        keys = f" (here: {', '.join(sorted(map(str, batch)))})" if isinstance(batch, Mapping) else ""
        raise OptionError(
            f"model {name!r}: build uses the placeholder{'s' * (len(own) > 1)} {', '.join(own)}, and no step has a"
            f" feed_dict; take the tensors from `batch`{keys}, which the dataset fills"
        )


def _tensors(output: Any) -> Iterator[Any]:
    yield output.loss
    yield from tf.nest.flatten(output.predictions)
    yield from tf.nest.flatten(output.metrics)


def _gather_indices(tensor: tf.Tensor) -> list[tf.Tensor]:
    """Returns the indices of all gathers of rows from a variable or its value; empty if it has another use, or none."""
    indices: list[tf.Tensor] = []
    for op in tensor.consumers():
        if op.type in _INITIALISES:
            continue
        if op.type in _READS and op.outputs[0].consumers():
            inner = _gather_indices(op.outputs[0])
            if not inner:
                return []
            indices += inner
        elif op.type in _GATHERS and op.inputs[0] is tensor and _is_along_rows(op):
            indices.append(op.inputs[1])
        elif op.type not in _READS:
            return []
    return indices


def _is_along_rows(op: tf.Operation) -> bool:
    return op.type != "GatherV2" or tf.get_static_value(op.inputs[2]) == 0


def _describe(value: Any) -> str:
    if value is None:
        return "None"
    if tf.is_tensor(value):
        return "a tensor alone"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)} values"
    return f"a {type(value).__name__}"

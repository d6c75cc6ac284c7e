"""`from_model_fn`: a model from a function in Estimator's form, `model_fn(features, labels, mode, params)`.

TensorFlow 2.21 has no `tf.estimator` any more, so `EstimatorSpec` and `ModeKeys` are here. An optimizer that
`model_fn` makes is taken over: `minimize` builds nothing, and the run gets the optimizer and its settings
(`model_fn_optimizer.py`).
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.api import model_fn_optimizer
from ps_trainer.api.model_fn_optimizer import FoundOptimizer
from ps_trainer.errors import ArgumentError, ArgumentTypeError

_ARGUMENTS = ("features", "labels", "mode", "params", "config")


class ModeKeys:
    """Values of `mode`, as in `tf.estimator.ModeKeys`."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


class EstimatorSpec(NamedTuple):
    """Result of a `model_fn`; the part of `tf.estimator.EstimatorSpec` that training and evaluation use.

    Attributes:
        mode: One of `ModeKeys`.
        predictions: Tensor or dict of tensors.
        loss: Scalar, which training minimises.
        train_op: Result of `optimizer.minimize`; None leaves the optimizer to `train(optimizer=…)`.
        eval_metric_ops: Pairs (value, update op) of `tf.metrics` by name.
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Mapping[str, tuple[Any, Any]] | None = None


class ModelFnOutput(NamedTuple):
    """Output of a model's `build`, with metrics that `tf.metrics` computes.

    Attributes:
        loss: Scalar that training minimises.
        predictions: Predictions of the batch.
        metrics: Always empty; evaluation reads `streaming`.
        streaming: Pairs (value, update op) by name.
    """

    loss: tf.Tensor
    predictions: Any
    metrics: Mapping[str, tf.Tensor]
    streaming: Mapping[str, tuple[tf.Tensor, tf.Tensor]]


class ModelFn:
    """A model that calls a `model_fn`.

    Args:
        model_fn: The function.
        params: Value of its argument `params`.

    Attributes:
        function: The function.
        optimizer: Optimizer that the function made when it was last built for training; None if it made none.

    Raises:
        ArgumentTypeError: The function has other arguments than Estimator's.
    """

    def __init__(self, model_fn: Callable[..., Any], params: Mapping[str, Any] | None = None):
        self.function = model_fn
        self._params = dict(params or {})
        self._arguments = _arguments_of(model_fn)
        self.name = getattr(model_fn, "__name__", type(model_fn).__name__)
        self.optimizer: FoundOptimizer | None = None

    def build(self, batch: Any, *, training: bool) -> ModelFnOutput:
        """Calls the function on a batch, in mode TRAIN or EVAL.

        Args:
            batch: Pair (features, labels); or a dict with "label", which is split; or the features alone.
            training: Whether to build for training.

        Raises:
            ArgumentError: The function returns no loss, or an optimizer that cannot be taken over.
        """
        features, labels = _split(batch)
        mode = ModeKeys.TRAIN if training else ModeKeys.EVAL
        values = {"features": features, "labels": labels, "mode": mode, "params": self._params, "config": None}
        with _some_global_step(), model_fn_optimizer.taking_over(self.name) as found:
            spec = self.function(**{name: values[name] for name in self._arguments})
        if getattr(spec, "loss", None) is None:
            raise ArgumentError(f"{self.name} returns no loss in mode {mode!r}; return EstimatorSpec(mode, loss=loss)")
        if training:
            self.optimizer = model_fn_optimizer.check(found, spec, self.name)
        return ModelFnOutput(
            loss=spec.loss,
            predictions=getattr(spec, "predictions", None),
            metrics={},
            streaming={} if training else dict(getattr(spec, "eval_metric_ops", None) or {}),
        )


def from_model_fn(model_fn: Callable[..., Any], params: Mapping[str, Any] | None = None) -> ModelFn:
    """Returns a model that calls a function in Estimator's form.

    Args:
        model_fn: Function with the argument `features` and, if it likes, `labels`, `mode`, `params` and `config`. It
            returns an object with the attributes of `EstimatorSpec`.
        params: Value of its argument `params`.

    Raises:
        ArgumentTypeError: The function has an argument of another name, or none called features.
    """
    return ModelFn(model_fn, params)


def _arguments_of(model_fn: Callable[..., Any]) -> tuple[str, ...]:
    if not callable(model_fn):
        raise ArgumentTypeError(f"model_fn={model_fn!r} cannot be called; give a function")
    names = list(inspect.signature(model_fn).parameters)
    unknown = [name for name in names if name not in _ARGUMENTS]
    if unknown or "features" not in names:
        problem = f"an argument {unknown[0]!r}" if unknown else "no argument features"
        raise ArgumentTypeError(f"model_fn has {problem}; its arguments are {', '.join(_ARGUMENTS)}")
    return tuple(names)


def _split(batch: Any) -> tuple[Any, Any]:
    """Returns the features and labels of a batch."""
    if isinstance(batch, tuple) and len(batch) == 2:
        return batch
    if isinstance(batch, Mapping) and "label" in batch:
        return {name: value for name, value in batch.items() if name != "label"}, batch["label"]
    return batch, None


@contextlib.contextmanager
def _some_global_step() -> Iterator[None]:
    """Gives the default graph a `global_step` inside of the body, if it has none.

    A worker's graph has the run's own. The graphs that show the variables and that evaluate have none, and
    `get_or_create_global_step` would make one, which would count as a variable of the model.
    """
    if tf.train.get_global_step() is not None:
        yield
        return
    collection = tf.get_default_graph().get_collection_ref(tf.GraphKeys.GLOBAL_STEP)
    collection.append(tf.constant(0, tf.int64, name="no_global_step"))
    try:
        yield
    finally:
        collection.clear()

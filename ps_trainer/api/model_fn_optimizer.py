"""Takes over the optimizer that a `model_fn` makes, so that the ps tasks run it.

Inside of a `model_fn`, `optimizer.minimize(loss)` builds nothing and records the optimizer. Its class and its settings
become the run's, if a registered optimizer computes exactly the same. Otherwise, the error names what to give instead.
"""

from __future__ import annotations

import contextlib
import functools
import numbers
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.errors import ArgumentError

# Class -> name of the registered optimizer, attribute of the learning rate, and attributes of its options.
_KNOWN: dict[type, tuple[str, str, Mapping[str, str]]] = {
    tf.train.GradientDescentOptimizer: ("sgd", "_learning_rate", {}),
    tf.train.MomentumOptimizer: (
        "momentum",
        "_learning_rate",
        {"momentum": "_momentum", "nesterov": "_use_nesterov"},
    ),
    tf.train.AdagradOptimizer: (
        "adagrad",
        "_learning_rate",
        {"initial_accumulator_value": "_initial_accumulator_value"},
    ),
    tf.train.AdamOptimizer: ("adam", "_lr", {"beta1": "_beta1", "beta2": "_beta2", "epsilon": "_epsilon"}),
    tf.train.RMSPropOptimizer: (
        "rmsprop",
        "_learning_rate",
        {"decay": "_decay", "momentum": "_momentum", "epsilon": "_epsilon", "centered": "_centered"},
    ),
}
_FIX = "return train_op=None from model_fn and give train(optimizer=…, learning_rate=…, optimizer_option={…})"


class FoundOptimizer(NamedTuple):
    """An optimizer of a `model_fn` as settings of the run.

    Attributes:
        optimizer: Name of the registered optimizer.
        learning_rate: Its learning rate.
        optimizer_option: Its options, as `key=value`.
    """

    optimizer: str
    learning_rate: float
    optimizer_option: tuple[str, ...]


class Minimized(NamedTuple):
    """A call of `minimize`: the optimizer, the loss, and the op that took the place of the update."""

    optimizer: tf.train.Optimizer
    loss: Any
    train_op: tf.Operation


# A graph is built in one thread; others may build their own graphs at the same time.
_of_thread = threading.local()
_install_lock = threading.Lock()
_original: dict[str, Callable[..., Any]] = {}


@contextlib.contextmanager
def taking_over(name: str) -> Iterator[list[Minimized]]:
    """Records calls of `minimize` in the body, in this thread, instead of building them.

    Args:
        name: Name of the `model_fn`, for messages.

    Yields:
        The list of recorded calls.
    """
    _install()
    calls: list[Minimized] = []
    _of_thread.record = (name, calls)
    try:
        yield calls
    finally:
        _of_thread.record = None


def check(calls: list[Minimized], spec: Any, name: str) -> FoundOptimizer | None:
    """Returns the optimizer that a `model_fn` made, as settings of the run; None if it made none.

    Args:
        calls: Recorded calls of `minimize`.
        spec: Result of the function.
        name: Name of the function, for messages.

    Raises:
        ArgumentError: There are several, one is not known or has a learning rate that changes, or `train_op` is not
            the result of `minimize`.
    """
    train_op = getattr(spec, "train_op", None)
    if train_op is None and not calls:
        return None
    if len(calls) != 1:
        many = f"{len(calls)} calls of minimize" if calls else "a train_op that is not the result of minimize"
        raise ArgumentError(f"{name} has {many}, and the ps tasks run one optimizer; {_FIX}")
    (call,) = calls
    if call.loss is not spec.loss:
        raise ArgumentError(f"{name} minimizes another tensor than the loss that it returns; return that one as loss")
    if train_op is not None and train_op is not call.train_op:
        raise ArgumentError(f"{name} returns a train_op that is not the result of minimize; {_FIX}")
    return _find_settings(call.optimizer, name)


def _find_settings(optimizer: tf.train.Optimizer, name: str) -> FoundOptimizer:
    kind = type(optimizer).__name__
    if type(optimizer) not in _KNOWN:
        raise ArgumentError(f"{name} uses {kind}, which is not one that the ps tasks know; {_FIX}")
    registered, rate_attribute, attributes = _KNOWN[type(optimizer)]
    rate = getattr(optimizer, rate_attribute)
    rate = rate() if callable(rate) else rate
    if not isinstance(rate, numbers.Real):
        raise ArgumentError(
            f"{name} gives {kind} a learning rate that is a tensor; give it a number, and the decay as"
            " train(schedule='exponential', schedule_option={…})"
        )
    options = {key: getattr(optimizer, attribute) for key, attribute in attributes.items()}
    for key, value in options.items():
        if not isinstance(value, (numbers.Real, bool)):
            raise ArgumentError(f"{name} gives {kind} the {key} {value!r}, which is not a number; {_FIX}")
    return FoundOptimizer(registered, float(rate), tuple(f"{key}={value}".lower() for key, value in options.items()))


def _install() -> None:
    """Lets the methods of `tf.train.Optimizer` look for a recording in their thread; elsewhere they work as before."""
    with _install_lock:
        if _original:
            return
        _original["minimize"] = tf.train.Optimizer.minimize
        _original["apply_gradients"] = tf.train.Optimizer.apply_gradients
        # `wraps` keeps the signatures, which others may inspect.
        tf.train.Optimizer.minimize = functools.wraps(_original["minimize"])(_minimize)
        tf.train.Optimizer.apply_gradients = functools.wraps(_original["apply_gradients"])(_apply_gradients)


def _minimize(self: tf.train.Optimizer, loss: Any, *args: Any, **kwargs: Any) -> Any:
    record = getattr(_of_thread, "record", None)
    if record is None:
        return _original["minimize"](self, loss, *args, **kwargs)
    name, calls = record
    if kwargs.get("var_list") is not None or len(args) > 1:
        raise ArgumentError(f"{name} minimizes by a part of the variables (var_list), and a run trains all; {_FIX}")
    calls.append(Minimized(self, loss, tf.no_op("taken_over")))
    return calls[-1].train_op


def _apply_gradients(self: tf.train.Optimizer, *args: Any, **kwargs: Any) -> Any:
    record = getattr(_of_thread, "record", None)
    if record is None:
        return _original["apply_gradients"](self, *args, **kwargs)
    raise ArgumentError(
        f"{record[0]} changes gradients between compute_gradients and apply_gradients; call minimize instead, and give"
        " train(gradient_transform='clip_norm:norm=5') or another transform"
    )

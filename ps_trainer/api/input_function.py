"""`InputFunction`: a caller's function that makes a `tf.data.Dataset` of batches, or generates feeds."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf2
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import ArgumentError, ArgumentTypeError

TRAIN, EVAL = "train", "eval"

# Arguments that an input function may have; it gets those that it names.
_ARGUMENTS = ("mode", "batch_size", "shard", "seed")
_MAKE_INSIDE = "build the whole dataset inside of the function, as every task builds its own graph"
_WHOLE = Shard(0, 1)
# A user's function may keep state, and the tasks of one process call it from several threads.
_lock = threading.RLock()


class InputFunction:
    """A function that returns a dataset of batches, or is a generator of feeds; or one that returns arrays.

    Args:
        function: The function. It may have the arguments mode ("train" or "eval"), batch_size, shard (with `index` and
            `count`) and seed.
        name: Name of the API's argument, for messages.

    Attributes:
        name: Name of the API's argument, and of the function.
        takes_mode: Whether the function tells training and test data apart.
        takes_shard: Whether the function divides the examples among the workers itself.
        takes_batch_size: Whether the function makes batches of the run's size.

    Raises:
        ArgumentTypeError: The function needs an argument of another name.
    """

    def __init__(self, function: Callable[..., Any], name: str):
        self._function = function
        self._arguments = _arguments_of(function, name)
        self._feed_spec: Any = None  # of a generator
        self.name = f"{name} ({getattr(function, '__name__', type(function).__name__)})"
        self.takes_mode = "mode" in self._arguments
        self.takes_shard = "shard" in self._arguments
        self.takes_batch_size = "batch_size" in self._arguments

    def call(self, mode: str, *, shard: Shard = _WHOLE, batch_size: int, seed: int = 0) -> Any:
        """Returns the function's result, in the default graph."""
        values = {"mode": mode, "batch_size": batch_size, "shard": shard, "seed": seed}
        with _lock:
            return self._function(**{name: values[name] for name in self._arguments})

    def batches(self, mode: str, *, shard: Shard = _WHOLE, batch_size: int, seed: int = 0) -> tf.data.Dataset:
        """Returns the function's dataset of batches, in the default graph.

        Raises:
            ArgumentTypeError: The function returns something else.
        """
        dataset = self.call(mode, shard=shard, batch_size=batch_size, seed=seed)
        if isinstance(dataset, Iterator):
            if self._feed_spec is None:
                self._feed_spec = self._spec_of(next(dataset, None))
            return tf.data.Dataset.from_generator(
                lambda: self.call(mode, shard=shard, batch_size=batch_size, seed=seed),
                output_signature=self._feed_spec,
            )
        if not isinstance(dataset, tf2.data.Dataset):
            kind = "a tensor" if any(map(tf2.is_tensor, tf.nest.flatten(dataset))) else f"a {type(dataset).__name__}"
            raise ArgumentTypeError(
                f"{self.name} returns {kind}; return a tf.data.Dataset of batches, or a tuple or dict of NumPy arrays"
                " with all examples, or yield one batch of arrays after the other"
            )
        return dataset

    def find_batch_size(self, wanted: int | None) -> int:
        """Returns the number of examples in a batch, found by reading the first one.

        Args:
            wanted: Number that the caller asked for; None = any.

        Raises:
            ArgumentError: There is no batch, the batches are of another size, or the dataset cannot be read.
        """
        with tf.Graph().as_default() as graph:
            dataset = self.batches(TRAIN, batch_size=wanted or 1)
            try:
                batch = tf.data.make_initializable_iterator(dataset)
                first = tf.nest.flatten(batch.get_next())
                # Without the GPU: TensorFlow would reserve its memory for this one batch.
                with tf.Session(graph=graph, config=tf.ConfigProto(device_count={"GPU": 0})) as session:
                    session.run(tf.tables_initializer())
                    session.run(batch.initializer)
                    values = session.run(first)
            except tf.errors.OutOfRangeError as error:
                raise ArgumentError(f"{self.name} gives no batch; its dataset is empty") from error
            except (ValueError, TypeError, RuntimeError, AttributeError, NotImplementedError) as error:
                raise ArgumentError(
                    f"{self.name} gives a dataset that cannot be read: {error}; {_MAKE_INSIDE}"
                ) from error
        sizes = {np.shape(value)[0] if np.ndim(value) else 0 for value in values}
        if len(sizes) != 1 or 0 in sizes:
            raise ArgumentError(
                f"{self.name} gives elements of the shapes {[np.shape(value) for value in values]}; the first dimension"
                " must count the examples of a batch; add .batch(32, drop_remainder=True)"
            )
        (size,) = sizes
        if wanted not in (None, size) and not self.takes_batch_size:
            raise ArgumentError(
                f"batch_size={wanted}, but {self.name} makes batches of {size}; leave batch_size out, or give the"
                " function an argument batch_size"
            )
        return int(size)

    def _spec_of(self, feed: Any) -> Any:
        if feed is None:
            raise ArgumentError(f"{self.name} gives no batch; it yields nothing")
        return tf.nest.map_structure(_spec, feed)


def _spec(value: Any) -> tf.TensorSpec:
    array = np.asarray(value)
    return tf.TensorSpec([None, *array.shape[1:]] if array.ndim else [], tf.as_dtype(array.dtype))


def _arguments_of(function: Callable[..., Any], name: str) -> frozenset[str]:
    """Returns the arguments that the function has and can be given.

    Raises:
        ArgumentTypeError: It needs another argument.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function of C code
        return frozenset()
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    unknown = [p.name for p in named if p.name not in _ARGUMENTS and p.default is p.empty]
    unknown += [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY and p.default is p.empty]
    if unknown:
        raise ArgumentTypeError(
            f"{name}: the function needs the argument {unknown[0]!r}; it may have {', '.join(_ARGUMENTS)}; bind others"
            f" by functools.partial(function, {unknown[0]}=…)"
        )
    return frozenset(p.name for p in named if p.name in _ARGUMENTS)

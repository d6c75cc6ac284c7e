"""State of the transforms on the worker: variables, the step count, and random seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

_PREFIX = "gradient_transforms"


class TransformState:
    """The transforms' state of one worker.

    Args:
        seed: Seed of the run.
        worker_index: Index of this worker.

    Attributes:
        variables: All variables, each on the device of the scope in which it was created.
        updates: Ops that change the variables; every sending step runs all of them.
    """

    def __init__(self, seed: int, worker_index: int):
        self.variables: list[tf.Variable] = []
        self.updates: list[tf.Operation] = []
        self._seed = seed
        self._worker_index = worker_index
        self._step: tf.Tensor | None = None

    def create(self, name: str, shape: Sequence[int], dtype: tf.DType, initializer: Any = None) -> tf.Variable:
        """Creates a local resource variable, whose first value is zero unless there is an `initializer`."""
        variable = tf.get_variable(
            f"{_PREFIX}/{name}",
            shape,
            dtype,
            initializer=initializer or tf.zeros_initializer(),
            collections=[tf.GraphKeys.LOCAL_VARIABLES],
            trainable=False,
            use_resource=True,
        )
        self.variables.append(variable)
        return variable

    def step(self) -> tf.Tensor:
        """Returns the number of sends before this one, int64 scalar."""
        if self._step is None:
            counter = self.create("step", [], tf.int64)
            self._step = counter.read_value()
            # The read comes first; otherwise a draw of this step might use the number of the next one.
            with tf.control_dependencies([self._step]):
                self.updates.append(counter.assign_add(1, read_value=False))
        return self._step

    def static_seed(self, purpose: str) -> int:
        """Returns a seed of 63 bits that depends on run, worker and purpose."""
        # Not `hash`, which differs from process to process: a restarted worker must draw the same numbers.
        text = f"{self._seed}/{self._worker_index}/{purpose}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


class SiteState:
    """The part of a worker's state that belongs to one codec at one site.

    Args:
        worker: State of the whole worker.
        path: Name of the site, followed by the names of the enclosing codecs.
    """

    def __init__(self, worker: TransformState, path: str):
        self._worker = worker
        self._path = path

    def of(self, name: str) -> SiteState:
        """Returns the state of codec `name` at the same site."""
        return SiteState(self._worker, f"{self._path}/{name}")

    def variable(self, name: str, shape: Sequence[int], dtype: tf.DType, initializer: Any = None) -> tf.Variable:
        """Creates a variable on the worker, whose first value is zero unless there is an `initializer`."""
        return self._worker.create(f"{self._path}/{name}", shape, dtype, initializer)

    def update(self, variable: tf.Variable, value: tf.Tensor) -> None:
        """Sets `variable` to `value` in every sending step."""
        self._worker.updates.append(variable.assign(value, read_value=False))

    def step(self) -> tf.Tensor:
        """Returns the number of sends before this one, int64 scalar on the worker."""
        return self._worker.step()

    def static_seed(self, purpose: str = "") -> int:
        """Returns a seed of 63 bits for this run, worker, site, codec and purpose, the same in every step."""
        return self._worker.static_seed(f"{self._path}/{purpose}")

    def seed(self, purpose: str = "") -> tf.Tensor:
        """Builds the seed for `tf.random.stateless_*` in this step: (`static_seed`, step), int64."""
        return step_seed(self.static_seed(purpose), self.step())


def step_seed(static_seed: int, step: tf.Tensor) -> tf.Tensor:
    """Builds the seed for `tf.random.stateless_*` from a static half and the step."""
    return tf.stack([tf.constant(static_seed, tf.int64), tf.reshape(step, [])])

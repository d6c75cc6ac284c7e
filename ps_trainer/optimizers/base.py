"""What an optimizer component is: the arithmetic that every ps task applies to its own parameters.

The store builds one optimizer per ps task, under `tf.device` of that ps:

    learning_rate = schedule.build(base_learning_rate, clock_k)
    apply_op = optimizer.create(learning_rate, clock_k).apply_gradients(pairs_of_ps_k)

`tf.train.Optimizer.apply_gradients` makes its hyper-parameter constants in the caller's device scope, so they,
the schedule and the slots all lie on ps k; only gradients travel. Made on the worker instead, each
hyper-parameter would be one more message per ps and step.

Updates are built with `use_locking=True` unless the update rule says otherwise. Dense updates of resource
variables are exclusive anyway, but sparse ones take only a *shared* lock without it: two workers that push the
same row at the same moment both read the old value, and one of the two updates is lost.
"""

from __future__ import annotations

import abc
from typing import Any

import tensorflow.compat.v1 as tf


class PsOptimizer(abc.ABC):
    """Base of the optimizer components.

    A subclass has a frozen, keyword-only dataclass `Options` and implements `create`.

    Attributes:
        walks_whole_table: whether a sparse gradient (`tf.IndexedSlices`, from an embedding) costs work in
            proportion to the whole variable rather than to the rows in the gradient.
        options: the instance of `Options` that it was made from.
    """

    walks_whole_table: bool = False

    def __init__(self, options: Any):
        self.options = options

    @property
    def momentum(self) -> float:
        """Share of the velocity (in Adam: of the gradients' average) that stays each step; 0 without one."""
        return getattr(self.options, "momentum", getattr(self.options, "beta1", 0.0))

    @abc.abstractmethod
    def create(
        self, learning_rate: tf.Tensor | float, step: tf.Tensor, *, use_locking: bool = True
    ) -> tf.train.Optimizer:
        """A new TensorFlow optimizer for the variables of one ps task.

        Call it, and `apply_gradients` of the result, under `tf.device` of that ps.

        Args:
            learning_rate: float32 scalar, already scheduled.
            step: int64 scalar on that ps, the number of updates applied there before this one.
            use_locking: whether a sparse update excludes others of the same variable; without, updates of the
                same row at the same moment may be lost. Dense updates exclude each other either way.

        Returns:
            An optimizer for resource variables on that ps; use it for one `apply_gradients`.
        """

"""`PsOptimizer`: the interface of an optimizer, which every ps task applies to its own parameters.

`updates.apply.Applier` creates one optimizer per ps task, under `tf.device` of that ps:

    learning_rate = schedule.build(base_learning_rate, clock_k)
    apply_op = optimizer.create(learning_rate, clock_k).apply_gradients(pairs_of_ps_k)

`tf.train.Optimizer.apply_gradients` creates its hyper-parameter constants in the caller's device scope. So they, the
schedule and the slots all lie on ps k, and only gradients travel. On the worker, each hyper-parameter would cost one
more message per ps and step.

Updates are built with `use_locking=True` unless the update rule chooses otherwise. Dense updates of resource variables
are always exclusive. Sparse ones take only a *shared* lock without it. If two workers push the same row at the same
moment, both updates read the old value, and one is lost.
"""

from __future__ import annotations

import abc
from typing import Any

import tensorflow.compat.v1 as tf


class PsOptimizer(abc.ABC):
    """Base of the optimizer components.

    A subclass has a frozen, keyword-only dataclass `Options` and implements `create`.

    Attributes:
        walks_whole_table: Whether the work for a sparse gradient (`tf.IndexedSlices`, from an embedding) is
            proportional to the whole variable, not to the rows in the gradient.
        options: Instance of `Options` from which it was created.
    """

    walks_whole_table: bool = False

    def __init__(self, options: Any):
        self.options = options

    @property
    def momentum(self) -> float:
        """Share of the velocity (in Adam: of the average of gradients) that remains in each step; 0 without one."""
        return getattr(self.options, "momentum", getattr(self.options, "beta1", 0.0))

    @abc.abstractmethod
    def create(
        self, learning_rate: tf.Tensor | float, step: tf.Tensor, *, use_locking: bool = True
    ) -> tf.train.Optimizer:
        """Creates a TensorFlow optimizer for the variables of one ps task.

        Call it, and `apply_gradients` of the result, under `tf.device` of that ps.

        Args:
            learning_rate: Learning rate after the schedule, float32 scalar.
            step: Number of updates applied on that ps before this one, int64 scalar there.
            use_locking: Whether a sparse update excludes others of the same variable. Without it, one of two
                simultaneous updates of a row may be lost. Dense updates always exclude each other.

        Returns:
            An optimizer for resource variables on that ps; use it for one call of `apply_gradients`.
        """

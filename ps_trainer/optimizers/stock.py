"""Optimizers that TensorFlow ships, as components: sgd, momentum, adagrad, rmsprop, ftrl.

In the formulas `w` is a parameter, `g` its gradient, and `lr` the scheduled learning rate of the step; all operations
are element by element. "Slots" is the memory on the ps beside the parameters themselves.
"""

from __future__ import annotations

import dataclasses

import tensorflow.compat.v1 as tf

from ps_trainer.optimizers.base import PsOptimizer
from ps_trainer.options import option


class LockedSgdOptimizer(tf.train.GradientDescentOptimizer):
    """`tf.train.GradientDescentOptimizer` whose concurrent sparse updates are never lost.

    The stock class ignores `use_locking` for sparse gradients: its op ResourceScatterAdd has no such attribute and
    holds a shared lock. ResourceScatterNdSub holds the exclusive lock, at the same speed.
    """

    def _resource_apply_sparse_duplicate_indices(
        self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor
    ) -> tf.Operation:
        # Repeated indices need no sum first, because the op subtracts one update after the other.
        return tf.raw_ops.ResourceScatterNdSub(
            ref=handle.handle,
            indices=tf.expand_dims(indices, 1),
            updates=grad * tf.cast(self._learning_rate_tensor, grad.dtype),
            use_locking=True,
        )


class Sgd(PsOptimizer):
    """Stochastic gradient descent.

    Formula: w -= lr * g.
    Source: Robbins and Monro 1951; `tf.train.GradientDescentOptimizer`.
    Slots: none.
    Sparse: changes only the rows in the gradient, equal to the dense form.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Empty: `Sgd` has no options."""

    def create(
        self, learning_rate: tf.Tensor | float, step: tf.Tensor, *, use_locking: bool = True
    ) -> tf.train.Optimizer:
        """Creates the SGD optimizer, which does not use `step`."""
        if use_locking:
            return LockedSgdOptimizer(learning_rate, use_locking=True)
        # The stock op holds a shared lock, which is what `hogwild` asks for.
        return tf.train.GradientDescentOptimizer(learning_rate, use_locking=False)


class Momentum(PsOptimizer):
    """Gradient descent with momentum, classical or Nesterov's.

    Formula: v = momentum * v + g; then w -= lr * v, or with nesterov w -= lr * (g + momentum * v).
        The learning rate is not part of v, so a change by the schedule takes effect at once, without correction.
    Source: Polyak 1964; Sutskever et al. 2013 for nesterov; `tf.train.MomentumOptimizer`.
    Slots: 1 x the parameters (`<var>/Momentum`, zeros at first).
    Sparse: changes only the rows in the gradient: the velocity of other rows neither decays nor moves them.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Momentum`."""

        momentum: float = option(0.9, "share of the velocity that remains in each step", least=0, below=1)
        nesterov: bool = option(False, "Nesterov's form: look ahead along the velocity")

    def create(
        self, learning_rate: tf.Tensor | float, step: tf.Tensor, *, use_locking: bool = True
    ) -> tf.train.Optimizer:
        """Creates the momentum optimizer, which does not use `step`."""
        return tf.train.MomentumOptimizer(
            learning_rate, self.options.momentum, use_locking=use_locking, use_nesterov=self.options.nesterov
        )


class Adagrad(PsOptimizer):
    """Adagrad: a learning rate per parameter, which falls with the sum of its squared gradients.

    Formula: a += g * g; w -= lr * g / sqrt(a). It has no epsilon, because a starts above zero.
    Source: Duchi et al. 2011; `tf.train.AdagradOptimizer`.
    Slots: 1 x the parameters (`<var>/Adagrad`, initial_accumulator_value at first).
    Sparse: changes only the rows in the gradient, equal to the dense form.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Adagrad`."""

        initial_accumulator_value: float = option(0.1, "value of the squared-gradient sums before training", above=0)

    def create(
        self, learning_rate: tf.Tensor | float, step: tf.Tensor, *, use_locking: bool = True
    ) -> tf.train.Optimizer:
        """Creates the Adagrad optimizer, which does not use `step`."""
        return tf.train.AdagradOptimizer(learning_rate, self.options.initial_accumulator_value, use_locking=use_locking)


class RmsProp(PsOptimizer):
    """RMSProp: gradients scaled by a moving average of their squares.

    Formula: s = decay * s + (1 - decay) * g * g; centered: c = decay * c + (1 - decay) * g, else c = 0;
        v = momentum * v + lr * g / sqrt(s - c * c + epsilon); w -= v.
        Epsilon is inside the root, and s starts at one, not zero.
    Source: Tieleman and Hinton 2012, lecture 6.5; Graves 2013 for centered; `tf.train.RMSPropOptimizer`.
    Slots: 2 x the parameters (`<var>/RMSProp`: s, `<var>/RMSProp_1`: v), also without momentum;
        centered 3 x (`<var>/RMSProp`: s, `<var>/RMSProp_1`: c, `<var>/RMSProp_2`: v).
    Sparse: changes only the rows in the gradient: averages of other rows do not decay.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `RmsProp`."""

        decay: float = option(0.9, "share of the average of squares that remains in each step", least=0, below=1)
        momentum: float = option(0.0, "share of the velocity that remains in each step", least=0, below=1)
        epsilon: float = option(1e-10, "added to the average of squares inside the root", above=0)
        centered: bool = option(False, "divide by the variance rather than by the mean of squares")

    def create(
        self, learning_rate: tf.Tensor | float, step: tf.Tensor, *, use_locking: bool = True
    ) -> tf.train.Optimizer:
        """Creates the RMSProp optimizer, which does not use `step`."""
        return tf.train.RMSPropOptimizer(
            learning_rate,
            decay=self.options.decay,
            momentum=self.options.momentum,
            epsilon=self.options.epsilon,
            centered=self.options.centered,
            use_locking=use_locking,
        )


class Ftrl(PsOptimizer):
    """FTRL-Proximal for sparse linear models; its l1 penalty gives exact zeros.

    Formula, with p = -learning_rate_power: b = a + g * g; z += g - (b**p - a**p) / lr * w; a = b;
        w = (sign(z) * l1 - z) / (b**p / lr + 2 * l2) where |z| > l1, else 0.
        z starts at 0 and not at the value that belongs to w. So the first update forgets most of the initial value (all
        of it if g is 0). Use it for linear models that start at zero, not for deep layers.
    Source: McMahan et al. 2013, algorithm 1; `tf.train.FtrlOptimizer`.
    Slots: 2 x the parameters (`<var>/Ftrl`: a, initial_accumulator_value at first; `<var>/Ftrl_1`: z).
    Sparse: changes only the rows in the gradient.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Ftrl`."""

        l1: float = option(0.0, "strength of the l1 penalty", least=0)
        l2: float = option(0.0, "strength of the l2 penalty, which stabilises the update", least=0)
        learning_rate_power: float = option(-0.5, "power of the squared-gradient sum in the rate; 0 = fixed", most=0)
        initial_accumulator_value: float = option(0.1, "value of the squared-gradient sums before training", least=0)

    def create(
        self, learning_rate: tf.Tensor | float, step: tf.Tensor, *, use_locking: bool = True
    ) -> tf.train.Optimizer:
        """Creates the FTRL optimizer, which does not use `step`."""
        return tf.train.FtrlOptimizer(
            learning_rate,
            learning_rate_power=self.options.learning_rate_power,
            initial_accumulator_value=self.options.initial_accumulator_value,
            l1_regularization_strength=self.options.l1,
            l2_regularization_strength=self.options.l2,
            use_locking=use_locking,
        )

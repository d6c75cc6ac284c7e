"""Gradient transforms `top_k`, `random_k` and `threshold`: send a few elements and leave out the others."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.gradients.base import Codec, Encoded, Feedback, Scope, Stage, Transform
from ps_trainer.gradients.state import step_seed
from ps_trainer.options import option

# Four bytes per index are enough: a variable of 2**31 elements exceeds TensorFlow's limit of 2 GiB per message.
INDEX_DTYPE = tf.int32


def num_kept(ratio: float, size: int) -> int:
    """Returns the number of elements of `size` that are sent: ⌈ratio · size⌉, at least 1."""
    # Rounding first: 0.07 * 100 is 7.000000000000001, whose ceiling is 8.
    return min(size, max(1, math.ceil(round(ratio * size, 6))))


def keep(values: tf.Tensor, indices: tf.Tensor) -> Encoded:
    """Encodes the values at `indices` (int32 vector) with their indices; the other values arrive as 0."""
    size = values.shape.num_elements()

    def decode(kept: tf.Tensor, side: Sequence[tf.Tensor]) -> tf.Tensor:
        return scatter(side[0], kept, size)

    return Encoded(tf.gather(values, indices), (indices,), decode)


def scatter(indices: tf.Tensor, kept: tf.Tensor, size: int) -> tf.Tensor:
    """Builds a vector of `size` elements with `kept` at `indices` and 0 elsewhere."""
    return tf.scatter_nd(indices[:, tf.newaxis], kept, [size])


@dataclasses.dataclass(frozen=True, kw_only=True)
class _RatioOptions:
    """Options of `TopK`, and the base of those of `RandomK`."""

    ratio: float = option(0.01, "share of the elements that are sent", above=0, most=1)


class TopK(Codec):
    """Sends the largest elements by magnitude.

        C(g)_i = g_i if |g_i| is among the k = ⌈ratio · n⌉ largest, else 0

    Source: Aji and Heafield 2017 (gradient dropping); Stich et al. 2018, Definition 2.2 (top_k).
    Bytes: 8 · ratio per element (index 4, value 4); with cast after it 6 · ratio. State: none. Biased: it needs
    error_feedback before it, which a run adds, to converge to the same point.

    k counts elements of a ps variable, not of a model variable. So with the packed layout, layers with small gradients
    send less than others, as with Aji and Heafield's "global" threshold. Rows of tables pass unchanged. Of elements
    with equal magnitudes the one with the lower index is sent.
    """

    name = "top_k"
    stage = Stage.SELECT
    Options = _RatioOptions

    @property
    def feedback(self) -> Feedback:
        return Feedback.NEEDED

    def encode(self, values: tf.Tensor, scope: Scope) -> Encoded:
        k = num_kept(self.options.ratio, values.shape.num_elements())
        # Unsorted, because every value travels with its index.
        return keep(values, tf.math.top_k(tf.abs(values), k, sorted=False).indices)


class RandomK(Codec):
    """Sends elements that are drawn at random, the same number in each step.

        C(g)_i = g_i / ratio if i is in a uniformly drawn subset of k = ⌈ratio · n⌉ elements, else 0

    Source: Stich et al. 2018, Definition 2.2 (rand_k); the scaled form is Wangni et al. 2018 with equal probabilities.
    Bytes: 4 · ratio per element, and 8 per message, because the indices do not travel. The ps draws them again from
    (seed, step), and its graph contains the seed. The generator is counter-based and the draw sorts integers on the CPU
    of either task, so both draw the same indices. State: a step count. Unbiased with scale=true (the scale is n/k,
    exact for every size); with scale=false a contraction, before which a run adds error_feedback.

    The draw costs O(n) on the worker and again on the ps, per worker and step. Rows of tables pass unchanged.
    """

    name = "random_k"
    stage = Stage.SELECT

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(_RatioOptions):
        """Options of `RandomK`."""

        scale: bool = option(True, "multiply by 1/ratio, so that the mean is right; false after error_feedback")

    @property
    def feedback(self) -> Feedback:
        return Feedback.HARMFUL if self.options.scale else Feedback.NEEDED

    def check(self, before: Sequence[Transform]) -> None:
        if self.options.scale and any(transform.stage == Stage.FEEDBACK for transform in before):
            raise OptionError(
                "--gradient_transform random_k:scale=true after error_feedback diverges: the residual of a sent element"
                f" is multiplied by 1 − 1/ratio; write random_k:ratio={self.options.ratio:g},scale=false"
            )

    def encode(self, values: tf.Tensor, scope: Scope) -> Encoded:
        size = values.shape.num_elements()
        k = num_kept(self.options.ratio, size)
        scale = size / k if self.options.scale else 1.0
        seed = scope.state.static_seed()
        # A vector, as all that travels; the ps needs the step to draw the same indices.
        step = tf.reshape(scope.state.step(), [1])

        def decode(kept: tf.Tensor, side: Sequence[tf.Tensor]) -> tf.Tensor:
            return scatter(draw(size, k, seed, side[0]), kept, size)

        return Encoded(tf.gather(values, draw(size, k, seed, step)) * tf.constant(scale, values.dtype), (step,), decode)


def draw(size: int, k: int, static_seed: int, step: tf.Tensor) -> tf.Tensor:
    """Draws `k` different indices below `size`, int32: those of the largest among `size` random integers."""
    with tf.device("/device:CPU:0"):  # the CPU of the caller's task: worker and ps then run the same kernels
        seed = step_seed(static_seed, step)
        keys = tf.random.stateless_uniform([size], seed, minval=None, maxval=None, dtype=tf.int32)
        return tf.math.top_k(keys, k).indices


class Threshold(Codec):
    """Sends the elements of at least a given magnitude.

        C(g)_i = g_i if |g_i| ≥ value, else 0

    Source: Strom 2015 (with the residual, for which error_feedback stands here).
    Bytes: 8 per sent element, and 4 per message. The number of elements varies from step to step. It may be zero, or
    all elements, which take twice the bytes of the plain gradient. State: none. Biased: it
    needs error_feedback before it, which a run adds.

    Departs from Strom: the elements' values are sent (as in Dryden et al. 2016), not ±value; with `sign` after it,
    each takes one bit instead. Rows of tables pass unchanged.
    """

    name = "threshold"
    stage = Stage.SELECT

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Threshold`."""

        value: float = option(0.001, "smallest magnitude that is sent", above=0)

    @property
    def feedback(self) -> Feedback:
        return Feedback.NEEDED

    def encode(self, values: tf.Tensor, scope: Scope) -> Encoded:
        chosen = tf.where_v2(tf.abs(values) >= tf.constant(self.options.value, values.dtype))
        return keep(values, tf.cast(tf.reshape(chosen, [-1]), INDEX_DTYPE))

"""Learning-rate schedules over the clock of a ps task.

`step` is the number of updates applied on that ps before this one: 0 for the first. If an update is one `global_step`
(asynchronous and synchronous training), it equals `global_step`. In the formulas `lr` is `--learning_rate`; the decay
counts from step 0, with the warm-up.

Every schedule has the option `warmup_steps` = W, which multiplies its value by min(1, (step + 1) / W). This is a linear
ramp from lr / W at step 0 to the full value at step W - 1 (gradual warm-up: Goyal et al. 2017, section 2.2).

The tensors are created in the caller's device scope: under `tf.device` of a ps, the schedule runs there.
"""

from __future__ import annotations

import abc
import dataclasses
import itertools

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.options import format_value, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmupOptions:
    """Options of every schedule."""

    warmup_steps: int = option(0, "steps of linear warm-up; 0 = none", least=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecayOptions(WarmupOptions):
    """Options of the schedules that decay over a number of steps."""

    decay_steps: int = option(1000, "steps that the decay takes; usually --max_steps", least=1)


class LearningRateSchedule(abc.ABC):
    """Base of the schedules: multiplies the result of a subclass's `_build_decay` by the warm-up.

    Attributes:
        options: Instance of `Options` from which it was created.
    """

    Options: type = WarmupOptions

    def __init__(self, options: WarmupOptions):
        self.options = options

    def build(self, learning_rate: float, step: tf.Tensor) -> tf.Tensor:
        """Builds the learning rate of the update after `step` others.

        Args:
            learning_rate: The `lr` of the formulas.
            step: Number of updates applied before this one, int64 scalar.

        Returns:
            The learning rate, float32 scalar in the caller's device scope.
        """
        with tf.name_scope("learning_rate"):
            rate = tf.cast(self._build_decay(learning_rate, step), tf.float32)
            # With one step of warm-up the ramp is 1 everywhere, so the ops would change nothing.
            if self.options.warmup_steps > 1:
                ramp = tf.cast(step + 1, tf.float32) / float(self.options.warmup_steps)
                rate *= tf.minimum(ramp, 1.0)
            return rate

    @abc.abstractmethod
    def _build_decay(self, learning_rate: float, step: tf.Tensor) -> tf.Tensor:
        """Builds the learning rate before warm-up, float32 scalar."""


class Constant(LearningRateSchedule):
    """The same learning rate at every step.

    Formula: lr.
    """

    def _build_decay(self, learning_rate: float, step: tf.Tensor) -> tf.Tensor:
        return tf.constant(learning_rate, tf.float32)


class Piecewise(LearningRateSchedule):
    """Constant pieces, with another factor after each boundary.

    Formula: lr * factors[i], where i is the number of boundaries that are less than step. At a boundary itself the old
    factor still applies, as in `tf.train.piecewise_constant`. Source: He et al. 2016, section 4.2: a tenth after 1/2
    and again after 3/4 of the training. The default values are these for the default of --max_steps.
    """

    options: Options

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(WarmupOptions):
        """Options of `Piecewise`."""

        boundaries: tuple[int, ...] = option(
            (500, 750), "steps after which the next factor applies, increasing", least=0
        )
        factors: tuple[float, ...] = option(
            (1.0, 0.1, 0.01), "factor of each piece; one more value than boundaries", least=0
        )

        def __post_init__(self) -> None:
            steps = self.boundaries
            if any(a >= b for a, b in itertools.pairwise(steps)):
                raise OptionError(f"boundaries={format_value(steps)} must increase, as 500,750")
            if len(self.factors) != len(steps) + 1:
                raise OptionError(
                    f"factors={format_value(self.factors)} has {len(self.factors)} values, but"
                    f" boundaries={format_value(steps)} cut the run into {len(steps) + 1} pieces; give as many factors"
                )

    def _build_decay(self, learning_rate: float, step: tf.Tensor) -> tf.Tensor:
        # tf.train.piecewise_constant gives the same values through a chain of conditionals and assertions.
        rates = tf.constant([learning_rate * factor for factor in self.options.factors], tf.float32)
        boundaries = tf.constant(self.options.boundaries, tf.int64)
        return tf.gather(rates, tf.reduce_sum(tf.cast(step > boundaries, tf.int64)))


class ExponentialDecay(LearningRateSchedule):
    """Decays by a constant rate.

    Formula: lr * decay_rate ** (max(step - hold_steps, 0) / decay_steps); with staircase the quotient is rounded down.
    Source: `tf.train.exponential_decay`.
    """

    options: Options

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(DecayOptions):
        """Options of `ExponentialDecay`."""

        decay_rate: float = option(0.96, "factor after each decay_steps steps", above=0)
        staircase: bool = option(False, "decay in one jump after each decay_steps steps, not gradually")
        hold_steps: int = option(0, "steps at the full rate before the decay begins", least=0)

    def _build_decay(self, learning_rate: float, step: tf.Tensor) -> tf.Tensor:
        options = self.options
        if options.hold_steps:
            step = tf.maximum(step - options.hold_steps, 0)
        return tf.train.exponential_decay(
            learning_rate, step, options.decay_steps, options.decay_rate, staircase=options.staircase
        )


class Cosine(LearningRateSchedule):
    """Half a cosine from the learning rate down to a share of it.

    Formula: lr * ((1 - alpha) * (1 + cos(pi * min(step, decay_steps) / decay_steps)) / 2 + alpha).
    Source: Loshchilov and Hutter 2017, equation 5, without restarts; `tf.train.cosine_decay`.
    """

    options: Options

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(DecayOptions):
        """Options of `Cosine`."""

        alpha: float = option(0.0, "share of the learning rate that is left at the end", least=0, most=1)

    def _build_decay(self, learning_rate: float, step: tf.Tensor) -> tf.Tensor:
        return tf.train.cosine_decay(learning_rate, step, self.options.decay_steps, alpha=self.options.alpha)


class Polynomial(LearningRateSchedule):
    """A power of the remaining share of the decay; a straight line with power 1.

    Formula: lr * ((1 - end_factor) * (1 - min(step, decay_steps) / decay_steps) ** power + end_factor).
    Source: `tf.train.polynomial_decay` without cycle, with end_learning_rate = lr * end_factor.
    """

    options: Options

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(DecayOptions):
        """Options of `Polynomial`."""

        end_factor: float = option(0.0, "share of the learning rate that is left at the end", least=0, most=1)
        power: float = option(1.0, "power of the remaining part; 1 = a straight line", above=0)

    def _build_decay(self, learning_rate: float, step: tf.Tensor) -> tf.Tensor:
        options = self.options
        end = learning_rate * options.end_factor
        return tf.train.polynomial_decay(learning_rate, step, options.decay_steps, end, power=options.power)


class InverseSqrt(LearningRateSchedule):
    """Falls with the inverse square root of the step, after warm-up.

    Formula, with W = max(warmup_steps, 1): lr * min(1, (step + 1) / W) * sqrt(W / max(step + 1, W)).
        The peak is lr, at step W - 1.
    Source: Vaswani et al. 2017, equation 3, whose step_num is step + 1 and whose peak
        d_model ** -0.5 * W ** -0.5 is lr here.
    """

    def _build_decay(self, learning_rate: float, step: tf.Tensor) -> tf.Tensor:
        peak = float(max(self.options.warmup_steps, 1))
        return learning_rate * tf.sqrt(peak / tf.maximum(tf.cast(step + 1, tf.float32), peak))

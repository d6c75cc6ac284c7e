"""Adam for parameter servers: bias correction from the ps clock, and a sparse form that changes only its rows.

The stock `tf.train.AdamOptimizer` keeps beta1**t and beta2**t in two variables on one ps. Several asynchronous workers
update them by read, multiply and assign, which loses factors, and the other ps tasks fetch them in each step. Here each
ps task computes both powers from its own clock. So there is no race, no fetch, and no further tensor in the checkpoint.
Two workers that apply at the same moment may see the same clock. Then only the bias correction of one update is a step
behind.
"""

from __future__ import annotations

import dataclasses

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.optimizers.base import PsOptimizer
from ps_trainer.options import option


class ClockAdamOptimizer(tf.train.AdamOptimizer):
    """`tf.train.AdamOptimizer` with the beta powers computed from a clock.

    Slots have the names of the stock class (`<var>/Adam`: m, `<var>/Adam_1`: v). The stock's variables `beta1_power`
    and `beta2_power` do not exist. The class overrides protected methods of the stock class; a test compares the two
    step by step.

    Args:
        learning_rate: Learning rate, float32 scalar.
        step: Number of updates applied before this one, int64 scalar; the powers are beta**(step + 1).
        beta1: Decay of the first moment.
        beta2: Decay of the second moment.
        epsilon: The "epsilon hat" of Kingma and Ba 2015, section 2.
        use_locking: Whether a sparse update excludes others of the same variable (`PsOptimizer.create`).
    """

    def __init__(
        self,
        learning_rate: tf.Tensor | float,
        step: tf.Tensor,
        beta1: float,
        beta2: float,
        epsilon: float,
        *,
        use_locking: bool = True,
    ):
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking=use_locking, name="Adam")
        self._step = step
        self._beta_powers: tuple[tf.Tensor, tf.Tensor]  # set by `_prepare`, which TensorFlow calls before any update

    def _create_slots(self, var_list: list[tf.Variable]) -> None:
        for var in var_list:
            # Not the inherited method, which would also create the variables of the beta powers.
            self._zeros_slot(var, "m", self._name)
            self._zeros_slot(var, "v", self._name)

    def _prepare(self) -> None:
        super()._prepare()
        # float32 represents every step up to 2**24 exactly; the powers of any usual beta are 0 long before that.
        update_number = tf.cast(self._step + 1, tf.float32)
        self._beta_powers = (tf.pow(self._beta1_t, update_number), tf.pow(self._beta2_t, update_number))

    def _get_beta_accumulators(self) -> tuple[tf.Tensor, tf.Tensor]:
        # The dense updates of the stock class ask for its two variables here.
        return self._beta_powers

    def _finish(self, update_ops: list[tf.Operation], name_scope: str) -> tf.Operation:
        # The stock class multiplies its two variables here after every update; there are none to multiply.
        return tf.group(*update_ops, name=name_scope)

    def _resource_apply_sparse(self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor) -> tf.Operation:
        """Applies `grad` [rows, ...] at the rows `indices` [rows], each of which occurs once.

        The stock form decays, adds and assigns in separate ops, and other workers' ops can run in between. One fused
        dense update has the same result under the locks of all three variables.
        """
        shape = tf.raw_ops.VariableShape(input=var.handle, out_type=indices.dtype)
        return self._resource_apply_dense(tf.scatter_nd(tf.expand_dims(indices, 1), grad, shape), var)


class LazyAdamOptimizer(ClockAdamOptimizer):
    """Adam whose sparse updates read and write only the rows in the gradient.

    It has the semantics of TensorFlow 1.15's `tf.contrib.opt.LazyAdamOptimizer`, and the arguments of
    `ClockAdamOptimizer`.
    """

    def _resource_apply_sparse(self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor) -> tf.Operation:
        # The powers are float32, and TensorFlow does not mix types; a table may have another.
        beta1_power, beta2_power = (tf.cast(power, grad.dtype) for power in self._beta_powers)
        beta1, beta2 = tf.cast(self._beta1_t, grad.dtype), tf.cast(self._beta2_t, grad.dtype)
        rate = tf.cast(self._lr_t, grad.dtype) * tf.sqrt(1 - beta2_power) / (1 - beta1_power)
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        m_rows = beta1 * tf.gather(m, indices) + (1 - beta1) * grad
        v_rows = beta2 * tf.gather(v, indices) + (1 - beta2) * tf.square(grad)
        change = rate * m_rows / (tf.sqrt(v_rows) + tf.cast(self._epsilon_t, grad.dtype))
        # With locking, the ScatterNd ops hold the variable's exclusive lock. With a shared lock or none, one of two
        # simultaneous changes of a row can be lost. The moments are read and then written in separate ops. So if two
        # updates of a row overlap, m and v keep only the later one, but the parameters get both changes.
        where, locks = tf.expand_dims(indices, 1), self._use_locking
        return tf.group(
            tf.raw_ops.ResourceScatterNdUpdate(ref=m.handle, indices=where, updates=m_rows, use_locking=locks),
            tf.raw_ops.ResourceScatterNdUpdate(ref=v.handle, indices=where, updates=v_rows, use_locking=locks),
            tf.raw_ops.ResourceScatterNdSub(ref=var.handle, indices=where, updates=change, use_locking=locks),
        )

    def _apply_sparse(self, grad: tf.IndexedSlices, var: tf.Variable) -> tf.Operation:
        # The inherited form for reference variables would update the whole table.
        raise OptionError(
            f"--optimizer=lazy_adam: {var.op.name!r} is a reference variable, and lazy_adam cannot update its rows;"
            " create it with use_resource=True, or use --optimizer=adam"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamOptions:
    """Options of `Adam` and `LazyAdam`."""

    beta1: float = option(0.9, "decay of the average of gradients", least=0, below=1)
    beta2: float = option(0.999, "decay of the average of squared gradients", least=0, below=1)
    epsilon: float = option(1e-8, "added to the root of the average of squares", above=0)


class Adam(PsOptimizer):
    """Adam: averages of the gradient and of its square, corrected for their start at zero.

    Formula: m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g * g;
        w -= lr * sqrt(1 - beta2**t) / (1 - beta1**t) * m / (sqrt(v) + epsilon), with t = step + 1.
        Epsilon is outside the root and not bias-corrected ("epsilon hat").
    Source: Kingma and Ba 2015, the form at the end of section 2; `tf.train.AdamOptimizer`. Slots: 2 x the parameters
    (`<var>/Adam`: m, `<var>/Adam_1`: v, zeros at first). Sparse: equal to the dense form, so it updates the whole table
    in each step. m and v of every row decay, and every row moves. Use `lazy_adam` for embeddings.
    """

    Options = AdamOptions
    walks_whole_table = True

    def create(
        self, learning_rate: tf.Tensor | float, step: tf.Tensor, *, use_locking: bool = True
    ) -> tf.train.Optimizer:
        options = self.options
        return ClockAdamOptimizer(
            learning_rate, step, options.beta1, options.beta2, options.epsilon, use_locking=use_locking
        )


class LazyAdam(PsOptimizer):
    """Adam that changes only the rows in the gradient of an embedding.

    Formula: Adam's for the rows in the gradient; all other rows of w, m and v do not change. The bias correction
        counts the updates of the ps, not of the row. With dense gradients it is exactly Adam.
    Source: `tf.contrib.opt.LazyAdamOptimizer` of TensorFlow 1.15.
    Slots: 2 x the parameters (`<var>/Adam`: m, `<var>/Adam_1`: v, zeros at first).
    Sparse: changes only the rows in the gradient; the work is proportional to their number, not to the table's size.
    """

    Options = AdamOptions

    def create(
        self, learning_rate: tf.Tensor | float, step: tf.Tensor, *, use_locking: bool = True
    ) -> tf.train.Optimizer:
        options = self.options
        return LazyAdamOptimizer(
            learning_rate, step, options.beta1, options.beta2, options.epsilon, use_locking=use_locking
        )

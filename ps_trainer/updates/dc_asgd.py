"""Update rule `dc_asgd`: a ps task corrects a stale gradient for the updates since it was computed."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient, Piece
from ps_trainer.store.variables import create_variable
from ps_trainer.updates.apply import count_update
from ps_trainer.updates.base import RuleContext, TrainStep, UpdateRule, grouped_by_ps
from ps_trainer.updates.counted_step import PsStepOps, build_counted_phase, build_counted_step
from ps_trainer.updates.options import DcAsgdOptions

_DECAY = 0.95
_EPSILON = 1e-7


class DcAsgd(UpdateRule):
    """Asynchronous SGD with delay compensation: a stale gradient is corrected to the current parameters.

        w_{t+1} = w_t − η_t · (g + λ_t · g ⊙ g ⊙ (w_t − w_bak))     g = g(w_bak), w_bak = what its worker pulled
        λ_t = λ                                   constant (DC-ASGD-c), or with `adaptive` (DC-ASGD-a)
        λ_t = λ₀ / √(s_t + ε),   s_t = m · s_{t−1} + (1 − m) · g ⊙ g,   s_0 = 0, m = 0.95, ε = 1e-7

    g ⊙ g approximates the diagonal of the Hessian, so the correction is the first-order term of the gradient's Taylor
    series.

    Source: Zheng et al. 2017 ("Asynchronous stochastic gradient descent with delay compensation"), equation 10,
    algorithm 1 (worker) and algorithm 2 (ps).

    Worker: 1. read each ps task's clock, then its parameters; 2. compute the gradient; 3. push it; 4. continue
    when every ps task has applied its part. The traffic equals the traffic of `async`.
    ps: 1. when a worker pulls, store the pulled values as its w_bak; 2. when its gradient arrives, in the exclusive
    section: read w, correct the gradient, apply it by the run's optimizer, count it on the clock, read clock and w for
    the worker's next step.

    `global_step` counts the applied gradients of all workers. The learning rate is per gradient, as of a single
    process with batch size `batch_size`; gradients are neither summed nor averaged. A single worker trains as in
    `async`, because no other worker changes its parameters. A run with `max_steps` ends up to num_workers − 1 steps
    above it.

    Memory on the ps: parameters and slots, w_bak of O(num_workers · parameters), and with `adaptive` s of
    O(parameters), which a checkpoint holds as a slot. Traffic per step and worker: O(parameters) each way.

    Departures from the paper: the corrected gradient goes to any optimizer, not only SGD (momentum and Adam then
    average corrected gradients). With `--pull_dtype` w_bak is the rounded value that the worker received. The rule
    rejects embedding tables: a worker does not pull a whole table, so w_bak does not exist.
    """

    Options = DcAsgdOptions
    holds_tables = False

    def __init__(self, options: DcAsgdOptions):
        self._options = options

    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        # The chief creates the variables of all workers, because it frees them at the end of the run.
        workers = range(context.num_workers) if context.is_chief else [context.worker_index]
        backups = {worker: _create_backups(store, worker) for worker in workers}
        own_backups = backups[context.worker_index]
        counts = []
        for ps, part in enumerate(grouped_by_ps(context.push.send(gradients), store.num_ps)):
            context.applier.create_slots(ps, [gradient.piece for gradient in part])
            counts.append(self._apply_exclusively(store, ps, part, own_backups, context))

        def keep(piece: Piece, value: tf.Tensor) -> tf.Operation:
            return own_backups[piece.variable.op.name].assign(value, read_value=False)

        return TrainStep(
            [build_counted_phase(store, counts, context.push.targets)],
            state=[backup for of_worker in backups.values() for backup in of_worker.values()],
            on_pull=keep,
        )

    def _apply_exclusively(
        self,
        store: ParameterStore,
        ps: int,
        part: Sequence[Gradient],
        backups: dict[str, tf.Variable],
        context: RuleContext,
    ) -> PsStepOps:
        mean_squares = self._create_mean_squares(store, ps, part, context)

        def apply(clock_read: tf.Tensor, *values: tf.Tensor) -> tf.Tensor:
            pairs = []
            for gradient, value in zip(part, values, strict=True):
                name = gradient.piece.variable.op.name
                strength = self._strength(mean_squares.get(name), value)
                drift = gradient.piece.variable.read_value() - backups[name].read_value()
                pairs.append((gradient.piece, value + strength * value * value * drift))
            with tf.control_dependencies([context.applier.apply(ps, pairs)]):
                before = count_update(store.clocks[ps])
            return tf.stack([before + 1, before - clock_read])

        return build_counted_step(store, context, ps, part, apply)

    def _create_mean_squares(
        self, store: ParameterStore, ps: int, part: Sequence[Gradient], context: RuleContext
    ) -> dict[str, tf.Variable]:
        """Creates the s of each piece of a ps task, by the piece's name; none without `adaptive`."""
        mean_squares = {}
        for piece, _ in part if self._options.adaptive else ():
            with tf.device(store.ps_device(ps)):
                name, dtype = piece.variable.op.name, piece.variable.dtype.base_dtype.as_numpy_dtype
                mean_squares[name] = create_variable(f"{name}/DcAsgdMeanSquare", piece.variable.shape, dtype)
            # Checkpoints hold what is in this list, under the name of the variable.
            context.applier.slots.append((piece, mean_squares[name]))
        return mean_squares

    def _strength(self, mean_square: tf.Variable | None, gradient: tf.Tensor) -> tf.Tensor | float:
        """Builds λ_t for a gradient that has arrived."""
        if mean_square is None:
            return self._options.strength
        updated = _DECAY * mean_square.read_value() + (1 - _DECAY) * gradient * gradient
        # λ depends on the write, because a section runs only what its results depend on.
        with tf.control_dependencies([mean_square.assign(updated, read_value=False)]):
            return self._options.strength / tf.sqrt(updated + _EPSILON)


def _create_backups(store: ParameterStore, worker: int) -> dict[str, tf.Variable]:
    """Creates the variables on the ps tasks for the values that a worker pulled last, by the piece's name."""
    backups = {}
    for piece in store.dense:
        with tf.device(store.ps_device(piece.ps)):
            name, dtype = piece.variable.op.name, piece.variable.dtype.base_dtype.as_numpy_dtype
            backups[name] = create_variable(f"dc_asgd/worker_{worker}/{name}", piece.variable.shape, dtype)
    return backups

"""Update rule `accumulate`: a worker sums several gradients before it pushes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient, Piece
from ps_trainer.store.variables import create_local_variable
from ps_trainer.updates.asynchronous import Async
from ps_trainer.updates.base import Phase, RuleContext, RunPlan, TrainStep, UpdateRule
from ps_trainer.updates.options import AccumulateOptions
from ps_trainer.updates.synchronous import Sync

_PUSH, _HOLD = 0, 1


class Accumulate(UpdateRule):
    """Gradient accumulation: a worker pushes the sum of its gradients of k batches at the same parameters.

        G = Σ_{j=1..k} g_j(w_pulled)          k = steps; with `average` G / k
        G takes the place of the gradient in the rule that is wrapped, `async` or `sync`

    Source: common practice (gradient accumulation) for batches larger than memory and for less traffic; no single
    paper.

    Worker: 1. read each ps task's clock, then its parameters; 2. k − 1 times: compute the gradient of a batch and
    add it to the sum on the worker (the worker sends nothing; the dense parameters stay the same, and each step
    reads the rows of tables again); 3. the k-th time: add, push the sum, clear it; 4. continue when the wrapped rule
    allows it.
    ps: the steps of the wrapped rule.

    `global_step` counts updates of the wrapped rule: `async` makes one per push, `sync` one per round. A worker makes
    k of its own steps for each push.

    The worker pushes the SUM. Each of the k gradients moves the parameters as far as if it were pushed alone. So the
    rule takes the learning rate of a single process with batch size `batch_size`, if it is stable at k times the step.
    With `average` a push is the gradient of one batch of k · `batch_size`, and needs a learning rate for that.
    Averaging is the same rule with a k-th of the learning rate (SGD, momentum). With an optimizer that ignores the
    scale of a gradient (Adam) it is nearly the same rule. `sync` averages over the workers. So the sums of n workers
    give Σ/n of n · k gradients, and their averages the gradient of one batch of n · k · `batch_size`.

    When a worker's data end, the gradients since its last push are lost. A restarted worker begins a new sum, and
    reads the batches of the lost sum again. Gradient transforms act on the sums, in the steps that push.

    Memory: on the ps as the wrapped rule; on the worker O(parameters), and of tables only the rows since the last
    push. Traffic per step and worker: O(parameters / k) each way, and the rows of tables that a batch reads.
    """

    Options = AccumulateOptions
    acts_on_host = True

    def __init__(self, options: AccumulateOptions):
        self._options = options
        if options.rule == "sync":
            self._wrapped: UpdateRule = Sync(options.of_sync)
        else:
            self._wrapped = Async()
        self.waits_for_others = self._wrapped.waits_for_others

    def check(self, plan: RunPlan) -> None:
        self._wrapped.check(plan)

    def min_workers(self, num_workers: int) -> int:
        return self._wrapped.min_workers(num_workers)

    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        with tf.device(store.worker_device):
            sums = [_create_sum(gradient) for gradient in gradients]
            pushed = [
                self._gradient_to_push(gradient.piece, held.total)
                for gradient, held in zip(gradients, sums, strict=True)
            ]
            known_step = create_local_variable("accumulate/global_step", [], tf.int64)
        wrapped = self._wrapped.build(store, pushed, context)
        (push,) = wrapped.phases
        with tf.device(store.worker_device):
            know_op = known_step.assign(push.global_step, read_value=False)
            # The first steps of a worker hold their gradients, so without this value they would report step 0.
            know_first_op = known_step.assign(store.clocks[0].read_value(), read_value=False)
            hold = Phase(
                global_step=known_step.read_value(),
                staleness=tf.zeros([0], tf.int64),
                targets=[held.keep_op for held in sums],
                applied=None,
                is_local=True,
            )
            join_ops = [know_first_op] if wrapped.join_op is None else [know_first_op, wrapped.join_op]
            join_op = tf.group(*join_ops)
        push = push._replace(targets=[*push.targets, know_op, *(held.clear_op for held in sums)])
        return wrapped._replace(phases=[push, hold], choose=_every(self._options.steps), join_op=join_op)

    def _gradient_to_push(self, piece: Piece, total: tf.Tensor | tf.IndexedSlices) -> Gradient:
        if not self._options.average:
            return Gradient(piece, total)
        if isinstance(total, tf.IndexedSlices):
            values = total.values / self._options.steps
            return Gradient(piece, tf.IndexedSlices(values, total.indices, total.dense_shape))
        return Gradient(piece, total / self._options.steps)


class _Sum(NamedTuple):
    """A worker's sum of one piece's gradients.

    Attributes:
        total: The sum with this step's gradient.
        keep_op: Op that stores `total` as the sum.
        clear_op: Op that sets the sum to zero after `total` has been computed.
    """

    total: tf.Tensor | tf.IndexedSlices
    keep_op: tf.Operation
    clear_op: tf.Operation


def _create_sum(gradient: Gradient) -> _Sum:
    piece, value = gradient
    name = f"accumulate/{piece.variable.op.name}"
    if isinstance(value, tf.IndexedSlices):
        return _create_row_sum(name, piece, value)
    held = create_local_variable(name, value.shape, value.dtype)
    total = held.read_value() + value
    # `tf.zeros_like` of a static shape is a constant, so without this order the sum could be cleared before it is read.
    with tf.control_dependencies([total]):
        clear_op = held.assign(tf.zeros_like(total), read_value=False)
    return _Sum(total, held.assign(total, read_value=False), clear_op)


def _create_row_sum(name: str, piece: Piece, rows: tf.IndexedSlices) -> _Sum:
    """Creates a sum of table rows, which holds each row that has occurred once."""
    row_shape = piece.variable.shape.as_list()[1:]
    no_values, no_indices = tf.zeros([0, *row_shape], rows.values.dtype), tf.zeros([0], rows.indices.dtype)
    values, indices = _create_list(f"{name}/values", no_values), _create_list(f"{name}/indices", no_indices)
    all_indices = tf.concat([indices.read_value(), rows.indices], axis=0)
    all_values = tf.concat([values.read_value(), rows.values], axis=0)
    once, position = tf.unique(all_indices)
    summed = tf.math.unsorted_segment_sum(all_values, position, tf.size(once))
    keep_op = tf.group(values.assign(summed, read_value=False), indices.assign(once, read_value=False))
    with tf.control_dependencies([summed, once]):
        clear_op = tf.group(values.assign(no_values, read_value=False), indices.assign(no_indices, read_value=False))
    return _Sum(tf.IndexedSlices(summed, once, rows.dense_shape), keep_op, clear_op)


def _create_list(name: str, nothing: tf.Tensor) -> tf.Variable:
    """Creates a local variable whose number of rows may change."""
    # `tf.get_variable` takes no shape beside a constant as its first value, so it could not leave the rows open alone.
    return tf.Variable(
        nothing,
        name=name,
        shape=[None, *nothing.shape[1:]],
        collections=[tf.GraphKeys.LOCAL_VARIABLES],
        trainable=False,
        use_resource=True,
    )


def _every(steps: int) -> Callable[[int], int]:
    """Returns a function for `TrainStep.choose` that pushes in every `steps`-th step."""
    num_made = 0

    def choose(global_step: int) -> int:
        nonlocal num_made
        num_made = (num_made + 1) % steps
        return _PUSH if num_made == 0 else _HOLD

    return choose

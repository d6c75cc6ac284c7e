"""Update rule `downpour`: each worker trains a replica, and pushes and fetches after a number of steps."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient
from ps_trainer.store.variables import create_local_variable, create_variable
from ps_trainer.updates.apply import count_update
from ps_trainer.updates.base import (
    Phase,
    RuleContext,
    RunPlan,
    StartCondition,
    TrainStep,
    UpdateRule,
    grouped_by_ps,
)
from ps_trainer.updates.options import DownpourOptions
from ps_trainer.updates.replica import LocalSteps, Replica, ops_after


class Downpour(UpdateRule):
    """Downpour SGD: each worker trains a replica, pushes summed gradients every n_push steps, fetches every n_fetch.

        worker:  w ← w − η g(w),  a ← a + g(w);   every n_push steps: push a, a ← 0;
                 every n_fetch steps: w ← W
        ps:      W ← optimizer(W, a)

    Source: Dean et al. 2012, §4.1 (Adagrad and warm start included) and the appendix's pseudocode of the
    client.

    Worker, at its step number c = 1, 2, …: 1. compute the gradient of its own batch at its replica; 2. add it to the
    accrued gradient; 3. if n_push divides c, push the accrued gradient and set it to zero; 4. if n_fetch divides c,
    replace the replica by the parameters, after the push if the step has one; otherwise move the replica by plain SGD.
    The other workers begin when the chief has brought global_step to `warm_start_steps`, or has left. They start with
    the parameters of that moment.
    ps: 1. apply an accrued gradient by the run's optimizer when it arrives; 2. count it on its clock.

    `global_step` counts the pushes of all workers, not local steps. So do max_steps, save intervals and the schedule;
    for local steps the schedule follows the last known global_step. A worker pushes the *sum* of n_push gradients: with
    sgd on the ps, the learning rate suits batch size `batch_size`, as in `async`. The paper uses Adagrad on the
    ps; local steps are plain SGD at the same rate. n_push = n_fetch = 1 is `async`. When a worker's data end, its
    gradients since the last push are lost, fewer than n_push.

    Memory on the ps: parameters and slots; on the worker: the replica and, with n_push > 1, the accrued gradient.
    Traffic per step and worker: O(parameters / n_push) up and O(parameters / n_fetch) down; a step that does neither
    sends nothing.

    Departures from the paper: its client also pushes at its first step, while here a push always holds n_push
    gradients. Its client fetches and pushes in threads while the next step begins; here both are part of the step. A
    restarted worker restores replica and accrued gradient if they belong to its last push, and otherwise begins
    without them (`training/graph_parts/worker_state_saver.py`).
    """

    Options = DownpourOptions
    holds_tables = False
    keeps_replica = True
    acts_on_host = True

    def __init__(self, options: DownpourOptions):
        self._options = options

    def check(self, plan: RunPlan) -> None:
        plan.reject_assigned("--update=downpour moves its replica by SGD with one learning rate for all variables")
        momentum = getattr(plan.optimizer, "momentum", 0.0)
        if momentum and max(self._options.n_push, self._options.n_fetch) > 1:
            raise OptionError(
                f"--update=downpour with n_push={self._options.n_push}, n_fetch={self._options.n_fetch} and"
                f" --optimizer={plan.optimizer_name} (momentum {momentum:g}): a velocity on the ps has no meaning"
                " for sums of gradients along replicas; use --optimizer=sgd or adagrad, or n_push=1 and"
                " n_fetch=1, or --update=easgd --update_option momentum=…, which keeps the velocity on the worker"
            )

    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        graph = _Graph(store, gradients, context, self._options)
        kinds = self._kinds()

        def choose(_: int) -> int:
            count = graph.steps.advance()
            return kinds.index((count % self._options.n_push == 0, count % self._options.n_fetch == 0))

        chief_left, leave_op = _leaving_of_chief(store, context)
        return TrainStep(
            [graph.phase(pushes=pushes, fetches=fetches) for pushes, fetches in kinds],
            choose=choose,
            start_when=self._start_condition(store, context, chief_left),
            join_op=graph.replica.fetch(),
            on_restored=graph.steps.restore,
            leave_op=leave_op,
            state=[chief_left],
            worker_state=[
                *graph.replica.variables,
                *graph.replica.fetched,
                *graph.accrued,
                graph.steps.variable,
            ],
        )

    def _kinds(self) -> list[tuple[bool, bool]]:
        """Returns (pushes, fetches) of each phase that occurs."""
        n_push, n_fetch = self._options.n_push, self._options.n_fetch
        kinds = [(True, True)]
        if n_push % n_fetch:
            kinds.append((True, False))
        if n_fetch % n_push:
            kinds.append((False, True))
        if min(n_push, n_fetch) > 1:
            kinds.append((False, False))
        return kinds

    def _start_condition(
        self, store: ParameterStore, context: RuleContext, chief_left: tf.Variable
    ) -> StartCondition | None:
        if context.is_chief or not self._options.warm_start_steps:
            return None
        # A chief that ends at `max_steps` never reaches a later warm start, and the others would wait forever.
        start_at = min(self._options.warm_start_steps, context.max_steps or self._options.warm_start_steps)
        with tf.device(store.ps_device(0)):
            # The chief may also run out of data before it has made the steps.
            is_met = tf.logical_or(store.clocks[0].read_value() >= start_at, chief_left.read_value())
        return StartCondition(is_met, f"global step {start_at}, until which the chief trains alone")


class _Graph:
    """The parts from which the phases are assembled."""

    def __init__(
        self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext, options: DownpourOptions
    ):
        self._store = store
        self._context = context
        self._gradients = gradients
        self.replica = Replica(store)
        self.steps = LocalSteps(store, "downpour/local_steps")
        self.accrued: list[tf.Variable] = []
        if options.n_push > 1:
            with tf.device(store.worker_device):
                self.accrued = [_create_like(gradient, "downpour/accrued") for gradient in gradients]
        self._sums = self._add_up()
        self._build_push()

    def phase(self, *, pushes: bool, fetches: bool) -> Phase:
        """Builds the phase with or without push and fetch."""
        replica = self.replica
        targets = [self.steps.advance_op(), *self._keep_sums(clears=pushes)]
        global_step, staleness = replica.global_step, replica.no_staleness
        if pushes:
            global_step, staleness = self._pushed_step, self._staleness
            targets += self._context.push.targets
        if fetches:
            values = [gradient.value for gradient in self._gradients]
            after = self._counted if pushes else ops_after(self._store, values)
            # The fetch overwrites the replica, from which the gradients are computed, and the clocks in the staleness.
            targets.append(replica.fetch(after, before_assign=[*(v.op for v in values), staleness.op]))
            if not pushes:
                global_step = replica.fetched_global_step(targets[-1])
        else:
            targets += self._local_sgd()
            if pushes:
                # Without a fetch, the push is the only news of global_step, which the schedule of local steps follows.
                targets.append(replica.store_global_step(global_step))
        pushed = self._pushed if pushes else None
        return Phase(global_step, staleness, targets, None, pushed, is_local=not (pushes or fetches))

    def _add_up(self) -> list[Gradient]:
        """Adds this step's gradient to the accrued one."""
        if not self.accrued:
            return list(self._gradients)
        with tf.device(self._store.worker_device):
            return [
                gradient._replace(value=accrued.read_value() + gradient.value)
                for gradient, accrued in zip(self._gradients, self.accrued, strict=True)
            ]

    def _keep_sums(self, *, clears: bool) -> list[tf.Operation]:
        ops = []
        with tf.device(self._store.worker_device):
            # Not strict: with n_push=1 nothing is accrued, and there is nothing to keep.
            for accrued, total in zip(self.accrued, self._sums, strict=False):
                with tf.control_dependencies([total.value]):
                    # The zeros do not depend on the sum, which must be read before it is cleared.
                    kept = tf.zeros_like(total.value) if clears else total.value
                    ops.append(accrued.assign(kept, read_value=False))
        return ops

    def _build_push(self) -> None:
        """Builds the ops that send the sums, apply and count them."""
        store, before = self._store, []
        for ps, part in enumerate(grouped_by_ps(self._context.push.send(self._sums), store.num_ps)):
            pairs = [(gradient.piece, gradient.value) for gradient in part]
            apply_op = self._context.applier.apply(ps, pairs, in_section=False)
            with (
                tf.device(store.ps_device(ps)),
                tf.control_dependencies([apply_op, *self._context.push.ops_to_await(ps)]),
            ):
                before.append(count_update(store.clocks[ps]))
        self._counted = [count.op for count in before]
        with tf.device(store.ps_device(0)):
            self._pushed = before[0] + 1
        self._staleness = self.replica.staleness(before)
        with tf.device(store.worker_device):
            # On the worker, from the count that travels for the staleness anyway: no further message.
            self._pushed_step = before[0] + 1

    def _local_sgd(self) -> list[tf.Operation]:
        with tf.device(self._store.worker_device):
            rate = self._context.applier.learning_rate(self.replica.global_step)
            return [
                gradient.piece.own_replica.assign_sub(
                    tf.cast(rate, gradient.value.dtype) * gradient.value, read_value=False
                )
                for gradient in self._gradients
            ]


def _create_like(gradient: Gradient, prefix: str) -> tf.Variable:
    variable = gradient.piece.variable
    return create_local_variable(f"{prefix}/{variable.op.name}", variable.shape, variable.dtype.base_dtype)


def _leaving_of_chief(store: ParameterStore, context: RuleContext) -> tuple[tf.Variable, tf.Operation | None]:
    """Creates a bool on ps 0 that tells whether the chief has left, and on the chief the op that sets it."""
    with tf.device(store.ps_device(0)):
        chief_left = create_variable("downpour/chief_left", [], "bool")
        return chief_left, chief_left.assign(value=True, read_value=False) if context.is_chief else None

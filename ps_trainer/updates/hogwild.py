"""Update rule `hogwild`: the ps tasks apply gradients without locks."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient
from ps_trainer.updates.apply import count_update
from ps_trainer.updates.base import RuleContext, RunPlan, TrainStep, UpdateRule, grouped_by_ps
from ps_trainer.updates.counted_step import PsStepOps, build_counted_phase


class Hogwild(UpdateRule):
    """Lock-free asynchronous SGD: workers change the same embedding rows without excluding each other.

        w_v ← w_v − η_t · g_v(w_{t−τ})          for each row v of the gradient, even if others write it at that moment

    Source: Niu, Recht, Ré and Wright 2011 ("Hogwild!: a lock-free approach to parallelizing stochastic gradient
    descent"), algorithm 1. With sparse gradients it converges almost as with locks, because two updates seldom write
    the same row.

    Worker: 1. read each ps task's clock, then its dense parameters and the rows of its batch; 2. compute the
    gradient; 3. push it; 4. continue when every ps task has applied its part.
    ps: 1. apply the gradient when it arrives, rows of tables without lock; 2. count it on the clock.

    Dense parameters: TensorFlow's dense updates of a resource variable always hold its lock, so a model without
    embedding tables trains exactly as in `async`. If two workers change a row at the same moment, one change or part
    of it may be lost. The rule does not count lost changes.

    `global_step` counts the applied gradients of all workers. The learning rate is per gradient, as of a single
    process with batch size `batch_size`; gradients are neither summed nor averaged. A run with `max_steps` ends up to
    num_workers − 1 steps above it.

    Memory on the ps: parameters and slots. Traffic per step and worker: O(dense parameters + rows of the batch).

    Departures from the paper: the threads that share the memory belong to the ps task and act for workers on other
    machines. All rows of a batch are one gradient, in place of one example's. Any optimizer but `adam` may apply it;
    its slots are then read and written without lock, too. The clocks, for staleness and max_steps, count atomically.
    """

    def check(self, plan: RunPlan) -> None:
        optimizers = [(plan.optimizer_name, plan.optimizer), *((one.name, one.optimizer) for one in plan.assigned)]
        for name, optimizer in optimizers:
            if optimizer is not None and optimizer.walks_whole_table:
                raise OptionError(
                    f"--update=hogwild changes single rows without lock, but --optimizer={name} changes"
                    " whole tables under their lock; use --optimizer=lazy_adam, sgd or adagrad, or --update=async"
                )

    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        counts = []
        for ps, part in enumerate(grouped_by_ps(context.push.send(gradients), store.num_ps)):
            pairs = [(gradient.piece, gradient.value) for gradient in part]
            apply_op = context.applier.apply(ps, pairs, use_locking=False, in_section=False)
            # No exclusive section, so τ is an upper bound, as in `async`.
            with tf.device(store.ps_device(ps)), tf.control_dependencies([apply_op, *context.push.ops_to_await(ps)]):
                before = count_update(store.clocks[ps])
                counts.append(PsStepOps(tf.stack([before + 1, before - store.clock_reads[ps]])))
        return TrainStep([build_counted_phase(store, counts, context.push.targets)])

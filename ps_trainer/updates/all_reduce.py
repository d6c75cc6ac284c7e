"""Update rule `all_reduce`: the workers add up their gradients around a ring, without a ps task."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient
from ps_trainer.updates.base import Phase, RuleContext, RunPlan, TrainStep, UpdateRule, grouped_by_ps
from ps_trainer.updates.options import AllReduceOptions
from ps_trainer.updates.ring import Ring, RingExchange


class AllReduce(UpdateRule):
    """Synchronous SGD without a ps: the workers average their gradients around a ring.

        w_{t+1} = w_t − η_t · (1/c) Σ g_i(w_t)    sum over the c workers that have data

    Source: Horovod, Sergeev and Del Balso 2018, §3 (the ring all-reduce of Patarasu and Yuan 2009) and §7 (tensor
    fusion); by TensorFlow's collective ops.

    Worker: 1. compute the gradient of its batch with its own replica of the parameters; 2. lay the gradients of
    all variables end to end, followed by a one-hot vector that names the worker; 3. add up the vectors of all workers
    around the ring: in n − 1 rounds each worker adds a part that its neighbour sends to its own vector, and in n − 1
    more rounds the sums travel on; 4. divide by the number of workers that gave a gradient; 5. apply the mean by the
    run's optimizer, whose slots lie on the worker as well. All workers compute the same update, so the replicas stay
    equal.
    ps: nothing in a step. It holds the values from which the workers start, and receives the chief's replica before
    each checkpoint. The chief sets its clock a few times a second.

    A worker that runs out of data stays in the ring with zeros that do not count, until all workers are out of data.
    If a worker fails, is killed or interrupted, the run ends on all workers with an error. After a restart they
    continue from the last checkpoint. All `num_workers` are needed from the start.

    `global_step` counts updates, the same on all workers; the clock of ps 0 lags by up to 0.2 s. Gradients are
    averaged, so the rule expects a learning rate for batch size n · `batch_size` (linear scaling: n times the
    single-process rate).

    Memory: parameters and slots on each worker, and once more on the ps tasks. Traffic per step and worker:
    2 (n − 1)/n · O(parameters) each way, nearly independent of n, in 2 (n − 1) rounds. The ps tasks receive only the
    model's own updates (UPDATE_OPS, such as batch norm's averages), which all workers make. Workers pull nothing, so
    `--pull_dtype` is rejected.

    Departs from Horovod: a worker fuses its gradients when it has computed all of them, not while it computes them.
    """

    Options = AllReduceOptions
    holds_tables = False
    keeps_replica = True
    waits_for_others = True
    acts_on_host = True

    def __init__(self, options: AllReduceOptions):
        self._options = options

    def check(self, plan: RunPlan) -> None:
        reject_packing(plan)
        if plan.pull_dtype != "float32":
            raise OptionError(
                f"--pull_dtype={plan.pull_dtype} has no effect: under --update=all_reduce workers pull no parameters;"
                " leave it out, or choose a rule whose workers pull them, such as --update=sync"
            )

    def min_workers(self, num_workers: int) -> int:
        return num_workers

    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        create_slots(store, gradients, context)
        ring = Ring(store, context.push.reduce(gradients), context, self._options.fusion_bytes)
        with tf.device(store.worker_device):
            # Every worker computes with the result of the same last turn, so no gradient is stale.
            no_staleness = tf.zeros([store.num_ps], tf.int64)
        return TrainStep(
            [Phase(ring.global_step, no_staleness, [ring.give_op], None)],
            join_op=ring.join_op,
            exchange=RingExchange(ring, is_chief=context.is_chief),
        )


def create_slots(store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> None:
    """Creates the optimizer's slots on the ps tasks; every worker copies them when it joins."""
    # No update reads these slots; initial values, checkpoints and workers that join all go through the ps tasks.
    for ps, part in enumerate(grouped_by_ps(gradients, store.num_ps)):
        if part:
            context.applier.create_slots(ps, [gradient.piece for gradient in part])


def reject_packing(plan: RunPlan) -> None:
    """Rejects transforms that compress gradients, because workers cannot add compressed ones around a ring.

    Raises:
        OptionError: The run has such a transform.
    """
    packing = [name for name in plan.transforms if not name.startswith("clip_")]
    if packing or plan.is_lossy:
        raise OptionError(
            f"--gradient_transform {', '.join(packing or plan.transforms)}: the workers add up their gradients around a"
            " ring and cannot add compressed ones; leave it out (clip_norm and clip_value can stay), or choose a rule"
            " that sends gradients to the ps tasks, such as --update=sync"
        )

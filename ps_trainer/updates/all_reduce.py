"""Update rule `all_reduce`: no ps in a step; workers add up their gradients around a ring."""

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
    """Synchronous SGD without a ps: gradients are averaged around a ring of the workers.

        w_{t+1} = w_t − η_t · (1/c) Σ g_i(w_t)    c workers that have data, all others give nothing

    Source: Horovod, Sergeev and Del Balso 2018, §3 (the ring all-reduce of Patarasu and Yuan 2009) and §7 (tensor
    fusion); by TensorFlow's collective ops.

    Worker: 1. compute the gradient of its batch with its own replica of the parameters; 2. lay the gradients of
    all variables end to end, with a 1 behind them; 3. add the vectors of all workers up around the ring: in
    n − 1 rounds each worker adds a part of the vector that its neighbour sends to its own, in n − 1 more the
    sums go round; 4. divide by the last element, the number of workers that gave a gradient; 5. apply the mean
    by the run's optimizer, whose slots are on the worker as well. Everybody computes the same, so the replicas
    stay equal.
    ps: nothing in a step. It holds what the workers start from, and takes the chief's replica whenever a
    checkpoint is saved; the chief sets its clock a few times a second.

    A worker that runs out of data goes on in the ring with zeros that do not count, until all are out. A worker
    that fails, is killed or interrupted ends the run on all workers with an error: start them again, and they
    go on from the last checkpoint. All `num_workers` are needed from the start.

    `global_step` counts updates, the same on all workers; what ps 0 says of it lags by up to 0.2 s. Gradients
    are averaged: a learning rate for batch size n · `batch_size` is expected (linear scaling: n times the
    single-process one).

    Memory: parameters and slots on each worker, and once more on the ps tasks. Traffic per step and worker:
    2 (n − 1)/n · O(parameters) each way, whatever n, in 2 (n − 1) rounds; to the ps
    tasks nothing but the model's own updates (UPDATE_OPS, such as batch norm's averages), which all workers make.
    `--pull_dtype` changes nothing, as nothing is pulled.

    Departs from Horovod: gradients are fused when all are there, not while the rest is still computed.
    """

    Options = AllReduceOptions
    holds_tables = False
    keeps_replica = True
    waits_for_others = True

    def __init__(self, options: AllReduceOptions):
        self._options = options

    def check(self, plan: RunPlan) -> None:
        refuse_packed(plan)

    def min_workers(self, num_workers: int) -> int:
        return num_workers

    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        create_slots(store, gradients, context)
        ring = Ring(store, context.push.reduce(gradients), context, self._options.fusion_bytes)
        with tf.device(store.worker_device):
            no_staleness = tf.zeros([store.num_ps], tf.int64)
        return TrainStep(
            [Phase(ring.global_step, no_staleness, [ring.give_op], None)],
            join_op=ring.join_op,
            exchange=RingExchange(ring, is_chief=context.is_chief),
        )


def create_slots(store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> None:
    """Makes the optimizer's slots on the ps tasks, of which every worker takes a copy when it joins."""
    for ps, part in enumerate(grouped_by_ps(gradients, store.num_ps)):
        if part:
            context.applier.create_slots(ps, [gradient.piece for gradient in part])


def refuse_packed(plan: RunPlan) -> None:
    """Raises OptionError where gradients are to be packed, as packed ones cannot be added up around a ring."""
    packing = [name for name in plan.transforms if not name.startswith("clip_")]
    if packing or plan.is_lossy:
        raise OptionError(
            f"--gradient_transform {', '.join(packing or plan.transforms)}: gradients are added up around a ring of"
            " workers, which cannot add compressed ones; leave it out (clip_norm and clip_value can stay), or choose"
            " a rule that sends gradients to the ps tasks, such as --update=sync"
        )

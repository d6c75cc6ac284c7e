"""Update rule `model_averaging`: at regular intervals the average of all replicas replaces the parameters."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient
from ps_trainer.updates import averaging
from ps_trainer.updates.base import RuleContext, RunPlan, TrainStep, UpdateRule
from ps_trainer.updates.options import ModelAveragingOptions


class ModelAveraging(UpdateRule):
    """Model averaging: workers train by themselves, and every `period` steps continue from the mean of all replicas.

        x_i ← optimizer(x_i, g_i(x_i))   period times;     x̄ ← (1/n) Σ x_i,  x_i ← x̄

    Source: `tf.contrib.opt.ModelAverageOptimizer` of TensorFlow 1.15.

    Worker: 1. compute the gradient of its own batch at its replica; 2. apply it to the replica by the run's optimizer;
    3. after `period` such steps push the replica itself; 4. wait until all live workers have pushed; 5. fetch.
    ps: 1. add up the replicas; 2. with the last one, replace the parameters by the mean; 3. count the round and let
    all workers continue.

    Up to rounding the arithmetic equals `local_sgd`'s, which sends differences to the last average. Here the
    parameters themselves travel, as in TensorFlow's class, so the worker need not store the values that it fetched. The
    rule rejects gradient transforms that compress, because they are made for small values around zero. `clip_*` act on
    the gradients of the local steps. Choose `local_sgd` to compress or to begin with synchronous steps.

    `global_step` counts rounds, not local steps; so do max_steps, save intervals and the schedule. The learning rate is
    the single-process one of batch size `batch_size` (with period=1, of the n times larger batch). Slots belong to
    the worker and are not averaged. Rounds do not wait for a worker that has left, and its steps since the last round
    are lost.

    Memory on the ps: parameters and a sum of their size; on the worker the replica and slots. Traffic per step and
    worker: O(parameters / period) each way; a local step sends nothing.

    Departure from TensorFlow's class: a round waits for the live workers only, where TensorFlow's waits for all
    `num_worker` workers, even for a lost one.
    """

    Options = ModelAveragingOptions
    holds_tables = False
    keeps_replica = True
    waits_for_others = True
    acts_on_host = True

    def __init__(self, options: ModelAveragingOptions):
        self._options = options

    def check(self, plan: RunPlan) -> None:
        packing = [name for name in plan.transforms if not name.startswith("clip_")]
        if packing or plan.is_lossy:
            raise OptionError(
                f"--gradient_transform {', '.join(packing or plan.transforms)}: --update=model_averaging sends"
                " parameters, not gradients, and compression would damage the model; leave it out (clip_norm and"
                " clip_value can stay), or use --update=local_sgd, which sends differences"
            )

    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        pieces = [gradient.piece for gradient in gradients]

        # The replicas do not pass `push.send`, which counts what other rules send.
        def count_sent() -> list[tf.Operation]:
            return [context.push.sent_bytes.assign_add(averaging.num_bytes(pieces), read_value=False)]

        spec = averaging.AveragingSpec(
            gradients=context.push.reduce(gradients),
            send=list,
            update=lambda piece, mean: piece.variable.assign(mean, read_value=False),
            targets=count_sent,
        )
        return averaging.build_step(store, context, spec, lambda _: self._options.period, "model_averaging")

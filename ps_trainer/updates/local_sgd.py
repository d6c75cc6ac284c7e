"""Update rule `local_sgd`: each worker makes local steps, then all continue from the average of their replicas."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient
from ps_trainer.updates import averaging
from ps_trainer.updates.base import RuleContext, TrainStep, UpdateRule
from ps_trainer.updates.options import LocalSgdOptions


class LocalSgd(UpdateRule):
    """Local SGD: each worker makes H steps on its own replica, then all continue from the average of the replicas.

        x_i ← optimizer(x_i, g_i(x_i))   H times;     x̄ ← x̄ + (1/n) Σ (x_i − x̄),  x_i ← x̄
        H = 1 while global_step < switch_step, else H = period

    Source: Stich 2019, algorithm 1; with switch_step post-local SGD, Lin et al. 2020.

    Worker: 1. compute the gradient of its own batch at its replica; 2. apply it to the replica by the run's optimizer;
    3. after H such steps push the replica minus the values fetched last; 4. wait until all live workers have pushed;
    5. fetch.
    ps: 1. add up the differences; 2. with the last one, add their mean to the parameters, without an optimizer;
    3. count the round and let all workers continue.

    The average is trained, saved and evaluated. `global_step` counts rounds, not local steps. So do max_steps, save
    intervals, switch_step and the schedule, which follows the number of rounds in local steps, too. Replicas are
    averaged over the live workers. With period=1 and sgd this is `sync`, and the rule expects a learning rate for batch
    size n · `batch_size`. With longer periods the best rate approaches that of one process. Rounds do not wait for a
    worker that has left, and its steps since the last round are lost.

    Any optimizer works. Its slots belong to the worker, are not averaged, and persist through rounds (with momentum,
    the "local momentum" of Lin et al.). Adam's bias correction counts the worker's local steps. Gradient transforms act
    on the differences, so `clip_norm` bounds a round, not a gradient.

    Memory on the ps: parameters and a sum of their size, no slots; on the worker the replica, the values fetched last,
    and slots. Traffic per step and worker: O(parameters / H) each way; a local step sends nothing.

    Departures: Stich averages at any set of steps at most H apart, here every H steps. Lin et al. switch when the
    learning rate first decays, here at the given step.
    """

    Options = LocalSgdOptions
    holds_tables = False
    keeps_replica = True
    waits_for_others = True
    acts_on_host = True

    def __init__(self, options: LocalSgdOptions):
        self._options = options

    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        bases = averaging.create_bases(store, [gradient.piece for gradient in gradients], "local_sgd")

        def send(replicas: list[Gradient]) -> list[Gradient]:
            with tf.device(store.worker_device):
                differences = [
                    replica._replace(value=replica.value - base.read_value())
                    for replica, (_, base) in zip(replicas, bases, strict=True)
                ]
            return context.push.send(differences)

        spec = averaging.AveragingSpec(
            gradients=gradients,
            send=send,
            # A plain add: the workers' local steps have applied the optimizer already.
            update=lambda piece, mean: piece.variable.assign_add(mean, read_value=False),
            targets=lambda: context.push.targets,
            bases=bases,
        )
        return averaging.build_step(store, context, spec, self._period_at, "local_sgd")

    def _period_at(self, global_step: int) -> int:
        return 1 if global_step < self._options.switch_step else self._options.period

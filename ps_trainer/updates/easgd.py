"""Update rule `easgd`: each worker trains a replica, which an elastic force pulls towards a centre on the ps."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient, Snapshot
from ps_trainer.store.variables import create_local_variable
from ps_trainer.updates.apply import count_update
from ps_trainer.updates.base import Phase, RuleContext, RunPlan, TrainStep, UpdateRule, grouped_by_ps
from ps_trainer.updates.options import EasgdOptions
from ps_trainer.updates.replica import LocalSteps, Replica, ops_after


class Easgd(UpdateRule):
    """Elastic averaging SGD: replicas explore, and an elastic force ties each to a centre on the ps.

        every step:          v ← δ v − η g(x + δ v),  x ← x + v           δ = 0: x ← x − η g(x)
        every period steps,  x ← x − α (x − x̃),  x̃ ← x̃ + α (x − x̃)       both with the x before the step
        with the step:

    Source: Zhang, Choromanska, LeCun 2015, algorithm 1 (asynchronous EASGD) and 2 (EAMSGD); β = n α for n
    workers is its section 3.

    Worker, at its step t = 0, 1, …: 1. compute the gradient at the replica (with momentum, at the point ahead of it);
    2. if the period divides t, fetch the centre, compute the elastic difference between centre and the replica before
    the step, and send it; 3. move the replica by the gradient, and by the difference if there is one.
    ps: 1. add an elastic difference to the centre when it arrives, each variable atomically. As in the paper it is the
    difference to the centre that the worker has read, not to the current centre. 2. Count it on the clock. The
    exchange at t = 0 moves nothing, because all replicas begin at the centre.

    The centre is trained, saved and evaluated. `global_step` counts the exchanges of all workers, not local steps. So
    do max_steps, save intervals and the schedule, which follows the last known global_step. Staleness is the number of
    exchanges between the read of the centre and its move. Nothing is summed or averaged over workers: the learning
    rate is the single-process one of batch size `batch_size`. The paper uses β = 0.9 and periods of 1 to 64. Local
    steps are SGD, with `momentum` in the options: the run's --optimizer has nothing to apply and must be sgd.

    Gradient transforms act on the elastic difference that travels to the ps, while the replica moves by the
    untransformed difference. So lossy transforms and clipping break the symmetry of the force.

    Memory on the ps: parameters, no slots; on the worker the replica, with momentum twice. Traffic per step and
    worker: O(parameters / period) each way; a step without exchange sends nothing.

    Departures from the paper: its worker fetches the centre before it computes the gradient, here after it; both use
    the same x. With momentum the replica on the worker is y = x + δ v, at which the gradient is computed. x is computed
    back from y; the result is the same up to rounding.
    """

    Options = EasgdOptions
    holds_tables = False
    keeps_replica = True
    acts_on_host = True

    def __init__(self, options: EasgdOptions):
        self._options = options

    def check(self, plan: RunPlan) -> None:
        plan.reject_assigned("--update=easgd applies no gradients on the ps, and its local steps are SGD")
        if plan.optimizer_name != "sgd":
            raise OptionError(
                f"--optimizer={plan.optimizer_name}: --update=easgd applies no gradients on the ps, and its local steps"
                " are SGD; use --optimizer=sgd (with --update_option momentum=0.9 for momentum), or --update=local_sgd,"
                " whose local steps take any optimizer"
            )
        self._options.check_cluster(plan.num_workers)

    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        replica, steps = Replica(store), LocalSteps(store, "easgd/local_steps")
        local = _LocalSgd(store, gradients, context, replica, self._options.momentum)
        exchange = _Exchange(store, local, context, self._options.alpha_of(context.num_workers))
        targets = [
            *exchange.moves,
            *local.keep_velocities(),
            replica.store_global_step(exchange.global_step),
            steps.advance_op(),
            *context.push.targets,
        ]
        phases = [
            Phase(exchange.global_step, exchange.staleness, targets, applied=None, pushed=exchange.pushed),
            Phase(
                replica.global_step,
                replica.no_staleness,
                [*local.move(), *local.keep_velocities(), steps.advance_op()],
                applied=None,
                is_local=True,
            ),
        ]
        return TrainStep(
            phases,
            choose=lambda _: int((steps.advance() - 1) % self._options.period > 0),
            join_op=replica.fetch(),
            on_restored=steps.restore,
            worker_state=[*replica.variables, *local.velocities, steps.variable],
        )


class _LocalSgd:
    """One step of SGD on the replica, with or without Nesterov momentum.

    Attributes:
        velocities: The v of each gradient's piece; empty without momentum.
        points: The x of each gradient's piece at the start of the step.
    """

    def __init__(
        self,
        store: ParameterStore,
        gradients: Sequence[Gradient],
        context: RuleContext,
        replica: Replica,
        momentum: float,
    ):
        self.gradients = gradients
        self.velocities: list[tf.Variable] = []
        self.points: list[tf.Tensor] = []
        self._device = store.worker_device
        self._new_velocities: list[tf.Tensor] = []
        self._moves: list[tf.Tensor] = []
        with tf.device(self._device):
            rate = context.applier.learning_rate(replica.global_step)
            for piece, value in gradients:
                step = -tf.cast(rate, value.dtype) * value
                if not momentum:
                    self.points.append(piece.pulled)
                    self._moves.append(step)
                    continue
                variable = create_local_variable(f"easgd/velocity/{piece.variable.op.name}", value.shape, value.dtype)
                velocity = variable.read_value()
                new_velocity = momentum * velocity + step
                self.velocities.append(variable)
                self._new_velocities.append(new_velocity)
                # The replica is y = x + δv: x moves by v', and the lead over it from δv to δv'.
                self.points.append(piece.pulled - momentum * velocity)
                self._moves.append(new_velocity + momentum * (new_velocity - velocity))

    def move(self, differences: Sequence[tf.Tensor] | None = None) -> list[tf.Operation]:
        """Builds the ops that move the replica by its gradient and, if given, back by `differences`."""
        with tf.device(self._device):
            moves = self._moves
            if differences is not None:
                moves = [move - difference for move, difference in zip(moves, differences, strict=True)]
            return [
                gradient.piece.own_replica.assign_add(move, read_value=False)
                for gradient, move in zip(self.gradients, moves, strict=True)
            ]

    def keep_velocities(self) -> list[tf.Operation]:
        """Builds the ops that store the velocities for the next step."""
        with tf.device(self._device):
            return [
                variable.assign(value, read_value=False)
                for variable, value in zip(self.velocities, self._new_velocities, strict=True)
            ]


class _Exchange:
    """Reads the centre, sends it the elastic difference, and moves both centre and replica.

    Attributes:
        global_step: The global_step after this exchange, int64 scalar on the worker.
        pushed: The global_step after this exchange, int64 scalar on ps 0.
        staleness: Number of exchanges by others since the read, int64 [num_ps] on the worker.
        moves: Ops that move the replica, by its gradient as well.
    """

    def __init__(self, store: ParameterStore, local: _LocalSgd, context: RuleContext, alpha: float):
        # Read after the gradient is computed: a worker whose data have ended must not move the centre.
        snapshot = store.read(ops_after(store, [gradient.value for gradient in local.gradients]))
        centres = {piece.variable.op.name: value for piece, value in snapshot.values}
        with tf.device(store.worker_device):
            differences = []
            for (piece, value), point in zip(local.gradients, local.points, strict=True):
                centre = tf.cast(centres[piece.variable.op.name], value.dtype)
                # The centre moves on by the difference that the replica moves back by, so the exchange keeps their sum.
                differences.append(tf.cast(alpha, value.dtype) * (point - centre))
        self.moves = local.move(differences)
        sent = context.push.send(
            [g._replace(value=difference) for g, difference in zip(local.gradients, differences, strict=True)]
        )
        self._move_centre(store, sent, snapshot)

    def _move_centre(self, store: ParameterStore, sent: Sequence[Gradient], snapshot: Snapshot) -> None:
        """Builds the ops that move the centre on each ps task and count the move."""
        staleness = []
        for ps, part in enumerate(grouped_by_ps(sent, store.num_ps)):
            with tf.device(store.ps_device(ps)):
                adds = [gradient.piece.variable.assign_add(gradient.value, read_value=False) for gradient in part]
                # On a ps task without parameters the count still waits for the gradient, and for the read of the clock.
                with tf.control_dependencies([*adds, snapshot.clocks[ps]]):
                    before = count_update(store.clocks[ps])
                stale = before - snapshot.clocks[ps]
                if ps == 0:  # both numbers in one message
                    self.pushed = before + 1
                    progress = tf.stack([self.pushed, stale])
                else:
                    staleness.append(tf.reshape(stale, [1]))
        with tf.device(store.worker_device):
            self.global_step = progress[0]
            self.staleness = tf.concat([progress[1:], *staleness], axis=0)

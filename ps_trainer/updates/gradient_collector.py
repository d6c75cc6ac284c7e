"""`Collector`: a worker's way through the groups of all ps tasks (`gradient_group.py`), as a train step.

With several ps tasks there are two ways, by `GroupPolicy.is_fresh_only`:

* *Any* gradient counts: each ps task forms groups of what arrives there. Their members can differ between ps
  tasks, their number cannot. A worker that waits, waits on ps 0 (were it to wait on each, workers could wait for
  one another in a ring), which it visits last, so that the others have the gradients that ps 0 has.
* Only *fresh* ones count: ps 0 decides, and tells the others in a small message per step which gradients are in,
  how many a closed group has, and the version with which the worker goes on, so all use the same gradients. Its next
  parameters are read on each ps task when that has reached this version. Should an update fall into a read, the
  version is old by the time the gradient comes, which is then dropped: what is used was computed from one version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient, Piece
from ps_trainer.updates.base import RELEASED, Phase, RuleContext, TrainStep, grouped_by_ps
from ps_trainer.updates.gradient_group import GradientGroup, GroupPolicy, Outcome, Update
from ps_trainer.updates.gradient_sums import Value
from ps_trainer.updates.live_workers import LiveWorkerOps, LiveWorkers


class Pushed(NamedTuple):
    """A worker's push, and its wait.

    Attributes:
        global_step: int64 scalar on ps 0, the clock after the wait, or `RELEASED`.
        outcomes: for each ps task what the push found there.
        applied: for each ps task an op there after which the next pull may read its parameters.
    """

    global_step: tf.Tensor
    outcomes: list[Outcome]
    applied: list[tf.Operation]


class Collector:
    """The groups of all ps tasks, seen from one worker.

    Args:
        store: the created store.
        context: the run.
        pieces: of which values are pushed.
        grouping: which of them make an update together.
        name: of the rule and of its resources.
        update: makes the update of a group; None: applies the average as a gradient and counts 1.

    Attributes:
        state: variables for the chief to initialise.
    """

    def __init__(
        self,
        store: ParameterStore,
        context: RuleContext,
        pieces: Sequence[Piece],
        grouping: GroupPolicy,
        *,
        name: str,
        update: Update | None = None,
    ):
        self._store = store
        self._context = context
        self._grouping = grouping
        self._name = name
        by_ps = [[piece for piece in pieces if piece.ps == ps] for ps in range(store.num_ps)]
        if update is None:
            update = self._apply_and_count
            for ps, part in enumerate(by_ps):
                context.applier.create_slots(ps, part)
        self._groups = [
            GradientGroup(
                store, ps, part, context.num_workers, grouping, max_steps=context.max_steps, update=update, name=name
            )
            for ps, part in enumerate(by_ps)
        ]
        self.state = [variable for group in self._groups for variable in group.state]

    def push(self, gradients: Sequence[Gradient]) -> Pushed:
        """Pushes values that have arrived on the ps tasks, and waits as the grouping says; call it once."""
        worker = self._context.worker_index
        first, *others = [[g.value for g in part] for part in grouped_by_ps(gradients, self._store.num_ps)]
        if self._grouping.is_fresh_only:
            outcomes = [self._groups[0].push(worker, first)]
            notices = [outcomes[0].notice]
            outcomes += [g.push(worker, part, notices) for g, part in zip(self._groups[1:], others, strict=True)]
        else:
            outcomes = [g.push(worker, part) for g, part in zip(self._groups[1:], others, strict=True)]
            # Last on ps 0, so that when that lets a worker go, the others have the same gradients.
            notices = [outcome.notice for outcome in outcomes] if self._grouping.waits else []
            outcomes.insert(0, self._groups[0].push(worker, first, notices))
        global_step, applied = self._go_on(outcomes)
        return Pushed(global_step, outcomes, applied)

    def build_join(self) -> tf.Operation:
        """See `TrainStep.join_op`."""
        who, (first, *others) = (self._context.worker_index, self._context.joining), self._groups
        outcomes = [first.join(*who)]
        outcomes += [group.join(*who, [outcomes[0].notice]) for group in others]
        return tf.group(*self._go_on(outcomes)[1])

    def build_leave(self) -> tf.Operation:
        """See `TrainStep.leave_op`."""
        return self._build_leave(self._context.worker_index, self._context.joining)

    def build_prepare(self) -> tf.Operation:
        """See `TrainStep.prepare_op`."""
        return tf.group(*(group.prepare() for group in self._groups))

    def create_service(self) -> LiveWorkers | None:
        """The chief's service; None on other workers."""
        if not self._context.is_chief:
            return None
        with tf.device(self._store.worker_device):
            worker = tf.placeholder(tf.int64, [], f"{self._name}/worker")
            joining = tf.placeholder(tf.int64, [], f"{self._name}/joining")
        leave = self._build_leave(worker, joining)
        release = tf.group(*(group.release() for group in self._groups))
        first = self._groups[0]
        return LiveWorkers(self._name, LiveWorkerOps(leave, worker, joining, release, first.pushed, first.used))

    def build_staleness(self, outcomes: Sequence[Outcome]) -> list[tf.Tensor]:
        """For each ps task the staleness of the gradient there, -1 where it was dropped; int64 scalar on the ps."""
        staleness = []
        for ps, outcome in enumerate(outcomes):
            with tf.device(self._store.ps_device(ps)):
                stale = outcome.clock - self._store.clock_reads[ps]
                staleness.append(tf.where(outcome.is_accepted > 0, stale, tf.constant(-1, tf.int64)))
        return staleness

    def _build_leave(self, worker: int | tf.Tensor, joining: int | tf.Tensor) -> tf.Operation:
        """The op after which nothing waits for that joining of `worker`."""
        outcomes = [self._groups[0].leave(worker, joining)]
        outcomes += [group.leave(worker, joining, [outcomes[0].notice]) for group in self._groups[1:]]
        return tf.group(*(outcome.notice for outcome in outcomes))

    def _go_on(self, outcomes: Sequence[Outcome]) -> tuple[tf.Tensor, list[tf.Operation]]:
        """global_step, and for each ps the op after which parameters for the next step can be read."""
        worker, (first, *others) = self._context.worker_index, self._groups
        with tf.device(self._store.ps_device(0)):
            after = first.wait(worker, outcomes[0]) if self._grouping.waits else outcomes[0].notice.op
            with tf.control_dependencies([after]):
                version, is_released = first.read()
                clock = self._store.clocks[0].read_value()
            is_released = tf.maximum(is_released, outcomes[0].is_released) > 0
            global_step = tf.where(is_released, tf.constant(RELEASED, tf.int64), clock)
        ready = [after]
        for group, outcome in zip(others, outcomes[1:], strict=True):
            with tf.device(self._store.ps_device(len(ready))):
                if self._grouping.is_fresh_only:
                    ready.append(group.wait(worker, outcome))
                else:
                    ready.append(tf.identity(version).op if self._grouping.waits else outcome.notice.op)
        return global_step, ready

    def _apply_and_count(self, ps: int, averages: list[tuple[Piece, Value]]) -> tf.Operation:
        apply_op = self._context.applier.apply(ps, averages)
        with tf.device(self._store.ps_device(ps)), tf.control_dependencies([apply_op]):
            return self._store.clocks[ps].assign_add(1, read_value=False)


def build_step(
    store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext, grouping: GroupPolicy, name: str
) -> TrainStep:
    """The train step of a rule that averages the gradients of a group and applies them.

    Args:
        store: the created store.
        gradients: of this worker's batch.
        context: the run.
        grouping: which gradients make an update together.
        name: of the rule and of its resources.
    """
    collector = Collector(store, context, [gradient.piece for gradient in gradients], grouping, name=name)
    pushed = collector.push(context.push.send(gradients))
    stale, *others = collector.build_staleness(pushed.outcomes)
    with tf.device(store.ps_device(0)):
        progress = tf.stack([pushed.global_step, stale])  # both numbers in one message
    with tf.device(store.worker_device):
        staleness = tf.concat([progress[1:], *(tf.reshape(other, [1]) for other in others)], axis=0)
        phase = Phase(progress[0], staleness, context.push.targets, pushed.applied, pushed.global_step)
    return TrainStep(
        [phase],
        join_op=collector.build_join(),
        leave_op=None if context.is_chief else collector.build_leave(),
        prepare_op=collector.build_prepare(),
        state=collector.state,
        service=collector.create_service(),
    )

"""`GradientCollector`: one worker's visits to the groups of all ps tasks (`gradient_group.py`), as a train step.

With several ps tasks `GroupPolicy.is_fresh_only` decides how the groups relate:

* *Any* gradient counts: each ps task forms groups of the gradients that arrive there. The members of a group can differ
  between ps tasks; their number cannot. A worker that waits does so on ps 0 only: if it waited on each ps task, workers
  could wait for one another in a ring. It visits ps 0 last, so the other ps tasks have all gradients that ps 0 has.
* Only *fresh* gradients count: ps 0 decides. A small message per step tells the others which gradients are in, how many
  a closed group has, and with which version the worker continues. So all ps tasks use the same gradients. Each ps task
  reads the worker's next parameters when it has reached that version. If an update falls into such a read, the version
  is old when the gradient arrives, and the gradient is dropped. So every gradient that counts was computed from one
  version.

Between hosts, where only fresh gradients count and workers wait, the pieces of a ps task form several *parts*. Each
part has groups of its own, which follow those of the first part of ps 0 as the groups of another ps task would. The
first part has the last layers, whose gradients arrive first. So a ps task updates a part, and sends it back, while the
gradients of the first layers are still on the way.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient, Piece, Snapshot
from ps_trainer.updates.base import RELEASED, Phase, RuleContext, TrainStep
from ps_trainer.updates.gradient_group import GradientGroup, Update
from ps_trainer.updates.gradient_sums import Value
from ps_trainer.updates.group_policy import GroupPolicy
from ps_trainer.updates.group_state import VisitResult
from ps_trainer.updates.live_workers import LiveWorkerOps, LiveWorkers, Membership, ReleaseOps

_NUM_PARTS, _LEAST_PART_BYTES = 8, 2**19
"""Number of parts on all ps tasks together, unless these would be smaller; each part costs 250 ops a step."""


class PushOps(NamedTuple):
    """A worker's push, and its wait.

    Attributes:
        global_step: Clock of ps 0 after the wait, or `RELEASED`; int64 scalar on ps 0.
        results: Result of the visit to each ps task.
        applied: For each ps task an op there after which the next pull may read its parameters.
        pulled: For each ps task the parameters of the next step; None: they are read after `applied`.
    """

    global_step: tf.Tensor
    results: list[VisitResult]
    applied: list[tf.Operation]
    pulled: list[Snapshot] | None


class GradientCollector:
    """The groups of all ps tasks, seen from one worker.

    Args:
        store: The created store.
        context: The run.
        pieces: Pieces whose values are pushed.
        policy: Decides which of the values make an update together.
        name: Name of the rule; prefix of the names of its resources.
        update: Builds the update of a group. None: it applies the average as a gradient and adds 1 to the clock.

    Attributes:
        state: Variables that the chief initialises.
        join_feeds: Values to feed to the op of `build_join`.
    """

    def __init__(
        self,
        store: ParameterStore,
        context: RuleContext,
        pieces: Sequence[Piece],
        policy: GroupPolicy,
        *,
        name: str,
        update: Update | None = None,
    ):
        self._store = store
        self._context = context
        self._policy = policy
        self._name = name
        self._groups: list[GradientGroup] = []
        for ps in range(store.num_ps):
            on_ps = [piece for piece in pieces if piece.ps == ps]
            if update is None:
                context.applier.create_slots(ps, on_ps)
            is_divided = update is None and policy.is_fresh_only and policy.waits and store.spans_hosts
            for part, some in enumerate(_parts(on_ps, _NUM_PARTS // store.num_ps if is_divided else 1)):
                later = functools.partial(self._apply_part, len(self._groups))
                self._groups.append(
                    GradientGroup(
                        store, ps, some, context.num_workers, policy, max_steps=context.max_steps,
                        update=update or (later if part else self._apply_and_count), name=name, part=part,
                    )
                )  # fmt: skip
        self.state = [variable for group in self._groups for variable in group.state]
        self._membership = Membership.placeholder(store, context, name)
        self.join_feeds = Membership.joining(self._membership, context)

    def push(self, gradients: Sequence[Gradient]) -> PushOps:
        """Builds the push of values that have arrived on the ps tasks, and the wait of the policy; call it once."""
        worker = self._context.worker_index
        by_piece = {gradient.piece.variable.op.name: gradient.value for gradient in gradients}
        first, *others = [[by_piece[piece.variable.op.name] for piece in group.pieces] for group in self._groups]
        if self._policy.is_fresh_only:
            results = [self._groups[0].push(worker, first)]
            notices = [results[0].notice]
            results += [g.push(worker, part, notices) for g, part in zip(self._groups[1:], others, strict=True)]
        else:
            results = [g.push(worker, part) for g, part in zip(self._groups[1:], others, strict=True)]
            # ps 0 comes last: when it lets a worker continue, the other ps tasks already have the same gradients.
            notices = [result.notice for result in results] if self._policy.waits else []
            results.insert(0, self._groups[0].push(worker, first, notices))
        global_step, ready = self._go_on(results)
        pulled = self._read_parts(ready) if len(self._groups) > self._store.num_ps else None
        of_ps = list(itertools.compress(results, [group.part == 0 for group in self._groups]))
        return PushOps(global_step, of_ps, self._by_ps(ready), pulled)

    def build_join(self) -> tf.Operation:
        """Builds the op with which this worker joins the groups of all ps tasks, and waits until it may pull."""
        return tf.group(*self._go_on(self._member_visits)[1])

    def build_leave(self) -> tf.Operation:
        """Builds the op with which this worker leaves the groups of all ps tasks, when its steps are over."""
        return tf.group(*(result.notice for result in self._member_visits))

    def build_prepare(self) -> tf.Operation | None:
        """Returns the op with which the chief takes back the release of a former chief; None on other workers."""
        return self._release.set_op if self._context.is_chief else None

    def create_service(self) -> LiveWorkers | None:
        """Creates the chief's service; returns None on other workers."""
        if not self._context.is_chief:
            return None
        first = self._groups[0]
        ops = LiveWorkerOps(self.build_leave(), self._membership, self._release, first.pushed, first.used)
        return LiveWorkers(self._name, ops)

    def build_staleness(self, results: Sequence[VisitResult]) -> list[tf.Tensor]:
        """Builds for each ps task the gradient's staleness there, -1 if it was dropped; int64 scalar on the ps."""
        staleness = []
        for ps, result in enumerate(results):
            with tf.device(self._store.ps_device(ps)):
                stale = result.clock - self._store.clock_reads[ps]
                staleness.append(tf.where(result.is_accepted > 0, stale, tf.constant(-1, tf.int64)))
        return staleness

    @functools.cached_property
    def _member_visits(self) -> list[VisitResult]:
        """The visits of a worker that joins or leaves to the groups of all ps tasks, ps 0 first."""
        first, *others = self._groups
        results = [first.change_member(self._membership)]
        return results + [group.change_member(self._membership, [results[0].notice]) for group in others]

    @functools.cached_property
    def _release(self) -> ReleaseOps:
        def build(is_released: tf.Tensor) -> tf.Operation:
            return tf.group(*(group.set_released(is_released) for group in self._groups))

        return ReleaseOps.build(self._store, self._name, build)

    def _go_on(self, results: Sequence[VisitResult]) -> tuple[tf.Tensor, list[tf.Operation]]:
        """Builds the wait: global_step, and for each group the op after which its parameters can be read."""
        worker, (first, *others) = self._context.worker_index, self._groups
        with tf.device(self._store.ps_device(0)):
            ready = [first.wait(worker, results[0]) if self._policy.waits else results[0].notice.op]
        if self._policy.is_fresh_only:
            for group, result in zip(others, results[1:], strict=True):
                with tf.device(self._store.ps_device(group.ps)):
                    ready.append(group.wait(worker, result))
        with tf.device(self._store.ps_device(0)):
            # `ready` begins with the parts of ps 0: the result says that it has the whole gradient.
            with tf.control_dependencies([op for group, op in zip(self._groups, ready, strict=False) if group.ps == 0]):
                version, is_released = first.read()
                # Not the version: it starts at 0 in each container, but the clock at the step of the checkpoint.
                clock = self._store.clocks[0].read_value()
            # The visit's own flag is for a process whose ticket is old: ps 0 lets it go, although it releases no other.
            is_released = tf.maximum(is_released, results[0].is_released) > 0
            global_step = tf.where(is_released, tf.constant(RELEASED, tf.int64), clock)
        if not self._policy.is_fresh_only:
            for group, result in zip(others, results[1:], strict=True):
                with tf.device(self._store.ps_device(group.ps)):
                    # The identity carries the end of the wait from ps 0 to this ps task.
                    ready.append(tf.identity(version).op if self._policy.waits else result.notice.op)
        return global_step, ready

    def _by_ps(self, ready: Sequence[tf.Operation]) -> list[tf.Operation]:
        """Returns for each ps task the op after which the parameters of all its groups can be read."""
        ops = []
        for ps in range(self._store.num_ps):
            own = [op for group, op in zip(self._groups, ready, strict=True) if group.ps == ps]
            with tf.device(self._store.ps_device(ps)):
                ops.append(own[0] if len(own) == 1 else tf.group(*own))
        return ops

    def _read_parts(self, ready: Sequence[tf.Operation]) -> list[Snapshot]:
        """Reads the parameters of each part for the next step when its update is made, for each ps task."""
        snapshots = []
        for ps in range(self._store.num_ps):
            own = [(group, op) for group, op in zip(self._groups, ready, strict=True) if group.ps == ps]
            pushed = {piece.variable.op.name for group, _ in own for piece in group.pieces}
            others = [one for one in self._store.dense if one.ps == ps and one.variable.op.name not in pushed]
            with tf.device(self._store.ps_device(ps)):
                # Clock first, as in `ParameterStore.read_on`.
                with tf.control_dependencies([own[0][1]]):
                    clock = self._store.clocks[ps].read_value()
                values: list[tuple[Piece, tf.Tensor]] = []
                for pieces, op in [*((group.pieces, op) for group, op in own), (others, clock.op)]:
                    before = [op, clock.op]
                    for piece in (one for one in pieces if not one.is_table):
                        with tf.control_dependencies(before):
                            values.append((piece, piece.variable.read_value()))
                        before = [values[-1][1].op]
            snapshots.append(Snapshot([clock], values))
        return snapshots

    def _apply_and_count(self, ps: int, averages: list[tuple[Piece, Value]]) -> tf.Operation:
        apply_op = self._context.applier.apply(ps, averages)
        with tf.device(self._store.ps_device(ps)), tf.control_dependencies([apply_op]):
            # A plain add is enough: only the section of this ps task counts, one step at a time.
            return self._store.clocks[ps].assign_add(1, read_value=False)

    def _apply_part(self, number: int, ps: int, averages: list[tuple[Piece, Value]]) -> tf.Operation:
        """Applies the average of a later part by the clock by which the first part of the ps task was applied."""
        own, first = self._groups[number], next(group for group in self._groups if group.ps == ps)
        with tf.device(self._store.ps_device(ps)):
            step = self._store.clocks[ps].read_value() - (first.read()[0] - own.read()[0])
        return self._context.applier.apply(ps, averages, step=step)


def _parts(pieces: Sequence[Piece], num_parts: int) -> list[list[Piece]]:
    """Divides the pieces of a ps task into parts of about equal bytes: the last layers' first, tables in the last."""
    if num_parts < 2:
        return [list(pieces)]
    dense = [piece for piece in pieces if not piece.is_table]
    sizes = [piece.variable.shape.num_elements() * piece.variable.dtype.size for piece in dense]
    least = max(_LEAST_PART_BYTES, sum(sizes) // num_parts)
    parts: list[list[Piece]] = [[]]
    num_bytes = 0
    for piece, size in reversed(list(zip(dense, sizes, strict=True))):
        if num_bytes >= least:
            parts.append([])
            num_bytes = 0
        parts[-1].insert(0, piece)
        num_bytes += size
    parts[-1] += [piece for piece in pieces if piece.is_table]
    return parts


def build_step(
    store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext, policy: GroupPolicy, name: str
) -> TrainStep:
    """Builds the train step of a rule that averages the gradients of a group and applies the average.

    Args:
        store: The created store.
        gradients: Gradients of this worker's batch.
        context: The run.
        policy: Decides which gradients make an update together.
        name: Name of the rule; prefix of the names of its resources.
    """
    collector = GradientCollector(store, context, [gradient.piece for gradient in gradients], policy, name=name)
    push_ops = collector.push(context.push.send(gradients))
    stale, *others = collector.build_staleness(push_ops.results)
    with tf.device(store.ps_device(0)):
        progress = tf.stack([push_ops.global_step, stale])  # both numbers in one message
    with tf.device(store.worker_device):
        phase = Phase.of_progress(
            [progress, *(tf.reshape(other, [1]) for other in others)],
            context.push.targets,
            push_ops.applied,
            push_ops.global_step,
            push_ops.pulled,
        )
    return TrainStep(
        [phase],
        join_op=collector.build_join(),
        join_feeds=collector.join_feeds,
        leave_op=None if context.is_chief else collector.build_leave(),
        prepare_op=collector.build_prepare(),
        state=collector.state,
        service=collector.create_service(),
    )

"""Update rule `ssp`: asynchronous SGD with a bound on the number of steps that a worker is ahead of the slowest."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient
from ps_trainer.store.variables import create_variable
from ps_trainer.updates.apply import count_update
from ps_trainer.updates.base import RELEASED, Phase, RuleContext, TrainStep, UpdateRule, grouped_by_ps
from ps_trainer.updates.exclusive import exclusive
from ps_trainer.updates.gate import Gate
from ps_trainer.updates.live_workers import LiveWorkerOps, LiveWorkers, Membership, ReleaseOps
from ps_trainer.updates.options import SspOptions


class Ssp(UpdateRule):
    """Stale synchronous parallel: gradients are applied as they arrive, and a worker that is s steps ahead waits.

        w_{t+1} = w_t − η_t · g_i(w_{t−τ})       worker i begins its step number c_i + 1 when
                                                 c_i − min_j c_j ≤ s, with j over the live workers

    where c_j is the number of steps that worker j has pushed, its *worker clock*, and s = `staleness`.

    Source: Ho et al. 2013, "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server",
    section 2: a worker at clock c sees all updates with worker clocks up to c − s − 1, its own always.

    Which gap is bounded: c_i − min_j c_j ≤ s whenever worker i reads parameters. While the worker waits between its
    push and that read, the gap may be s + 1.

    Worker: 1. read the clocks, then the parameters; 2. compute the gradient; 3. push it; 4. when every ps task has
    applied its part, add 1 to its worker clock on ps 0; 5. wait until the slowest live worker's is at least its own
    minus s. The wait comes between push and read, so the worker reads fresh parameters.
    ps: 1. apply the gradient when it arrives; 2. count it; ps 0: 3. with a step of the slowest worker, let the workers
    that wait for it continue. A worker that ends or is lost blocks no other worker. A worker that joins or rejoins
    starts at the slowest worker's clock.

    s = 0 is a barrier after each step but differs from `sync`. A worker may read parameters to which others have
    already applied their next update, and each gradient is a separate update. With one permanently slow worker every
    finite s leads to that worker's pace.

    `global_step` counts the applied gradients of all workers. The learning rate is per gradient, as in `async`:
    gradients are neither summed nor averaged over workers.

    Memory on the ps: parameters and slots. Traffic per step and worker: O(parameters) each way, and two small messages
    between ps 0 and each other ps task.

    Departures from the paper: the worker has no cache with values of several ages. Every read is as new as a read of
    `async`, which the paper's conditions allow. Clocks count batches, not passes over the data.
    """

    Options = SspOptions
    waits_for_others = True

    def __init__(self, options: SspOptions):
        self._options = options

    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        clocks = WorkerClocks(store, context, self._options.staleness)
        counted, staleness = [], []
        for ps, part in enumerate(grouped_by_ps(context.push.send(gradients), store.num_ps)):
            pairs = [(gradient.piece, gradient.value) for gradient in part]
            apply_op = context.applier.apply(ps, pairs, in_section=False)
            with tf.device(store.ps_device(ps)), tf.control_dependencies([apply_op, *context.push.ops_to_await(ps)]):
                counted.append(count_update(store.clocks[ps]))
                staleness.append(counted[-1] - store.clock_reads[ps])
        global_step, passed = clocks.advance(counted)
        with tf.device(store.ps_device(0)):
            progress = tf.stack([global_step, staleness[0]])  # both numbers in one message
            pushed = counted[0] + 1  # never RELEASED: a step that the wait releases has made its update before
        with tf.device(store.worker_device):
            others = [tf.reshape(stale, [1]) for stale in staleness[1:]]
            phase = Phase.of_progress(
                [progress, *others],
                context.push.targets,
                clocks.build_ops_after(passed),
                pushed,
            )
        return TrainStep(
            [phase],
            join_op=clocks.change_member_op,
            join_feeds=clocks.join_feeds,
            leave_op=None if context.is_chief else clocks.change_member_op,
            prepare_op=clocks.build_prepare(),
            state=clocks.state,
            service=clocks.create_service(),
        )


class _WorkerClockState(NamedTuple):
    """The state on ps 0, as int64 variables or as the values that were read.

    Attributes:
        steps: [num_workers], worker clock of each worker.
        gone: [num_workers], 1 for a worker that has left.
        join_numbers: [num_workers], last join number of each worker; 0 for a worker that never joined.
        slowest: Smallest worker clock of a live worker; it never decreases.
        released: 1 after the workers were released for good.
    """

    steps: Any
    gone: Any
    join_numbers: Any
    slowest: Any
    released: Any


class WorkerClocks:
    """The workers' clocks on ps 0, seen from one worker, and the gate at which it waits for the slowest.

    Args:
        store: The created store.
        context: The run.
        staleness: The bound s.

    Attributes:
        state: Variables that the chief initialises.
        change_member_op: Op with which a worker joins, at the clock of the slowest live worker, or after which no step
            waits for it any more. It does nothing if a later join of the worker has arrived. Without a feed, this
            worker leaves.
        join_feeds: Values to feed to it with which this worker joins.
    """

    def __init__(self, store: ParameterStore, context: RuleContext, staleness: int):
        self._store = store
        self._context = context
        self._staleness = staleness
        self._gate = Gate(store, 0, context.num_workers, "ssp")
        n = context.num_workers
        shapes = _WorkerClockState(steps=[n], gone=[n], join_numbers=[n], slowest=[], released=[])
        with tf.device(store.ps_device(0)):
            self._variables = _WorkerClockState(
                *(
                    create_variable(f"ssp/{field}", shape, "int64")
                    for field, shape in zip(_WorkerClockState._fields, shapes, strict=True)
                )
            )
        self.state = list(self._variables)
        self._membership = Membership.placeholder(store, context, "ssp")
        self.join_feeds = Membership.joining(self._membership, context)
        self.change_member_op = self._build_change_member()

    def advance(self, counted: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Operation]:
        """Builds the count of this worker's step, and the wait for the slowest worker.

        Args:
            counted: For each ps task its clock before this worker's update, known when that is applied.

        Returns:
            The global_step after the wait, or `RELEASED`, on ps 0; and the op on ps 0 with which the wait ends.
        """
        worker = self._context.worker_index

        def visit(*counted: tf.Tensor) -> tf.Tensor:
            now, one_hot = self._read(), self._one_hot(worker)
            # A worker that was taken out may still push. It continues at the slowest clock, like one that joins.
            own_clock = tf.maximum(tf.reduce_sum(now.steps * one_hot) + 1, now.slowest)
            steps = now.steps * (1 - one_hot) + own_clock * one_hot
            with tf.control_dependencies([self._settle(now._replace(steps=steps, gone=now.gone * (1 - one_hot)))]):
                return tf.identity(own_clock)

        own_clock = exclusive(self._store, 0, visit, *counted)

        def has_to_wait() -> tf.Tensor:
            now = self._read()
            # The old step of a lost worker must not stay in the gate, so a worker that has left never waits.
            holds = [own_clock - now.slowest > self._staleness, tf.equal(now.released + now.gone[worker], 0)]
            if self._context.max_steps is not None:
                # After the last update the workers stop, so the slowest clock would never rise again.
                holds.append(self._store.clocks[0].read_value() < self._context.max_steps)
            return tf.reduce_all(holds)

        with tf.device(self._store.ps_device(0)):
            passed = self._gate.wait(worker, has_to_wait)
            with tf.control_dependencies([passed]):
                clock = self._store.clocks[0].read_value()
                is_released = self._variables.released.read_value() > 0
            return tf.where(is_released, tf.constant(RELEASED, tf.int64), clock), passed

    def build_ops_after(self, passed: tf.Operation) -> list[tf.Operation]:
        """Builds for each ps task an op there that runs after `passed` on ps 0."""
        # Any value that ps 0 sends carries the order to another ps task; it takes the clock of the slowest worker.
        with tf.device(self._store.ps_device(0)), tf.control_dependencies([passed]):
            slowest = tf.identity(self._variables.slowest.read_value())
        ops = [passed]
        for ps in range(1, self._store.num_ps):
            with tf.device(self._store.ps_device(ps)):
                ops.append(tf.identity(slowest).op)
        return ops

    def build_prepare(self) -> tf.Operation | None:
        """Returns the op with which a chief takes back the release of a former chief; None on other workers."""
        return self._release.set_op if self._context.is_chief else None

    def create_service(self) -> LiveWorkers | None:
        """Creates the chief's service; returns None on other workers."""
        if not self._context.is_chief:
            return None
        return LiveWorkers("ssp", LiveWorkerOps(self.change_member_op, self._membership, self._release))

    def _build_change_member(self) -> tf.Operation:
        def visit(membership: tf.Tensor) -> tf.Tensor:
            now, change = self._read(), Membership(*tf.unstack(membership))
            one_hot = self._one_hot(change.worker) * tf.cast(now.join_numbers <= change.join_number, tf.int64)
            joins = one_hot * change.joins
            after = now._replace(
                steps=now.steps * (1 - joins) + now.slowest * joins,
                gone=tf.maximum(now.gone, one_hot) - joins,
                join_numbers=tf.maximum(now.join_numbers, joins * change.join_number),
            )
            return self._settle(after)

        return exclusive(self._store, 0, visit, self._membership).op

    @functools.cached_property
    def _release(self) -> ReleaseOps:
        # In the section: `_settle` writes back the whole state, and would undo a release written in between.
        def visit(is_released: tf.Tensor) -> tf.Tensor:
            return self._settle(self._read()._replace(released=is_released))

        return ReleaseOps.build(self._store, "ssp", lambda value: exclusive(self._store, 0, visit, value).op)

    def _read(self) -> _WorkerClockState:
        return _WorkerClockState(*(variable.read_value() for variable in self._variables))

    def _one_hot(self, worker: int | tf.Tensor) -> tf.Tensor:
        return tf.one_hot(worker, self._context.num_workers, dtype=tf.int64)

    def _settle(self, after: _WorkerClockState) -> tf.Tensor:
        """Writes the state, with the clock of the slowest live worker, and opens the gate; returns that clock."""
        none_live = tf.constant(2**62, tf.int64)  # more than any clock; the minimum if no worker is live
        slowest_live = tf.reduce_min(tf.where(after.gone > 0, tf.fill(after.gone.shape, none_live), after.steps))
        slowest = tf.where(tf.equal(slowest_live, none_live), after.slowest, tf.maximum(slowest_live, after.slowest))
        values = after._replace(slowest=slowest)
        writes = [
            variable.assign(value, read_value=False) for variable, value in zip(self._variables, values, strict=True)
        ]
        with tf.control_dependencies(writes):
            opened = self._gate.open()
        with tf.control_dependencies([opened]):
            return tf.identity(slowest)

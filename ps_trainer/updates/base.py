"""`UpdateRule`: the interface of one file per rule, and what a rule returns.

A rule gets the gradients of one worker's step and builds what happens with them: the push, the apply on
the ps tasks, and what the worker waits for. It runs in every worker's graph; `context.is_chief` tells
the one worker that may do more. A rule that needs somebody to act between the workers' steps (to
tell the ps tasks who is lost) gives the chief a `ChiefService`.

A step may be one of several *phases*, such as local steps and the exchange of periodic averaging: each is
a set of ops of its own, so that what a phase does not do is not in its graph and costs no message.

The life of a rule in one run; names are those of `UpdateRule`, `TrainStep` and `ChiefService`:

    chief                                     every worker
    ─────                                     ────────────
    check(plan)                               check(plan)                  before any task starts
    build(...)                                build(...)                   once for each graph
    prepare_op                                                             before any worker joins
    service.start
                                              wait for start_when
                                              join_op                      then the first pull
                                              restore worker_state
                                              on_restored
                                              ┌─► choose ─► phase ─► exchange.after_phase ─┐
                                              └────────────────────────────────────────────┘
    service.worker_came, .worker_left         a worker may be lost at any op, and join again
                                              leave_op                     when its steps are over
    service.release                           a waiting phase returns RELEASED
    service.summary, .stop
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.optimizers.assigned import FLAG, Assigned
from ps_trainer.optimizers.base import PsOptimizer
from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient, Piece, Snapshot
from ps_trainer.updates.apply import Applier
from ps_trainer.updates.push import Push


class RunPlan(NamedTuple):
    """What a rule may look at to refuse a run before anything starts.

    Attributes:
        num_workers: workers of the cluster, the chief included.
        optimizer: the run's optimizer.
        optimizer_name: its name, for messages.
        assigned: optimizers of some variables, in its place.
        transforms: names of the gradient transforms, in order.
        is_lossy: whether one of them loses part of the gradient.
    """

    num_workers: int
    optimizer: PsOptimizer | None = None
    optimizer_name: str = "sgd"
    assigned: Sequence[Assigned] = ()
    transforms: Sequence[str] = ()
    is_lossy: bool = False

    def refuse_assigned(self, reason: str) -> None:
        """Raises OptionError where variables have optimizers of their own, which the rule cannot do with.

        Args:
            reason: the rest of the sentence.
        """
        for one in self.assigned:
            raise OptionError(f"{FLAG} {one.pattern}={one.name}: {reason}; use --update=async, sync or another rule")


class RuleContext(NamedTuple):
    """What a rule knows of the run.

    Attributes:
        num_workers: workers of the cluster, the chief included.
        worker_index: this worker's index, the chief's is 0.
        is_chief: whether this worker is the chief.
        max_steps: global_step at which training ends, or None.
        applier: applies gradients on the ps tasks, or on the worker's replica.
        push: sends gradients to the ps tasks.
        run_id: unique to the run, the same on all its workers.
        joining: number of this joining of the run by this worker, 1 or more, larger than those before it.
    """

    num_workers: int
    worker_index: int
    is_chief: bool
    max_steps: int | None
    applier: Applier
    push: Push
    run_id: str = ""
    joining: int = 1


class ChiefService(abc.ABC):
    """Acts for a rule in the chief's process, in a thread of its own, between `start` and `stop`.

    Its methods may be called from any thread. Who calls `worker_came` and `worker_left` watches the other tasks, and
    does not wait for one that is frozen.
    """

    @abc.abstractmethod
    def start(self, session: tf.Session) -> None:
        """Starts to act, on a session of its own that it closes in `stop`; each call of the session has a deadline."""

    @abc.abstractmethod
    def worker_came(self, worker_index: int) -> None:
        """A worker is ready to train; all are counted in from the start, until they leave. Returns at once."""

    @abc.abstractmethod
    def worker_left(self, worker_index: int, joining: int) -> None:
        """A worker has no more data or is gone: nothing is to wait for it any more. Returns at once.

        Args:
            worker_index: whose.
            joining: number of its joining that is over, 0 if it never joined; a later one stays, whenever this is
                carried out.
        """

    @abc.abstractmethod
    def release(self) -> None:
        """Lets every worker that waits for the rule go, with `RELEASED`; returns when that is done.

        Raises:
            tf.errors.OpError: it could not be done.
        """

    @abc.abstractmethod
    def stop(self) -> None:
        """Ends the thread; returns when it has ended, or cannot be ended. What failed before is told by `error`."""

    @abc.abstractmethod
    def error(self) -> BaseException | None:
        """What a call of the thread failed with, if one did."""

    @abc.abstractmethod
    def summary(self) -> dict[str, Any]:
        """Counts for the run's summary (gradients used per worker …), after all that was asked for before.

        Raises:
            tf.errors.OpError: a ps task does not answer.
        """


class Exchange(abc.ABC):
    """What a worker does together with all the others after each of its phases, in runs of its own.

    For rules whose workers talk to each other: a run with a collective op can have no part on a ps task
    (`ring.py` says why), so it cannot be in a phase. All workers must take part each time, to the end.

    Attributes:
        given: int64 [num_workers] variable on the worker, the same on all: batches of each worker that are in the
            updates since this worker joined, or since it was last set to zeros.
    """

    given: tf.Variable

    @abc.abstractmethod
    def prepare(self, session: tf.Session) -> None:
        """Called by the chief before any worker joins."""

    @abc.abstractmethod
    def after_phase(self, session: tf.Session) -> int:
        """Called after each phase; blocks until all workers have called it; returns global_step.

        Raises:
            PeerFailedError: another worker cannot be reached.
        """

    @abc.abstractmethod
    def without_data(self, session: tf.Session) -> int:
        """Called again and again, in place of phases, by a worker that makes no more steps of its own.

        Returns:
            global_step, or `RELEASED` once no worker has anything left.

        Raises:
            PeerFailedError: another worker cannot be reached.
        """

    @abc.abstractmethod
    def publish(self, session: tf.Session) -> None:
        """Called by the chief before it saves: brings to the ps tasks what a checkpoint is made of."""


class Phase(NamedTuple):
    """What one step of a worker runs, as graph nodes.

    Attributes:
        global_step: int64 scalar on the worker. Its value is global_step after the step's update, or
            `RELEASED` when the rule let the worker go without one; in a phase without an update, the last
            value that the worker knows.
        staleness: int64 vector on the worker: updates applied between pull and apply, an entry per ps
            task; an entry below 0 says that the gradient was dropped. Empty in a phase that sends nothing.
        targets: ops to run together with the two tensors above; kept apart, as an edge from a ps task to
            a tensor on the worker costs a message.
        applied: for each ps task an op there after which the next pull may read its parameters; None
            where the next step computes with the same parameters. Without meaning for replicas.
        pushed: int64 scalar on ps task 0, known when what the worker learned from its batches since the last push is
            in there: global_step, or `RELEASED` where the rule may have let the worker go without an update. None in a
            phase that keeps on the worker what it learned.
        pulled: for each ps task what `ParameterStore.read_on` has read there for the next step, by rules that read in
            the section in which they apply; None: it is read after `applied`.
        is_local: whether nothing goes to a ps task or comes from one. The model's own updates (UPDATE_OPS, such as
            batch norm's averages) are of variables on the ps tasks: such a phase does without them.
    """

    global_step: tf.Tensor
    staleness: tf.Tensor
    targets: Sequence[tf.Operation]
    applied: Sequence[tf.Operation] | None
    pushed: tf.Tensor | None = None
    pulled: Sequence[Snapshot] | None = None
    is_local: bool = False


class StartCondition(NamedTuple):
    """What a worker waits for before it takes part.

    Attributes:
        is_met: bool scalar; polled.
        reason: what it waits for, in words: "the first 100 steps of the chief".
    """

    is_met: tf.Tensor
    reason: str


class TrainStep(NamedTuple):
    """One worker's step, as a rule builds it.

    Attributes:
        phases: what a step may be.
        choose: called once before each step of this worker, in order, with the global_step that the last
            step returned; gives the index of the phase. None: always the first.
        start_when: what this worker waits for before `join_op`, if anything.
        join_op: run once by each worker before its first step, and before its first pull.
        on_restored: called once with the worker's session after `worker_state` is restored.
        leave_op: run once by each worker when its steps are over, unless they failed.
        prepare_op: run once by the chief before any worker joins.
        state: variables of the rule on the ps tasks, initialised by the chief.
        worker_state: variables of the rule on this worker, saved beside the checkpoints and restored after
            `join_op`.
        service: the chief's service, None where the rule needs none or on other workers.
        exchange: of rules whose workers talk to each other. What the ps tasks hold is a copy then, as of the last
            `publish`: a restarted chief goes on from a checkpoint, never from there.
        on_pull: see `PullStaging.build_pull`.
    """

    phases: Sequence[Phase]
    choose: Callable[[int], int] | None = None
    start_when: StartCondition | None = None
    join_op: tf.Operation | None = None
    on_restored: Callable[[tf.Session], None] | None = None
    leave_op: tf.Operation | None = None
    prepare_op: tf.Operation | None = None
    state: Sequence[tf.Variable] = ()
    worker_state: Sequence[tf.Variable] = ()
    service: ChiefService | None = None
    exchange: Exchange | None = None
    on_pull: Callable[[Piece, tf.Tensor], tf.Operation] | None = None


RELEASED = -1


class UpdateRule(abc.ABC):
    """An update rule; a subclass says in its docstring what `asynchronous.Async` says in its own.

    Attributes:
        holds_tables: whether it can train embedding tables on the ps tasks.
        needs_tables: whether it is for models with embedding tables only.
        keeps_replica: whether each worker trains a copy of the dense parameters (`Piece.replica`).
        waits_for_others: whether a worker's step may wait for steps of other workers, so that one that has no data for
            the time being would hold them up.
    """

    holds_tables: bool = True
    needs_tables: bool = False
    keeps_replica: bool = False
    waits_for_others: bool = False

    def check(self, plan: RunPlan) -> None:  # noqa: B027 - a rule without limits needs no check
        """Raises OptionError where the rule cannot run so; before anything starts."""

    def min_workers(self, num_workers: int) -> int:
        """The workers without which no update is made."""
        return 1

    @abc.abstractmethod
    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        """Builds one worker's step in the default graph.

        Args:
            store: the created store.
            gradients: of this worker's batch, for every trainable piece that the loss depends on; on the
                worker. `context.push.send` brings them to the ps tasks.
            context: the run.
        """


def grouped_by_ps(gradients: Sequence[Gradient], num_ps: int) -> list[list[Gradient]]:
    """The gradients of each ps task."""
    return [[gradient for gradient in gradients if gradient.piece.ps == ps] for ps in range(num_ps)]

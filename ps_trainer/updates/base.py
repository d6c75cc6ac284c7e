"""`UpdateRule`: the interface that every update rule implements, and the train step that a rule returns.

A rule receives the gradients of one worker's step. It builds the push, the apply on the ps tasks, and the wait of the
worker. Every worker builds the rule in its graph; `context.is_chief` marks the one worker that may do more. Some rules
need a process that acts between the workers' steps, for example to tell the ps tasks which worker is lost. Such a rule
gives the chief a `ChiefService`.

A step may be one of several *phases*, such as the local steps and the exchange of periodic averaging. Each phase has
its own ops. So an op that a phase does not need is not in its graph and costs no message.

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
    service.gradient_counts, .stop
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.optimizers.assignment import FLAG, VariableOptimizer
from ps_trainer.optimizers.base import PsOptimizer
from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient, Piece, Snapshot
from ps_trainer.updates.apply import Applier
from ps_trainer.updates.chief_service import ChiefService
from ps_trainer.updates.push import Push

RELEASED = -1
"""In place of global_step: the rule let the worker continue without an update."""


class RunPlan(NamedTuple):
    """The settings that a rule checks before any task starts.

    Attributes:
        num_workers: Number of workers of the cluster, the chief included.
        optimizer: Optimizer of the run.
        optimizer_name: Name of the optimizer, for messages.
        assigned: Optimizers that `--optimizer_for` assigns to some variables in place of the run's own.
        transforms: Names of the gradient transforms, in order.
        is_lossy: Whether one of the transforms loses part of the gradient.
        pull_dtype: Value of `--pull_dtype`.
    """

    num_workers: int
    optimizer: PsOptimizer | None = None
    optimizer_name: str = "sgd"
    assigned: Sequence[VariableOptimizer] = ()
    transforms: Sequence[str] = ()
    is_lossy: bool = False
    pull_dtype: str = "float32"

    def reject_assigned(self, reason: str) -> None:
        """Rejects optimizers that `--optimizer_for` assigns to some variables.

        Args:
            reason: Reason why the rule cannot use them; the rest of the message's sentence.

        Raises:
            OptionError: `--optimizer_for` assigns an optimizer.
        """
        for entry in self.assigned:
            raise OptionError(
                f"{FLAG} {entry.pattern}={entry.name}: {reason}; use --update=async, sync or another rule"
            )


class RuleContext(NamedTuple):
    """Values of the run that a rule may use.

    Attributes:
        num_workers: Number of workers of the cluster, the chief included.
        worker_index: Index of this worker; the chief's is 0.
        is_chief: Whether this worker is the chief.
        max_steps: The global_step at which training ends, or None.
        applier: Applies gradients on the ps tasks, or on the worker's replica.
        push: Sends gradients to the ps tasks.
        run_id: Name that is unique to the run and the same on all its workers.
        join_number: Counts the times that this worker has joined the run. It is at least 1, and grows with each join.
    """

    num_workers: int
    worker_index: int
    is_chief: bool
    max_steps: int | None
    applier: Applier
    push: Push
    run_id: str = ""
    join_number: int = 1


class Exchange(abc.ABC):
    """Work that all workers do together after each phase, in separate `session.run` calls.

    It serves rules whose workers exchange messages with each other. It cannot be part of a phase: a run with a
    collective op must not contain an op on a ps task (`ring.py` says why). All workers must take part each time, until
    the end.

    Attributes:
        given: Number of batches of each worker in the updates since this worker joined, or since the variable was last
            set to zeros. Int64 variable, [num_workers], on the worker; all workers hold the same values.
    """

    given: tf.Variable

    @abc.abstractmethod
    def prepare(self, session: tf.Session) -> None:
        """Prepares the exchange; the chief calls this before any worker joins."""

    @abc.abstractmethod
    def after_phase(self, session: tf.Session) -> int:
        """Makes the exchange after a phase; blocks until all workers have called it; returns global_step.

        Raises:
            PeerFailedError: Another worker cannot be reached.
        """

    @abc.abstractmethod
    def without_data(self, session: tf.Session) -> int:
        """Takes part without a gradient; a worker that has no more data calls this in place of phases, repeatedly.

        Returns:
            The global_step, or `RELEASED` once no worker has data left.

        Raises:
            PeerFailedError: Another worker cannot be reached.
        """

    @abc.abstractmethod
    def publish(self, session: tf.Session) -> None:
        """Copies the trained state to the ps tasks; the chief calls this before it saves a checkpoint from there."""


class Phase(NamedTuple):
    """The graph nodes that one step of a worker runs.

    Attributes:
        global_step: Int64 scalar on the worker. Its value is global_step after the step's update, or `RELEASED` if the
            rule let the worker continue without one. In a phase without an update it is the last value that the worker
            knows.
        staleness: Number of updates applied between pull and apply, with an entry for each ps task; int64 vector on the
            worker. An entry below 0 says that the gradient was dropped. Empty in a phase that sends nothing.
        targets: Ops to run together with the two tensors above. No tensor on the worker depends on them, because an
            edge from a ps task to such a tensor would cost a message.
        applied: For each ps task an op there after which the next pull may read its parameters. None if the next step
            computes with the same parameters. Not used with replicas.
        pushed: Int64 scalar on ps task 0, which is known when ps 0 holds what the worker has learned from its batches
            since the last push. Its value is global_step, or `RELEASED` if the rule may have let the worker continue
            without an update. None in a phase whose result stays on the worker.
        pulled: For each ps task the snapshot that was read there for the next step, from rules that read it in the
            section in which they apply, or each piece after its own update. None: the snapshot is read after `applied`.
        is_local: Whether the phase exchanges nothing with ps tasks. Such a phase also leaves out the model's own
            updates (UPDATE_OPS, such as batch norm's averages), because their variables lie on the ps tasks.
        progress: `global_step`, then `staleness`, in one vector on the worker, which costs a step less than two
            tensors; None if the rule has no such vector.
    """

    global_step: tf.Tensor
    staleness: tf.Tensor
    targets: Sequence[tf.Operation]
    applied: Sequence[tf.Operation] | None
    pushed: tf.Tensor | None = None
    pulled: Sequence[Snapshot] | None = None
    is_local: bool = False
    progress: tf.Tensor | None = None

    @classmethod
    def of_progress(cls, parts: Sequence[tf.Tensor], *arguments: Any, **others: Any) -> Phase:
        """Returns the phase whose `progress` is the int64 vectors `parts`, end to end, in the device scope of the call.

        Args:
            parts: Vector of ps 0, which begins with global_step, and those of the other ps tasks.
            *arguments: Attributes that follow `staleness`.
            **others: Attributes by name.
        """
        progress = tf.concat(parts, axis=0) if len(parts) > 1 else tf.identity(parts[0])
        return cls(progress[0], progress[1:], *arguments, **others)._replace(progress=progress)


class StartCondition(NamedTuple):
    """A condition that a worker waits for before it takes part.

    Attributes:
        is_met: Bool scalar, which the worker polls.
        reason: Event that the worker waits for, in words: "the first 100 steps of the chief".
    """

    is_met: tf.Tensor
    reason: str


class TrainStep(NamedTuple):
    """One worker's step, as a rule builds it.

    Attributes:
        phases: The kinds of step.
        choose: Called once before each step of this worker, in order, with the global_step that the last step returned;
            returns the index of the phase. None: always the first phase.
        start_when: Condition that this worker waits for before `join_op`, or None.
        join_op: Op that each worker runs once before its first pull and its first step.
        join_feeds: Values to feed to `join_op`, or None.
        on_restored: Called once with the worker's session after `worker_state` is restored.
        leave_op: Op that each worker runs once when its steps are over, unless they failed.
        prepare_op: Op that the chief runs once before any worker joins.
        state: Variables of the rule on the ps tasks, which the chief initialises.
        worker_state: Variables of the rule on this worker, which are saved beside the checkpoints and restored after
            `join_op`.
        service: The chief's service. None on other workers, and for rules without one.
        exchange: Exchange of rules whose workers send messages to each other. With one, the ps tasks hold only a copy
            of the state as of the last `publish`. So a restarted chief loads a checkpoint, never the copy.
        on_pull: Called with each piece and the value that the worker pulls (`PullStaging.build_pull`).
    """

    phases: Sequence[Phase]
    choose: Callable[[int], int] | None = None
    start_when: StartCondition | None = None
    join_op: tf.Operation | None = None
    join_feeds: Mapping[tf.Tensor, Any] | None = None
    on_restored: Callable[[tf.Session], None] | None = None
    leave_op: tf.Operation | None = None
    prepare_op: tf.Operation | None = None
    state: Sequence[tf.Variable] = ()
    worker_state: Sequence[tf.Variable] = ()
    service: ChiefService | None = None
    exchange: Exchange | None = None
    on_pull: Callable[[Piece, tf.Tensor], tf.Operation] | None = None


class UpdateRule(abc.ABC):
    """An update rule; the docstring of a subclass has the same parts as the docstring of `asynchronous.Async`.

    Attributes:
        holds_tables: Whether the rule can train embedding tables on the ps tasks.
        needs_tables: Whether the rule is only for models with embedding tables.
        keeps_replica: Whether each worker trains a copy of the dense parameters (`Piece.replica`).
        waits_for_others: Whether a worker's step may block until other workers have made steps. If so, a worker that
            has no data for some time would block the others.
        is_crash_safe: Whether the state on the ps tasks stays right if the chief or a worker dies in the middle of a
            step. If not, the workers continue from the last checkpoint when the chief, or a worker that updates need,
            was lost.
        acts_on_host: Whether the worker's host acts between two steps: it chooses a phase (`TrainStep.choose`), or
            makes an exchange. If not, a worker may make several steps in one call.
    """

    holds_tables: bool = True
    needs_tables: bool = False
    keeps_replica: bool = False
    waits_for_others: bool = False
    is_crash_safe: bool = True
    acts_on_host: bool = False

    def check(self, plan: RunPlan) -> None:  # noqa: B027 - a rule without limits needs no check
        """Rejects a run that the rule cannot do, before any task starts.

        Raises:
            OptionError: The rule cannot run under this plan.
        """

    def min_workers(self, num_workers: int) -> int:
        """Returns the smallest number of workers with which updates are made."""
        return 1

    @abc.abstractmethod
    def build(self, store: ParameterStore, gradients: Sequence[Gradient], context: RuleContext) -> TrainStep:
        """Builds one worker's step in the default graph.

        Args:
            store: The created store.
            gradients: Gradients of this worker's batch for every trainable piece that the loss depends on, on the
                worker. `context.push.send` sends them to the ps tasks.
            context: The run.
        """


def grouped_by_ps(gradients: Sequence[Gradient], num_ps: int) -> list[list[Gradient]]:
    """Returns the gradients of each ps task."""
    return [[gradient for gradient in gradients if gradient.piece.ps == ps] for ps in range(num_ps)]

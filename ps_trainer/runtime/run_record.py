"""The records that the tasks of a job exchange over the control plane.

The chief writes a `RunRecord` to ps 0. Each ps task writes a `Hello`, a `Roster`, an `EndNotice` and `Leases`. Workers
send a `Message` to the ps tasks. `messages.py` turns all of them into JSON and back; no other module sees the JSON.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

from ps_trainer.data.pipeline.shard_plan import Lease, ShardPlan
from ps_trainer.metrics.figures import WorkerFigures

# Workers calculate with join numbers, so a wrong one must not overflow. No real one gets that far.
_JOIN_NUMBER_LIMIT = 2**31


class _TextEnum(str, enum.Enum):
    """An enumeration whose members read like their value in messages and in JSON."""

    def __str__(self) -> str:
        return str(self.value)  # Python 3.12 would write "Status.DONE" into an f-string


class Status(_TextEnum):
    """State of a worker, by its own report or by the report of the ps task that watches it."""

    JOINED = "joined"  # it has found the run, and gets ready to train
    TRAINING = "training"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # a signal ended it
    LOST = "lost"  # it may come back: it is gone itself, or has lost a ps task


FINAL = (Status.DONE, Status.FAILED, Status.INTERRUPTED)


class RunStatus(_TextEnum):
    """State of a run."""

    STARTING = "starting"  # the chief sets up the state on the ps tasks
    READY = "ready"  # workers may join
    ENDED = "ended"


class LeaseKind(_TextEnum):
    """Subject of a worker's question about shards."""

    SHARD = "shard"  # the next shard
    GENERATION = "generation"  # whether the shards that it holds are still its own


class LeaseRefusal(_TextEnum):
    """Answer to a worker for which there is no shard."""

    WAIT = "wait"  # other workers hold all shards, and may give some back
    END = "end"  # nothing is left to train on


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskFingerprint:
    """Report of a task about itself, by which tasks notice that they do not fit together. An untold field is None.

    Attributes:
        tensorflow: Version of TensorFlow.
        cluster: Hash of the addresses of all tasks, as this task was given them.
        host: Name of the machine.
        variables: Hash of the model's variables; from a worker.
        graph: Hash of the model's graph; from a worker.
    """

    tensorflow: str | None = None
    cluster: str | None = None
    host: str | None = None
    variables: str | None = None
    graph: str | None = None

    def of_model(self) -> TaskFingerprint:
        """Returns the fingerprint of the model alone."""
        return TaskFingerprint(variables=self.variables, graph=self.graph)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hello:
    """Introduction of a ps task, written at its start.

    All fields have defaults, so that a worker can still read, and reject, the introduction of another version.

    Attributes:
        version: Version of ps_trainer.
        ps: Index of the ps task.
        num_ps: Number of ps tasks in its cluster.
        num_workers: Number of workers in its cluster.
        incarnation: Random text, new at each start of the task. It tells a ps task from its successor at the same
            address, which has none of the run's state.
        fingerprint: Fingerprint of the task.
    """

    version: str | None = None
    ps: int | None = None
    num_ps: int | None = None
    num_workers: int | None = None
    incarnation: str = ""
    fingerprint: TaskFingerprint = TaskFingerprint()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunStart:
    """Origin of the state that a run began with.

    Attributes:
        step: `global_step` at that time.
        how: Origin in words, `INITIALISED` for the model's initial values, `INITIALISED_AGAIN` if those replace later
            ones that were lost before the first checkpoint.
    """

    step: int
    how: str


INITIALISED = "initialised"
INITIALISED_AGAIN = "initialised again, as nothing was saved"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shards:
    """Plan by which ps 0 hands out the shards of the data.

    Attributes:
        plan: The chief's plan, which all workers share.
        may_wait: Whether a worker without a shard may wait for the shards of others. It may not under an update rule
            whose steps wait for every worker.
    """

    plan: ShardPlan
    may_wait: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationCall:
    """Call of the chief for help with the evaluation at the end of the run.

    The batches of test examples are divided into parts: part i has every `num_parts`-th batch from `first_batch` + i
    on. Chief and helpers take the parts one after the other from a counter on ps 0.

    Attributes:
        call_id: Random name of the call.
        workers: Indices of the workers that are called.
        parameters: Checksum of the parameters that are evaluated.
        num_test_examples: Number of test examples of the chief's dataset.
        num_examples: Number of them that are evaluated, spread over all; None = all.
        first_batch: Number of batches that the chief has evaluated already.
        num_parts: Number of parts.
    """

    call_id: str
    workers: tuple[int, ...]
    parameters: int
    num_test_examples: int
    num_examples: int | None = None
    first_batch: int
    num_parts: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackedArray:
    """A NumPy array as text.

    Attributes:
        dtype: Type of the elements, as NumPy writes it, such as "<f4".
        shape: Shape.
        data: Its bytes in base64.
    """

    dtype: str
    shape: tuple[int, ...]
    data: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartResult:
    """Sums over the test examples of one part, from a worker that helps to evaluate.

    Attributes:
        call_id: Name of the call.
        part: Number of the part.
        worker: Index of the worker.
        num_examples: Number of examples.
        loss: Sum of the losses of the batches, each multiplied by its weight.
        weight: Sum of the weights.
        totals: Sum of each metric over the examples.
        collected: Arrays of each pooled metric, of all examples.
    """

    call_id: str
    part: int
    worker: int
    num_examples: int
    loss: float
    weight: float
    totals: Mapping[str, float]
    collected: Mapping[str, tuple[PackedArray, ...]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The run in progress. The chief writes it to ps 0, and replaces it whenever a field changes.

    Attributes:
        run_id: Random name of the run. A run that replaces this one, after a loss of state, has another.
        status: State of the run.
        agreement: Settings that all workers must share, by flag.
        incarnations: Incarnation of each ps task on which the run's state lies. These are the first ones; a worker that
            serves no parameters (`--placement=colocated`) comes after them, and has none.
        key: Text that is equal for two runs with the same logdir and settings.
        spans_hosts: Whether the chief's addresses are those of several hosts. Sizes of messages depend on it, and a
            worker behind a tunnel may see other addresses.
        start: Origin of the run's state, once the state is there.
        partners: Groups of worker indices that send tensors to each other, once the run is ready.
        shards: Plan for the shards of the data, once the run is ready; None unless they are leased.
        model: Fingerprint of the chief's model, once the run is ready.
        reached: Sentence which says that the target metric is reached; empty before that.
        failure: Sentence which says how the run failed, once it has ended; empty for a run that is done.
        evaluation: Call for help with the evaluation at the end of the run; None before.
    """

    run_id: str
    status: RunStatus
    agreement: Mapping[str, Any]
    incarnations: tuple[str, ...]
    key: str = ""
    spans_hosts: bool = False
    start: RunStart | None = None
    partners: tuple[tuple[int, ...], ...] = ()
    shards: Shards | None = None
    model: TaskFingerprint | None = None
    reached: str = ""
    failure: str = ""
    evaluation: EvaluationCall | None = None

    def __post_init__(self) -> None:
        if self.status is not RunStatus.READY:
            return
        if self.start is None:
            raise ValueError("no field 'start', though the run is ready")
        if self.shards is None and self.leases_shards:
            raise ValueError("no field 'shards', though the run is ready and leases its shards")

    @property
    def leases_shards(self) -> bool:
        """Whether ps 0 hands out the shards of the data: the value of `TrainConfig.sharding` is "dynamic"."""
        return self.agreement.get("sharding") == "dynamic"

    def holds_state(self, ps: int) -> bool:
        """Returns whether a part of the run's state lies on ps task `ps`."""
        return ps < len(self.incarnations)

    def replace(self, **changes: Any) -> RunRecord:
        """Returns a copy of this record in which some fields are changed."""
        return dataclasses.replace(self, **changes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerEntry:
    """The last report of one worker, as the worker sent it and as the roster keeps it.

    Attributes:
        status: State of the worker.
        joining: Join number of the worker, named as in the JSON: how often a process has joined the run as this worker;
            0 before the first.
        fingerprint: Fingerprint of the task.
        reason: Sentence which says why the worker ended, or is lost.
        error: Class of the error that ended it.
        summary: Figures of its steps, from a worker that is done; None for a task that makes no steps.
    """

    status: Status
    joining: int = 0
    fingerprint: TaskFingerprint = TaskFingerprint()
    reason: str | None = None
    error: str | None = None
    summary: WorkerFigures | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.joining < _JOIN_NUMBER_LIMIT:
            raise ValueError(f"joining is {self.joining}, not at least 0 and less than 2**31")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Roster:
    """The workers of a run.

    Attributes:
        run_id: Name of the run.
        workers: Last report of each worker, by index.
    """

    run_id: str
    workers: Mapping[int, WorkerEntry]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EndNotice:
    """Announcement of a ps task that it ends before the run does.

    Attributes:
        reason: Sentence which says why.
    """

    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeaseAnswer:
    """Answer of ps 0 to a worker's last question of one kind.

    Attributes:
        request: Random name of the question.
        lease: The shard, or the reason why there is none; None if the question was about the generation only.
        generation: Number that changes when the worker's shards are given to others.
    """

    request: str
    lease: Lease | LeaseRefusal | None = None
    generation: int


# By worker and kind of question.
Leases = Mapping[int, Mapping[LeaseKind, LeaseAnswer]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Message:
    """A message of a worker to a ps task.

    Attributes:
        run_id: Name of the run that the worker takes part in; empty before it has joined one.
        worker: Index of the worker.
    """

    run_id: str
    worker: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class StatusMessage(Message):
    """Report of a worker that its state has changed.

    Attributes:
        entry: The report.
    """

    entry: WorkerEntry


@dataclasses.dataclass(frozen=True, kw_only=True)
class AliveMessage(Message):
    """A heartbeat."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeaseMessage(Message):
    """Question of a worker about shards, to ps 0.

    Attributes:
        request: Random name of the question. The worker repeats a question under the same name, and gets the same
            answer.
        kind: Subject of the question.
        is_idle: Whether the worker has trained on everything that it was given.
        is_first: Whether the worker has dropped everything that it was given before.
    """

    request: str
    kind: LeaseKind
    is_idle: bool
    is_first: bool = False

"""`StepAnatomy`: what one step of a worker makes, joined from the recorded calls of several steps."""

from __future__ import annotations

import collections
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.anatomy import call_record
from benchmarks.anatomy.call_record import CallRecord, Edge, OpCost
from benchmarks.anatomy.session_recorder import RecordedCall
from ps_trainer.errors import RunError

# Ops of a branch or a loop. With one of them in its part of the graph, a task runs every op of that part more slowly.
_BRANCH_OPS = frozenset({"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch"})


class Messages(NamedTuple):
    """The messages of one edge.

    Attributes:
        edge: Tasks and tensor.
        num_messages: Messages in a call.
        num_bytes: Bytes of all of them; 0 for a control edge, whose message is empty.
    """

    edge: Edge
    num_messages: int
    num_bytes: int


class CallAnatomy(NamedTuple):
    """One kind of session call.

    Attributes:
        per_step: Calls in a step; below 1 for a call that only some steps make.
        messages: Messages, by sender, receiver and tensor.
        ops: Costs by task and type of op; medians of the calls.
        num_fetched: Number of tensors that a call returns to Python.
        num_steps: Number of steps in a call.
    """

    per_step: float
    messages: Sequence[Messages]
    ops: Mapping[tuple[str, str], OpCost]
    num_fetched: int = 0
    num_steps: int = 1

    def rpcs(self, worker: str) -> dict[tuple[str, str], int]:
        """Returns the remote procedure calls, by caller and name.

        The worker's server asks each other task to run its part of the graph and to forget the step. The receiver of a
        message asks for it.
        """
        counts: collections.Counter[tuple[str, str]] = collections.Counter()
        others = {task for task, _ in self.ops} - {worker}
        if others:
            counts[worker, "RunGraph"] = counts[worker, "CleanupGraph"] = len(others)
        for edge, count, _ in self.messages:
            counts[edge.receiver, edge.kind] += count
        return dict(counts)


class StepCounts(NamedTuple):
    """The counts of one step, or of a call of several steps, which depend on neither machine nor load.

    Attributes:
        calls: Session calls.
        to_worker: Messages to the worker.
        from_worker: Messages from the worker.
        to_worker_bytes: Their bytes.
        from_worker_bytes: Their bytes.
        worker_ops: Ops in the worker.
        other_ops: Ops in the other tasks.
        fetched: Tensors that the calls return to Python.
        branch_ops: Ops in all tasks that belong to a branch or a loop.
    """

    calls: int
    to_worker: int
    from_worker: int
    to_worker_bytes: int
    from_worker_bytes: int
    worker_ops: int
    other_ops: int
    fetched: int
    branch_ops: int


class StepAnatomy(NamedTuple):
    """One worker's step.

    Attributes:
        worker: Task of the worker, "worker-0".
        calls: Kinds of calls, in the order of their first appearance.
    """

    worker: str
    calls: Sequence[CallAnatomy]

    @property
    def steps_per_call(self) -> int:
        """Number of steps in a call."""
        return max((call.num_steps for call in self.calls), default=1)

    def counts(self) -> StepCounts:
        """Returns the counts of the calls that every step makes, or every `steps_per_call` steps.

        Calls by time, such as a report's, are left out.
        """
        least = 1 - 1e-9  # a call of several steps is a rounded part of a step
        return self._counts_of([call for call in self.calls if call.per_step * call.num_steps >= least])

    def phase_counts(self) -> list[StepCounts]:
        """Returns the counts of each kind of call by itself, the cheapest first, for a rule whose steps differ."""
        return sorted(self._counts_of([call]) for call in self.calls)

    def _counts_of(self, calls: Sequence[CallAnatomy]) -> StepCounts:
        messages = [message for call in calls for message in call.messages]
        to_worker = [message for message in messages if message.edge.receiver == self.worker]
        from_worker = [message for message in messages if message.edge.sender == self.worker]
        ops = [(task == self.worker, cost.num_ops) for call in calls for (task, _), cost in call.ops.items()]
        return StepCounts(
            calls=sum(max(1, round(call.per_step)) for call in calls),
            to_worker=sum(message.num_messages for message in to_worker),
            from_worker=sum(message.num_messages for message in from_worker),
            to_worker_bytes=sum(message.num_bytes for message in to_worker),
            from_worker_bytes=sum(message.num_bytes for message in from_worker),
            worker_ops=sum(count for is_worker, count in ops if is_worker),
            other_ops=sum(count for is_worker, count in ops if not is_worker),
            fetched=sum(call.num_fetched for call in calls),
            branch_ops=sum(cost.num_ops for call in calls for (_, op), cost in call.ops.items() if op in _BRANCH_OPS),
        )


def of_worker(index: int, calls: Sequence[RecordedCall], num_steps: int) -> StepAnatomy:
    """Returns the step of one worker.

    Args:
        index: Index of the worker.
        calls: Recorded calls of all workers.
        num_steps: Number of steps that the recorded calls of this worker made.

    Raises:
        RunError: The record lacks the size of a message in every step.
    """
    # By the object that was fetched: a callable is made once, and runs in each step.
    kinds: dict[int, list[CallRecord]] = {}
    for call in calls:
        if call.worker == index:
            kinds.setdefault(id(call.fetches), []).append(call_record.read(call.metadata, call.num_steps))
    return StepAnatomy(f"worker-{index}", [_combined(records, num_steps) for records in kinds.values()])


def _combined(records: Sequence[CallRecord], num_steps: int) -> CallAnatomy:
    edges = sorted({edge for record in records for edge in record.edges})
    keys = sorted({key for record in records for key in record.ops})
    num_rounds = max((_num_rounds(record) for record in records), default=0)
    looped = {edge: count for record in records for edge, count in record.looped.items()}
    return CallAnatomy(
        per_step=len(records) / num_steps,
        messages=[
            _messages(edge, [record.edges.get(edge, ()) for record in records], num_rounds * looped.get(edge, 0))
            for edge in edges
        ],
        ops={key: _cost([record.ops[key] for record in records if key in record.ops]) for key in keys},
        num_fetched=max(record.num_fetched for record in records),
        num_steps=max(record.num_steps for record in records),
    )


def _num_rounds(record: CallRecord) -> int:
    """Returns the number of rounds of a call's loop, in each of which every tensor of the loop is sent."""
    return max((len(record.edges[edge]) // count for edge, count in record.looped.items()), default=0)


def _messages(edge: Edge, recorded: Sequence[tuple[int, ...]], least: int) -> Messages:
    """Joins the records of an edge, which has at least `least` messages in a call."""
    fullest = max(recorded, key=len)  # a record may miss a message, and never has one too many
    if not fullest:
        raise RunError(f"TensorFlow recorded no size of {edge} in {len(recorded)} calls; record more steps")
    num_missed = max(0, least - len(fullest))
    return Messages(edge, len(fullest) + num_missed, sum(fullest) + num_missed * max(fullest))


def _cost(costs: Iterable[OpCost]) -> OpCost:
    return OpCost(*(round(statistics.median(values)) for values in zip(*costs, strict=True)))

"""Plans a call in which each step looks up the table rows of the next one, and combines the messages of both.

By itself a step with tables waits for four messages, one after the other: ids, rows, gradient, result. In a call of
several steps, a step sends the ids of the next batch with its gradient, and gets their rows with its result:

    ps k       ids, rows of step 1 ─►    update ─► clock ─► rows of step 2 ─►    update ─► …
                               │            ▲                     │                ▲
    worker     ids of step 1   └► gradient ─┴─ ids of step 2      └► gradient ─────┴─ ids of step 3

The ps task looks the rows up where the pull of the next step reads the dense parameters: after the worker's update, and
after the clock. So what others update meanwhile still counts as staleness, and may be in the rows.

Nothing of this outlives a call. The first step of each call looks up its own rows, and its pair of batches
(`worker_input.py`) gives the ids of the next one. What the last step of a call has looked up in advance is not used.
So no failure and no new start of the data finds rows or ids of an earlier step.

A look-up is ahead if its ids follow from the batch alone (`table_lookups.py`). `multi_step_graph.py` builds the loop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.store import table_lookups
from ps_trainer.store.ancestors import ancestors
from ps_trainer.store.devices import task_of
from ps_trainer.store.table_lookups import LookUp
from ps_trainer.training.graph_parts import combined_result, float_message
from ps_trainer.training.graph_parts.step_fetches import StepFetches
from ps_trainer.updates.base import Phase


class LookAhead(NamedTuple):
    """The ops of a step that belong to the next step in a call, and the messages in which they travel.

    Attributes:
        batch_op: Op that reads a batch, and the batch after it as further outputs.
        ops: Ops that lead from a batch to the rows of tables, without `batch_op`.
        after: By look-up the ops of the same task after which the rows of the next step may be read.
        readers: Further ops to which the outputs of `ops` are those of the next step; to all others they are this
            step's.
        messages: By name of a tensor and the task to which it travels: the same tensor, from a combined message.
        results: By task the op that joins the result of a step and the rows of the next one.
    """

    batch_op: tf.Operation
    ops: Collection[tf.Operation]
    after: Mapping[tf.Operation, Sequence[tf.Operation]]
    readers: Collection[tf.Operation]
    messages: Mapping[tuple[str, str], tf.Tensor]
    results: Mapping[str, tf.Operation]


class StepParts(NamedTuple):
    """The parts of a worker's step with tables from which look-ups for the next step are made.

    Attributes:
        batch_op: Op that reads pairs of a batch and the next one (`WorkerInput.has_pairs`).
        look_ups: `TableLookups.first`.
        row_gradients: `Push.row_gradients`.
        dense_gradients: By device the small dense gradients that may travel with those of rows.
        fetches: Tensors and ops of a step.
        phase: The only phase of the step.
        worker_device: Device of this worker.
    """

    batch_op: tf.Operation
    look_ups: Mapping[str, Sequence[LookUp]]
    row_gradients: Sequence[tf.IndexedSlices]
    dense_gradients: Mapping[str, Sequence[tf.Tensor]]
    fetches: StepFetches
    phase: Phase
    worker_device: str


def plan(parts: StepParts) -> LookAhead | None:
    """Plans the look-ups of a worker's next steps; returns None if none can be made ahead."""
    batch_op, _, row_gradients, dense_gradients, fetches, phase, worker_device = parts
    look_ups = ahead(parts)
    if not look_ups:
        return None
    rows = {look_up.op: table_lookups.rows_of(look_up.op) for found in look_ups.values() for look_up in found}
    ops = ops_of_rows(batch_op, [look_up for found in look_ups.values() for look_up in found])
    messages = _Messages(worker_device)
    for device, found in look_ups.items():
        gradients = [one for one in row_gradients if task_of(one.indices.device) == task_of(device)]
        messages.send_ids_with_gradients(device, ops, dense_gradients[device], gradients)
        messages.send_rows_with_result(device, found, [rows[look_up.op][-1].outputs[0] for look_up in found], fetches)
    before_pull = ops_before_pull(fetches, phase)
    after = {op: [other for other in before_pull if task_of(other.device) == task_of(op.device)] for op in rows}
    return LookAhead(batch_op, ops, after, messages.readers, messages.tensors, messages.results)


def ahead(parts: StepParts) -> dict[str, Sequence[LookUp]]:
    """Returns, by device, the look-ups whose ids follow from the batch alone; none if the step applies nothing."""
    if parts.phase.applied is None:
        return {}
    return {
        device: found
        for device, found in parts.look_ups.items()
        if table_lookups.follow_from([look_up.op.inputs[1] for look_up in found], [parts.batch_op])
    }


def ops_of_rows(batch_op: tf.Operation, look_ups: Sequence[LookUp]) -> set[tf.Operation]:
    """Returns the ops that lead from a batch to the rows of look-ups, without `batch_op`."""
    rows = [table_lookups.rows_of(look_up.op) for look_up in look_ups]
    from_batch = _depending_on(batch_op, ancestors([look_up.op for look_up in look_ups]))
    return {*from_batch, *(op for found in rows for op in found)} - {batch_op}


def ops_before_pull(fetches: StepFetches, phase: Phase) -> list[tf.Operation]:
    """Returns the ops after which the next pull reads the parameters, and after which rows may be read for it."""
    targets = [getattr(target, "op", target) for target in fetches.targets]
    return [*(phase.applied or ()), *(op for op in targets if op.type == "Stage")]


class _Messages:
    """The combined messages of a worker and each ps task; they travel as floats, as in `combined_result.py`.

    Args:
        worker_device: Device of the worker.

    Attributes:
        readers: `LookAhead.readers`.
        tensors: `LookAhead.messages`.
        results: `LookAhead.results`.
    """

    def __init__(self, worker_device: str):
        self._worker_device = worker_device
        self._worker = task_of(worker_device)
        self.readers: set[tf.Operation] = set()
        self.tensors: dict[tuple[str, str], tf.Tensor] = {}
        self.results: dict[str, tf.Operation] = {}

    def send_ids_with_gradients(
        self,
        device: str,
        ops: Collection[tf.Operation],
        dense: Sequence[tf.Tensor],
        gradients: Sequence[tf.IndexedSlices],
    ) -> None:
        """Sends the ids of the next step with the gradients of this step's rows, if that is possible.

        Args:
            device: Device of the ps task.
            ops: `LookAhead.ops`.
            dense: Dense gradients for it that travel with them.
            gradients: Gradients of rows there.
        """
        ids = crossing(ops, self._worker, task_of(device))
        values = [*dense, *(gradient.values for gradient in gradients)]
        if len(ids) != 1 or not gradients or not float_message.are_float_rows(values):
            return
        with tf.device(self._worker_device):
            message = tf.concat([float_message.as_floats(part) for part in (*values, *ids)], axis=0)
        self.readers |= set(ancestors([message])) - set(ancestors([*values, *ids]))
        with tf.device(device):
            # The ps task has the ids of this step, and so knows how many rows the gradients have.
            sizes = [
                *map(float_message.floats_of_unit, dense),
                *(float_message.num_floats(gradient.values, gradient.indices) for gradient in gradients),
            ]
            parts = tf.split(message, tf.stack([*sizes, -1]), num=len(sizes) + 1)
            for tensor, part in zip((*values, *ids), parts, strict=True):
                self.tensors[tensor.name, task_of(device)] = float_message.from_floats(part, tensor)

    def send_rows_with_result(
        self, device: str, look_ups: Sequence[LookUp], rows: Sequence[tf.Tensor], fetches: StepFetches
    ) -> None:
        """Sends the rows of the next step with the result of this one, if that is possible.

        Args:
            device: Device of the ps task.
            look_ups: Look-ups there.
            rows: The rows of each.
            fetches: Tensors and ops of a step.
        """
        results = results_from(task_of(device), fetches)
        if len(results) != 1 or not float_message.are_float_rows(rows):
            return
        (result,) = results
        ids = [look_up.ids for look_up in look_ups[:-1]]
        with tf.device(device):
            message = tf.concat([float_message.as_floats(part) for part in (result, *rows)], axis=0)
        with tf.device(self._worker_device):
            counts = [float_message.num_floats(part, part_ids) for part_ids, part in zip(ids, rows, strict=False)]
            sizes = tf.stack([float_message.floats_of_unit(result), *counts, -1])
            parts = tf.split(message, sizes, num=1 + len(rows))
            for tensor, part in zip((result, *rows), parts, strict=True):
                self.tensors[tensor.name, self._worker] = float_message.from_floats(part, tensor)
        self.readers |= set(ancestors([message, sizes])) - set(ancestors([result, *rows, *ids]))
        self.results[task_of(device)] = message.op


def results_from(task: str, fetches: StepFetches) -> list[tf.Tensor]:
    """Returns the tensors by which a task tells the result of a step, if a message of floats can hold them."""
    readers = combined_result.readers_of([fetches.global_step, fetches.staleness, *fetches.counts])
    tensors = {reader.tensor.name: reader.tensor for reader in readers if task_of(reader.tensor.device) == task}
    dtypes = (*float_message.DTYPES, tf.int64)
    return [tensor for tensor in tensors.values() if tensor.shape.is_fully_defined() and tensor.dtype in dtypes]


def _depending_on(source: tf.Operation, ops: Collection[tf.Operation]) -> set[tf.Operation]:
    """Returns those of `ops` that run after `source`."""
    found, size = {source}, 0
    while size < len(found):
        size = len(found)
        found.update(
            op for op in ops if any(before in found for before in (*(t.op for t in op.inputs), *op.control_inputs))
        )
    return found


def crossing(ops: Iterable[tf.Operation], sender: str, receiver: str) -> list[tf.Tensor]:
    """Returns the tensors of `ops` that travel from one task to another, each once."""
    found = {
        tensor.name: tensor
        for op in ops
        if task_of(op.device) == receiver
        for tensor in op.inputs
        if task_of(tensor.op.device) == sender
    }
    return list(found.values())

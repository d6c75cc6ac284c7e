"""Looks up the table rows of the next batch in each step, where each step is a call.

By itself a step with tables waits for four messages, one after the other: ids, rows, gradient, result. Here a step
sends the ids of the next batch with its gradient, and gets their rows with its result, as it pulls the dense parameters
for the next step:

    ps k       look-up ─┐      update ─► clock ─► look-up ─┐      update ─► …
             first ids  │        ▲ gradient, ids 2         │        ▲ gradient, ids 3
    worker              └► step 1                          └► step 2

Rows wait on the worker, and their ids on the ps task, in staging areas, as a pull does (`store/pull.py`). Before its
first step a worker reads a pair of nothing and the first batch (`worker_input.py`), and looks up that one. What an
earlier session has left in the areas is dropped before, so no failure and no new start finds rows of an earlier step.

A look-up is ahead if its ids follow from the batch alone (`table_lookups.py`). In a call of several steps,
`look_ahead.py` does the same, and keeps nothing between calls.

To give existing ops another input, this file uses `Operation._update_input`, as `device_parts.py` does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.store import table_lookups
from ps_trainer.store.devices import task_of
from ps_trainer.store.table_lookups import LookUp
from ps_trainer.training.graph_parts import combined_rows, look_ahead
from ps_trainer.training.graph_parts.combined_rows import Part
from ps_trainer.training.graph_parts.look_ahead import StepParts


class NextRows(NamedTuple):
    """Ops of the look-ups for the next step.

    Attributes:
        step_ops: Ops to run with each step.
        first_op: Op that looks up the rows of the first batch, and reads the pair before it.
        clear_op: Op that drops what an earlier session has left.
    """

    step_ops: list[tf.Operation]
    first_op: tf.Operation
    clear_op: tf.Operation


class _Area(NamedTuple):
    """A staging area: its device and its name."""

    device: str
    name: str

    def stage(self, values: Sequence[tf.Tensor]) -> tf.Operation:
        """Builds the op that puts values into the area."""
        with tf.device(self.device):
            return tf.raw_ops.Stage(values=values, shared_name=self.name)

    def unstage(self, like: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Builds the op that takes values of these types and shapes out of the area, and waits for them."""
        with tf.device(self.device):
            values: list[tf.Tensor] = tf.raw_ops.Unstage(dtypes=[one.dtype for one in like], shared_name=self.name)
        for value, one in zip(values, like, strict=True):
            value.set_shape(one.shape)
        return values

    def clear(self, like: Sequence[tf.Tensor]) -> tf.Operation:
        """Builds the op that empties the area."""
        with tf.device(self.device):
            return tf.raw_ops.StageClear(dtypes=[one.dtype for one in like], shared_name=self.name)


def build(parts: StepParts, worker_index: int) -> NextRows | None:
    """Builds the look-ups of a worker's next steps; returns None if none can be made ahead.

    Args:
        parts: Parts of the step.
        worker_index: Index of this worker.
    """
    batch_op, _, row_gradients, dense_gradients, fetches, phase, worker_device = parts
    look_ups = look_ahead.ahead(parts)
    if not look_ups:
        return None
    found = [look_up for of_device in look_ups.values() for look_up in of_device]
    ops = look_ahead.ops_of_rows(batch_op, found)
    of_first, of_next = (_copy(ops, batch_op, name) for name in ("first_rows", "next_rows"))
    before_pull = look_ahead.ops_before_pull(fetches, phase)
    for look_up in found:
        # Private: an import of a graph takes no control inputs from outside.
        of_next(look_up.op.outputs[0]).op._add_control_inputs(
            [op for op in before_pull if task_of(op.device) == task_of(look_up.op.device)]
        )
    step_ops, first_ops, clear_ops = [], [], []
    for device in (*look_ups, worker_device):
        # Ids on the ps tasks; on the worker rows, and what else the model reads of the look-ups.
        tensors = _read_outside(ops, device)
        if not tensors:  # a transform sends the ids of its gradient
            continue
        area = _Area(device, f"next_rows/worker_{worker_index}{device}")
        clear_ops.append(area.clear(tensors))
        first_ops.append(area.stage(list(map(of_first, tensors))))
        step_ops.append(area.stage(list(map(of_next, tensors))))
        for tensor, kept in zip(tensors, area.unstage(tensors), strict=True):
            for op, number in _readers_outside(tensor, device, ops):
                op._update_input(number, kept)
    for device, of_device in look_ups.items():
        gradients = [one for one in row_gradients if task_of(one.indices.device) == task_of(device)]
        ids = [of_next(one) for one in look_ahead.crossing(ops, task_of(worker_device), task_of(device))]
        if gradients and len(ids) == 1:
            # The ps task has the ids of this step, and so knows how many rows the gradients have.
            sent = [*map(Part, dense_gradients[device]), *(Part(one.values, one.indices) for one in gradients)]
            combined_rows.send_together([*sent, Part(ids[0])], worker_device, device)
        results = look_ahead.results_from(task_of(device), fetches)
        if len(results) == 1:
            rows = [Part(of_next(_rows_of(look_up)), of_next(look_up.ids)) for look_up in of_device]
            combined_rows.send_together([Part(results[0]), *rows], device, worker_device)
    return NextRows(step_ops, tf.group(*first_ops), tf.group(*clear_ops))


def _copy(ops: Collection[tf.Operation], batch_op: tf.Operation, name: str) -> Callable[[tf.Tensor], tf.Tensor]:
    """Copies ops for the next batch of a pair; returns the function from a tensor of the ops to that of the copies."""
    graph_def = tf.GraphDef(versions=tf.get_default_graph().graph_def_versions)
    outside: dict[str, tf.Tensor] = {}
    ordered = sorted(ops, key=lambda op: op.name)
    for op in ordered:
        node = graph_def.node.add()
        node.CopyFrom(op.node_def)
        node.attr.pop("_class", None)  # the ops with which it shares a task may not be in the copy
        del node.input[:]
        for tensor in op.inputs:
            given = tensor.name
            if tensor.op not in ops:
                given = f"outside/{len(outside)}:0"
                outside[given] = _of_next(tensor, batch_op)
            node.input.append(given)
        node.input.extend(f"^{before.name}" for before in op.control_inputs if before in ops)
    copies = tf.import_graph_def(graph_def, outside, [op.name for op in ordered], name)
    copy_of = dict(zip(ordered, copies, strict=True))

    def copied(tensor: tf.Tensor) -> tf.Tensor:
        copy = copy_of.get(tensor.op)
        return _of_next(tensor, batch_op) if copy is None else copy.outputs[tensor.value_index]

    return copied


def _of_next(tensor: tf.Tensor, batch_op: tf.Operation) -> tf.Tensor:
    """Returns the same part of the next batch, if the tensor is a part of a batch."""
    return tensor if tensor.op is not batch_op else batch_op.outputs[tensor.value_index + len(batch_op.outputs) // 2]


def _rows_of(look_up: LookUp) -> tf.Tensor:
    """Returns the rows of a look-up on the ps task, in the type in which they travel."""
    return table_lookups.rows_of(look_up.op)[-1].outputs[0]


def _read_outside(ops: Collection[tf.Operation], device: str) -> list[tf.Tensor]:
    """Returns the tensors of ops that others on a task read."""
    tensors = [tensor for op in sorted(ops, key=lambda op: op.name) for tensor in op.outputs]
    return [tensor for tensor in tensors if _readers_outside(tensor, device, ops)]


def _readers_outside(tensor: tf.Tensor, device: str, ops: Collection[tf.Operation]) -> list[tuple[tf.Operation, int]]:
    """Returns the ops of a task that read a tensor and are not among `ops`, each with the number of that input."""
    return [(op, number) for op, number in combined_rows.readers(tensor, device) if op not in ops]

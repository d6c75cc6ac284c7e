"""Builds the ops that make several steps in one call: an in-graph loop whose body is a copy of a step's ops.

The step itself is built as for single calls. This module copies its ops as they are, with their devices and the names
of their resources, into a loop (a *frame* of TensorFlow's executor). So a step in a call runs the same kernels as a
step in a separate call. TensorFlow's `while_loop` would need the model and the update rule to be built inside of it.

Each task has its own chain through the loop, and the worker's chain decides:

    worker   Enter ─► Merge ─► LoopCond ─► Switch ─► pivot ─► the step's ops ─► note ─► NextIteration ─► Merge
    ps k     Enter ─► Merge ────────────► Switch ─► pivot ─► the step's ops ────────► NextIteration ─► Merge

`note` is a Python function on the worker, called after each step with its figures; it returns whether another step
follows. It runs when all ops of the step have run, on all tasks, except for the arrival of the next step's parameters.
The ops of a ps task come before the message that brings the step's result. So a call that fails in its next step has
lost nothing of this one.

Each staging area of the pull (`store/pull.py`) has a chain as well, from the `Stage` op of one step to the `Unstage` op
of the next one. So a step begins with the first layers while the parameters of the last ones still arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.store.ancestors import ancestors
from ps_trainer.training.graph_parts.step_fetches import StepFetches

_PREFIX = "call"
_FRAME = "call/steps"
_PARALLEL = 2

Note = Callable[[StepFetches], bool]
"""Gets the figures of a step, under the names that they have in a call of one step; returns whether another follows."""


class MultiStepGraph:
    """The ops of a call.

    Args:
        fetches: Tensors and ops of one step, in the default graph.
        worker_device: Device of this worker.

    Attributes:
        ops: Ops to run for a call.
        note: Function that is called after each step; to be set before the first call.
    """

    def __init__(self, fetches: StepFetches, worker_device: str):
        self.note: Note | None = None
        self._num_times = len(fetches.times)
        self.ops = _build(fetches, worker_device, self._call_note)

    def _call_note(self, global_step: Any, staleness: Any, loss: Any, *others: Any) -> np.bool_:
        if self.note is None:
            raise RuntimeError("a call began before its `note` was set")
        times, counts = others[: self._num_times], others[self._num_times :]
        return np.bool_(self.note(StepFetches(global_step, staleness, loss, times, counts, ())))


def _build(fetches: StepFetches, worker_device: str, note: Callable[..., np.bool_]) -> list[tf.Operation]:
    staging, others = _divide(fetches.targets, _task_of(worker_device))
    results = [fetches.global_step, fetches.staleness, fetches.loss, *fetches.times, *fetches.counts]
    worker = _task_of(worker_device)
    targets: dict[str, list[tf.Operation]] = {worker: []}
    for op in others:
        targets.setdefault(_task_of(op.device) or worker, []).append(op)
    with tf.device(worker_device), tf.control_dependencies(targets[worker]):
        noted = tf.numpy_function(note, results, tf.bool)
    loop = _Loop(worker, noted)
    loop.copy(ancestors([noted, *staging, *(op for ops in targets.values() for op in ops)]))
    for task in loop.tasks:
        loop.add_chain(task, targets.get(task, []))
    for op in staging:
        loop.add_staging_chain(op)
    loop.order_results_after(targets, results)
    return loop.import_nodes()


def _divide(targets: Sequence[Any], worker: str) -> tuple[list[tf.Operation], list[tf.Operation]]:
    """Returns the ops that stage values on the worker, and the other targets."""
    ops = [getattr(target, "op", target) for target in targets]
    staging = [op for op in ops if op.type == "Stage" and (_task_of(op.device) or worker) == worker]
    return staging, [op for op in ops if op not in staging]


class _Loop:
    """The nodes of the loop."""

    def __init__(self, worker: str, noted: tf.Tensor):
        self._worker = worker
        self._noted = noted
        self._nodes: dict[str, tf.NodeDef] = {}
        self._outside: dict[str, tf.Tensor] = {}
        self._added: list[tf.NodeDef] = []
        self._exits: list[str] = []
        self.tasks: list[str] = []

    def copy(self, ops: Iterable[tf.Operation]) -> None:
        """Copies the ops of a step."""
        for op in ops:
            task = _task_of(op.device) or self._worker
            if task not in self.tasks:
                self.tasks.append(task)
            if _is_private(op):
                self._enter_private(op, task)
                continue
            node = tf.NodeDef()
            node.CopyFrom(op.node_def)
            # Each op has its device already, and the ops with which it shares a task may not be in the copy.
            node.attr.pop("_class", None)
            # An op without inputs would not belong to the loop. An op on nothing but handles from outside would run
            # once more than there are steps: these are there before it is known that another step follows.
            if not op.control_inputs and all(_is_private(tensor.op) for tensor in op.inputs):
                node.input.append(f"^{_pivot(task)}")
            self._nodes[op.name] = node

    def add_chain(self, task: str, targets: Sequence[tf.Operation]) -> None:
        """Adds the nodes that take one task through the loop.

        Args:
            task: Device of the task.
            targets: Ops of the step on this task that nothing else in the loop waits for.
        """
        is_worker = task == self._worker
        ended = [self._noted.name if is_worker else _pivot(task), *(f"^{op.name}" for op in targets)]
        self._add_chain(_chain(task), task, ended, decides=is_worker)

    def add_staging_chain(self, op: tf.Operation) -> None:
        """Adds the nodes that let the `Unstage` op of a step follow the `Stage` op of the step before."""
        name = op.get_attr("shared_name").decode()
        chain = f"{_chain(self._worker)}/{name}"
        for node in self._nodes.values():
            if node.op == "Unstage" and node.attr["shared_name"].s.decode() == name:
                del node.input[:]  # the worker's pivot
                node.input.append(f"^{chain}/pivot")
        self._add_chain(chain, self._worker, [f"{chain}/pivot", f"^{op.name}"])

    def _add_chain(self, name: str, task: str, ended: Sequence[str], *, decides: bool = False) -> None:
        cpu = f"{task}/device:CPU:0"
        # The next step begins before this one's parameters have all arrived. Everything else is one step at a time.
        frame = {"frame_name": _FRAME, "parallel_iterations": _PARALLEL}
        self._add(f"{name}/start", "Const", cpu, [], value=tf.make_tensor_proto([True], shape=[]), dtype=tf.bool)
        self._add(f"{name}/enter", "Enter", cpu, [f"{name}/start"], **frame)
        self._add(f"{name}/merge", "Merge", cpu, [f"{name}/enter", f"{name}/next"], N=2)
        if decides:
            self._add(f"{name}/condition", "LoopCond", cpu, [f"{name}/merge"])
        self._add(f"{name}/switch", "Switch", cpu, [f"{name}/merge", f"{_chain(self._worker)}/condition"])
        self._add(f"{name}/pivot", "Identity", cpu, [f"{name}/switch:1"])
        self._add(f"{name}/ended", "Identity", cpu, ended)
        self._add(f"{name}/next", "NextIteration", cpu, [f"{name}/ended"])
        self._add(f"{name}/exit", "Exit", cpu, [f"{name}/switch"])
        self._exits.append(f"{name}/exit")

    def order_results_after(self, targets: dict[str, list[tf.Operation]], results: Sequence[tf.Tensor]) -> None:
        """Makes the message with which a task gives its result wait for all other ops of the step on that task."""
        elsewhere = {task: ops for task, ops in targets.items() if task != self._worker and ops}
        before_targets = set(ancestors([op for ops in elsewhere.values() for op in ops]))
        readers = [
            op for op in ancestors([*results, self._noted]) if op not in before_targets and op.name in self._nodes
        ]
        for task, ops in elsewhere.items():
            found = False
            for op in readers:
                for index, tensor in enumerate(op.inputs):
                    if (_task_of(tensor.op.device) or self._worker) == task != (_task_of(op.device) or self._worker):
                        self._nodes[op.name].input[index] = self._after(tensor, task, ops)
                        found = True
            if not found:
                # The task gives no result: a separate message tells that its ops are done.
                self._nodes[self._noted.op.name].input.append(f"^{_chain(task)}/ended")

    def import_nodes(self) -> list[tf.Operation]:
        """Adds the nodes to the default graph; returns the ops that end the loop on each task."""
        graph_def = tf.GraphDef(versions=tf.get_default_graph().graph_def_versions)
        graph_def.node.extend([*self._nodes.values(), *self._added])
        return tf.import_graph_def(graph_def, input_map=self._outside, return_elements=self._exits, name=_PREFIX)

    def _enter_private(self, op: tf.Operation, task: str) -> None:
        """Brings a handle into the loop whose resource a copy of its op would not find."""
        outside = f"outside/{len(self._outside)}"
        self._outside[f"{outside}:0"] = op.outputs[0]
        dtype = op.outputs[0].dtype.base_dtype
        frame = {"frame_name": _FRAME, "parallel_iterations": _PARALLEL}
        self._add(op.name, "Enter", task, [f"{outside}:0"], dtype, is_constant=True, **frame)

    def _after(self, tensor: tf.Tensor, task: str, ops: Sequence[tf.Operation]) -> str:
        name = f"results/{tensor.name.replace(':', '_')}"
        if not any(node.name == name for node in self._added):
            inputs = [tensor.name, *(f"^{op.name}" for op in ops)]
            self._add(name, "Identity", task, inputs, tensor.dtype.base_dtype)
        return name

    def _add(
        self, name: str, op: str, device: str, inputs: Sequence[str], T: tf.DType = tf.bool, **attributes: Any
    ) -> None:
        node = tf.NodeDef(name=name, op=op, device=device, input=inputs)
        if op not in ("LoopCond", "Const"):
            node.attr["T"].type = T.as_datatype_enum
        for key, value in attributes.items():
            _set(node.attr[key], value)
        self._added.append(node)


def _set(attribute: tf.AttrValue, value: Any) -> None:
    if isinstance(value, bool):
        attribute.b = value
    elif isinstance(value, int):
        attribute.i = value
    elif isinstance(value, str):
        attribute.s = value.encode()
    elif isinstance(value, tf.DType):
        attribute.type = value.as_datatype_enum
    else:
        attribute.tensor.CopyFrom(value)


def _is_private(op: tf.Operation) -> bool:
    """Returns whether the op makes a handle of a resource that only this op finds, as it gives it no name."""
    attributes = op.node_def.attr
    return not op.inputs and "shared_name" in attributes and not attributes["shared_name"].s


def _task_of(device: str) -> str:
    """Returns the task of a device, "" for an op without a device."""
    spec = tf.DeviceSpec.from_string(device or "")
    return spec.replace(device_type=None, device_index=None).to_string()


def _chain(task: str) -> str:
    return "chain" + task.replace("/", "_").replace(":", "_")


def _pivot(task: str) -> str:
    return f"{_chain(task)}/pivot"

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

If a step looks up the rows of the next one (`look_ahead.py`), the ops of the look-ups outside of the loop serve its
first step, and their copies inside the next step. So their outputs pass from step to step, as does the pair of batches:

    Enter ─► Merge ─► Switch ─► the step's ops          the next step's rows ─► NextIteration ─► Merge

`note` comes before the next pair is read, so no batch is lost when a call ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.store.ancestors import ancestors
from ps_trainer.store.devices import task_of
from ps_trainer.training.graph_parts.look_ahead import LookAhead
from ps_trainer.training.graph_parts.step_fetches import StepFetches

_PREFIX = "call"
# The next step begins before this one's parameters have all arrived. Everything else is one step at a time.
_FRAME: Mapping[str, Any] = {"frame_name": "call/steps", "parallel_iterations": 2}

Note = Callable[[StepFetches], bool]
"""Gets the figures of a step, under the names that they have in a call of one step; returns whether another follows."""


class MultiStepGraph:
    """The ops of a call.

    Args:
        fetches: Tensors and ops of one step, in the default graph.
        worker_device: Device of this worker.
        ahead: Look-ups that a step makes for the next one; None if there are none.

    Attributes:
        ops: Ops to run for a call.
        note: Function that is called after each step; to be set before the first call.
    """

    def __init__(self, fetches: StepFetches, worker_device: str, ahead: LookAhead | None = None):
        self.note: Note | None = None
        self._num_times = len(fetches.times)
        self.ops = _build(fetches, worker_device, self._call_note, ahead)

    def _call_note(self, global_step: Any, staleness: Any, loss: Any, *others: Any) -> np.bool_:
        if self.note is None:
            raise RuntimeError("a call began before its `note` was set")
        times, counts = others[: self._num_times], others[self._num_times :]
        return np.bool_(self.note(StepFetches(global_step, staleness, loss, times, counts, ())))


def _build(
    fetches: StepFetches, worker_device: str, note: Callable[..., np.bool_], ahead: LookAhead | None
) -> list[tf.Operation]:
    staging, others = _divide(fetches.targets, task_of(worker_device))
    results = [fetches.global_step, fetches.staleness, fetches.loss, *fetches.times, *fetches.counts]
    worker = task_of(worker_device)
    targets: dict[str, list[tf.Operation]] = {worker: []}
    for op in others:
        targets.setdefault(task_of(op.device) or worker, []).append(op)
    with tf.device(worker_device), tf.control_dependencies(targets[worker]):
        noted = tf.numpy_function(note, results, tf.bool)
    loop = _Loop(worker, noted, ahead)
    further = [] if ahead is None else [*ahead.messages.values(), *(op for ops in ahead.after.values() for op in ops)]
    loop.copy(ancestors([noted, *staging, *(op for ops in targets.values() for op in ops), *further]))
    for task in loop.tasks:
        loop.add_chain(task, targets.get(task, []))
    for op in staging:
        loop.add_staging_chain(op)
    loop.order_results_after(targets, results)
    return loop.import_nodes()


def _divide(targets: Sequence[Any], worker: str) -> tuple[list[tf.Operation], list[tf.Operation]]:
    """Returns the ops that stage values on the worker, and the other targets."""
    ops = [getattr(target, "op", target) for target in targets]
    staging = [op for op in ops if op.type == "Stage" and (task_of(op.device) or worker) == worker]
    return staging, [op for op in ops if op not in staging]


class _Loop:
    """The nodes of the loop."""

    def __init__(self, worker: str, noted: tf.Tensor, ahead: LookAhead | None):
        self._worker = worker
        self._noted = noted
        self._ahead = ahead
        self._nodes: dict[str, tf.NodeDef] = {}
        self._outside: dict[str, tf.Tensor] = {}
        self._added: list[tf.NodeDef] = []
        self._exits: list[str] = []
        self._variables: set[str] = set()
        self.tasks: list[str] = []

    def copy(self, ops: Iterable[tf.Operation]) -> None:
        """Copies the ops of a step."""
        for op in ops:
            task = self._task(op)
            if task not in self.tasks:
                self.tasks.append(task)
            if _is_private(op):
                self._enter_private(op, task)
                continue
            node = tf.NodeDef()
            node.CopyFrom(op.node_def)
            # Each op has its device already, and the ops with which it shares a task may not be in the copy.
            node.attr.pop("_class", None)
            if self._ahead is not None:
                self._pass_on(node, op, task, self._ahead)
            # An op without inputs would not belong to the loop. An op on nothing but handles from outside would run
            # once more than there are steps: these are there before it is known that another step follows.
            is_ordered = any(name.startswith("^") for name in node.input)
            if not is_ordered and all(_is_private(tensor.op) for tensor in op.inputs):
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
        cpu = _cpu(task)
        self._add(f"{name}/start", "Const", cpu, [], value=tf.make_tensor_proto([True], shape=[]), dtype=tf.bool)
        self._add_variable(name, task, f"{name}/start", f"{name}/ended")
        if decides:
            self._add(f"{name}/condition", "LoopCond", cpu, [f"{name}/merge"])
        self._add(f"{name}/pivot", "Identity", cpu, [f"{name}/switch:1"])
        self._add(f"{name}/ended", "Identity", cpu, ended)
        self._add(f"{name}/exit", "Exit", cpu, [f"{name}/switch"])
        self._exits.append(f"{name}/exit")

    def _add_variable(self, name: str, task: str, first: str, following: str, dtype: tf.DType = tf.bool) -> None:
        """Adds a value that passes from step to step; a step reads the second output of the `Switch`."""
        cpu, condition = _cpu(task), f"{_chain(self._worker)}/condition"
        self._add(f"{name}/enter", "Enter", cpu, [first], dtype, **_FRAME)
        self._add(f"{name}/merge", "Merge", cpu, [f"{name}/enter", f"{name}/next"], dtype, N=2)
        self._add(f"{name}/switch", "Switch", cpu, [f"{name}/merge", condition], dtype)
        self._add(f"{name}/next", "NextIteration", cpu, [following], dtype)
        self._variables.add(name)

    def order_results_after(self, targets: dict[str, list[tf.Operation]], results: Sequence[tf.Tensor]) -> None:
        """Makes the message with which a task gives its result wait for all other ops of the step on that task."""
        elsewhere = {task: ops for task, ops in targets.items() if task != self._worker and ops}
        before_targets = set(ancestors([op for ops in elsewhere.values() for op in ops]))
        readers = [
            op for op in ancestors([*results, self._noted]) if op not in before_targets and op.name in self._nodes
        ]
        joined = {} if self._ahead is None else self._ahead.results
        for task, ops in elsewhere.items():
            found = task in joined
            if found:
                self._nodes[joined[task].name].input.extend(f"^{op.name}" for op in ops)
            for op in readers:
                for index, tensor in enumerate(op.inputs):
                    if self._is_passed(tensor, op):
                        continue
                    if self._task(tensor.op) == task != self._task(op):
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

    def _task(self, op: tf.Operation) -> str:
        """Returns the task of an op; one without a device is on the worker."""
        return task_of(op.device) or self._worker

    def _enter_private(self, op: tf.Operation, task: str) -> None:
        """Brings a handle into the loop whose resource a copy of its op would not find."""
        dtype = op.outputs[0].dtype.base_dtype
        self._add(op.name, "Enter", task, [self._from_outside(op.outputs[0])], dtype, is_constant=True, **_FRAME)

    def _from_outside(self, tensor: tf.Tensor) -> str:
        name = f"outside/{len(self._outside)}:0"
        self._outside[name] = tensor
        return name

    def _pass_on(self, node: tf.NodeDef, op: tf.Operation, task: str, ahead: LookAhead) -> None:
        """Lets the copy of an op read what the step before has looked up, or look up for the next step."""
        is_next = op in ahead.ops or op in ahead.readers
        for place, tensor in enumerate(op.inputs):
            node.input[place] = self._value(tensor, task, ahead, is_next=is_next)
        # What leads to this step's rows has run in the step before, or outside of the loop.
        has_run = {ahead.batch_op} if is_next else {ahead.batch_op, *ahead.ops}
        after = [before for before in op.control_inputs if before not in has_run] + list(ahead.after.get(op, ()))
        names = [f"^{before.name}" for before in after]
        if op is ahead.batch_op:
            names = ["^follows/pivot"]
            self._add("follows", "Switch", _cpu(task), [self._noted.name] * 2)
            self._add("follows/pivot", "Identity", _cpu(task), ["follows:1"])
        node.input[len(op.inputs) :] = names

    def _value(self, tensor: tf.Tensor, task: str, ahead: LookAhead, *, is_next: bool) -> str:
        """Returns the name of what an op on `task` reads in place of a tensor."""
        there = ahead.messages.get((tensor.name, task), tensor)
        is_of_batch = tensor.op is ahead.batch_op and there is tensor
        if is_of_batch:
            return self._part_of_pair(tensor.value_index + (len(ahead.batch_op.outputs) // 2 if is_next else 0), ahead)
        if is_next or (tensor.op is not ahead.batch_op and tensor.op not in ahead.ops):
            return there.name
        name = f"passed/{tensor.name.replace(':', '_')}/{_chain(task)}"
        if name not in self._variables:
            self._add_variable(name, task, self._from_outside(tensor), there.name, tensor.dtype.base_dtype)
        return f"{name}/switch:1"

    def _is_passed(self, tensor: tf.Tensor, op: tf.Operation) -> bool:
        """Returns whether the copy of an op reads something else in place of a tensor."""
        ahead = self._ahead
        return ahead is not None and (tensor.op in ahead.ops or (tensor.name, self._task(op)) in ahead.messages)

    def _part_of_pair(self, place: int, ahead: LookAhead) -> str:
        """Returns the name of one output of the op that reads a pair of batches."""
        name, cpu, tensor = f"pair/{place}", _cpu(self._worker), ahead.batch_op.outputs[place]
        if name not in self._variables:
            dtype = tensor.dtype.base_dtype
            self._add_variable(name, self._worker, self._from_outside(tensor), f"{name}/chosen", dtype)
            # At the end of the call the value stays: each op needs all its inputs to tell that it does not run.
            self._add(f"{name}/kept", "Switch", cpu, [f"{name}/switch:1", self._noted.name], dtype)
            self._add(f"{name}/chosen", "Merge", cpu, [f"{name}/kept", tensor.name], dtype, N=2)
        return f"{name}/switch:1"

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


def _cpu(task: str) -> str:
    return f"{task}/device:CPU:0"


def _chain(task: str) -> str:
    return "chain" + task.replace("/", "_").replace(":", "_")


def _pivot(task: str) -> str:
    return f"{_chain(task)}/pivot"

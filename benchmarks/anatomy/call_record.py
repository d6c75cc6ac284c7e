"""`CallRecord`: the messages, ops and copies of one session call, read from TensorFlow's record of it.

The partition graphs say which ops each task got, and which tensors pass between tasks. The step stats say how many
bytes each message had, how long each op took, and what each op allocated. TensorFlow writes the sizes of messages
beside the step, so a record may miss some of them: `step_anatomy` joins the records of several calls.

A call of several steps runs a loop. An op in the loop counts once for each step, any other op once. A tensor that
passes between tasks in the loop is a message in each round. The last round makes no step; it ends the loop.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import tensorflow.compat.v1 as tf

RECV_TENSOR, RECV_BUFFER = "RecvTensor", "RecvBuf"
CHUNK = "chunk of an all-reduce"

# Ops that give their input in another form or place. What they allocate is a copy. An optimizer's op allocates only if
# it must copy a variable whose buffer a reader still holds.
_MOVING_OPS = frozenset(
    {
        "Cast",
        "ClipByValue",
        "Concat",
        "ConcatV2",
        "ConcatOffset",
        "DynamicPartition",
        "DynamicStitch",
        "Fill",
        "GatherNd",
        "GatherV2",
        "Identity",
        "IdentityN",
        "Maximum",
        "Minimum",
        "Pack",
        "ParallelDynamicStitch",
        "ReadVariableOp",
        "Reshape",
        "ResourceGather",
        "Slice",
        "Snapshot",
        "Split",
        "SplitV",
        "Stage",
        "StridedSlice",
        "StridedSliceGrad",
        "Tile",
        "Transpose",
        "Unique",
        "UniqueV2",
        "Unpack",
        "Unstage",
        "UnsortedSegmentSum",
    }
)
_UPDATING_OPS = re.compile(r"Resource(Sparse)?Apply|Assign.*VariableOp|ResourceScatter")
_TRANSFER = re.compile(r"(?P<tensor>\S+) from (?P<sender>\S+) to (?P<receiver>\S+)$")
_EDGE_NUMBER = re.compile(r"^edge_\d+_")


class Edge(NamedTuple):
    """A way of messages from one task to another: one tensor, or the chunks of an all-reduce.

    Attributes:
        kind: `RECV_TENSOR` or `RECV_BUFFER`, the RPC by which the receiver asks for a message.
        sender: Task, "ps-0".
        receiver: Task.
        tensor: Name of the tensor. A control edge has the name of its op.
    """

    kind: str
    sender: str
    receiver: str
    tensor: str


class OpCost(NamedTuple):
    """The ops of one type in one task.

    Attributes:
        num_ops: Number of ops in the task's part of the graph, those in a loop times the number of steps.
        micros: Wall time in their kernels, in microseconds.
        copied_bytes: Bytes that they allocated, if they only move or update data; 0 for all other ops.
    """

    num_ops: int
    micros: int
    copied_bytes: int


class CallRecord(NamedTuple):
    """One call.

    Attributes:
        edges: For each edge the bytes of its recorded messages.
        ops: Costs by task and type of op, without the ops that send and receive.
        num_fetched: Number of tensors that the call returns to Python.
        num_steps: Number of steps in the call.
        looped: For each edge in a loop its number of tensors, each of which is a message in each round.
    """

    edges: Mapping[Edge, tuple[int, ...]]
    ops: Mapping[tuple[str, str], OpCost]
    num_fetched: int = 0
    num_steps: int = 1
    looped: Mapping[Edge, int] = MappingProxyType({})

    @property
    def tasks(self) -> set[str]:
        """The tasks that ran a part of the graph."""
        return {task for task, _ in self.ops}


def read(metadata: tf.RunMetadata, num_steps: int = 1) -> CallRecord:
    """Reads TensorFlow's record of a call that was made with FULL_TRACE and partition graphs.

    Args:
        metadata: The record.
        num_steps: Number of steps in the call; several are made by a loop.
    """
    looped = [_in_loops(graph) for graph in metadata.partition_graphs]
    edges: dict[Edge, list[int]] = {}
    num_looped: collections.Counter[Edge] = collections.Counter()
    for edge, is_looped in _drawn_edges(metadata, looped):
        edges[edge] = []
        num_looped[edge] += is_looped
    for edge, num_bytes in _transfers(metadata):
        edges.setdefault(edge, []).append(num_bytes)
    return CallRecord(
        {edge: tuple(sizes) for edge, sizes in edges.items()},
        _ops(metadata, looped, num_steps),
        _num_fetched(metadata),
        num_steps,
        +num_looped,
    )


def task_of(device: str) -> str:
    """Returns the name of the task of a device: "ps-0" of "/job:ps/replica:0/task:0/device:CPU:0"."""
    spec = tf.DeviceSpec.from_string(device)
    return f"{spec.job}-{spec.task}"


def _in_loops(graph: tf.GraphDef) -> set[str]:
    """Returns the names of the nodes that run in each round of a loop: those between an `Enter` and its `Exit`."""
    readers: dict[str, list[str]] = collections.defaultdict(list)
    for node in graph.node:
        for name in node.input:
            readers[name.removeprefix("^").partition(":")[0]].append(node.name)
    changes = {node.name: {"Enter": 1, "Exit": -1}.get(node.op, 0) for node in graph.node}
    depths = {node.name: 0 for node in graph.node if not node.input}
    waiting = list(depths)
    while waiting:
        name = waiting.pop()
        for reader in readers[name]:
            if reader not in depths:
                depths[reader] = depths[name] + changes[name]
                waiting.append(reader)
    return {name for name, depth in depths.items() if depth + min(changes[name], 0) > 0}


def _drawn_edges(metadata: tf.RunMetadata, looped: Sequence[Collection[str]]) -> Iterator[tuple[Edge, bool]]:
    """Returns the edges between tasks in the partitioned graph, control edges included, and whether in a loop."""
    for graph, in_loops in zip(metadata.partition_graphs, looped, strict=True):
        for node in graph.node:
            if node.op in ("_Recv", "_HostRecv"):
                sender = task_of(node.attr["send_device"].s.decode())
                receiver = task_of(node.attr["recv_device"].s.decode())
                if sender != receiver:
                    edge = Edge(RECV_TENSOR, sender, receiver, _plain(node.attr["tensor_name"].s.decode()))
                    yield edge, node.name in in_loops


def _transfers(metadata: tf.RunMetadata) -> Iterator[tuple[Edge, int]]:
    """Returns each recorded message and its size; the receiver records it."""
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            if node.node_name in (RECV_TENSOR, RECV_BUFFER) and (match := _TRANSFER.search(node.timeline_label)):
                tensor = _plain(match["tensor"]) if node.node_name == RECV_TENSOR else CHUNK
                edge = Edge(node.node_name, task_of(match["sender"]), task_of(match["receiver"]), tensor)
                # The label rounds larger sizes.
                yield edge, node.output[0].tensor_description.allocation_description.requested_bytes


def _ops(metadata: tf.RunMetadata, looped: Sequence[Collection[str]], num_steps: int) -> dict[tuple[str, str], OpCost]:
    types = {}
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    for graph, in_loops in zip(metadata.partition_graphs, looped, strict=True):
        for node in graph.node:
            if node.op not in ("_Send", "_Recv", "_HostSend", "_HostRecv"):
                key = types[node.device, node.name] = (task_of(node.device), node.op)
                counts[key] += num_steps if node.name in in_loops else 1
    micros: collections.Counter[tuple[str, str]] = collections.Counter()
    copied: collections.Counter[tuple[str, str]] = collections.Counter()
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            # A name may end in ":type" of a fused op.
            owner = types.get((device.device, node.node_name.partition(":")[0]))
            if owner is not None:
                micros[owner] += node.op_end_rel_micros - node.op_start_rel_micros
                if owner[1] in _MOVING_OPS or _UPDATING_OPS.match(owner[1]):
                    copied[owner] += sum(memory.total_bytes for memory in node.memory)
    return {key: OpCost(count, micros[key], copied[key]) for key, count in counts.items()}


def _num_fetched(metadata: tf.RunMetadata) -> int:
    """Returns the number of tensors that the worker's part of the graph sends to its client."""
    nodes = (node for graph in metadata.partition_graphs for node in graph.node)
    return sum(node.op == "_Send" and node.attr["client_terminated"].b for node in nodes)


def _plain(tensor_name: str) -> str:
    """Returns the name without the number that TensorFlow gives the edge."""
    return _EDGE_NUMBER.sub("", tensor_name)

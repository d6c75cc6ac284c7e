"""Fingerprint of a task, which the doctor and the preflight compare: cluster, model, TensorFlow.

A ps task tells its fingerprint in `Hello`, a worker in each `StatusMessage`. Two tasks that were given different
addresses for one task (a tunnel, a NAT) can work together. Two versions of TensorFlow often can, though TensorFlow
does not promise it. These differences are warnings. Workers whose models have different variables cannot work together.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import socket
from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.findings import FAIL, WARNING, ClusterFinding
from ps_trainer.runtime.run_record import TaskFingerprint
from ps_trainer.store.trace import ModelTrace

# Attributes of ops that depend on the batch, or that each process numbers for itself.
_NOT_OF_THE_MODEL = ("shape", "value", "_output_shapes", "_class")
_HASH_DIGITS = 10


def of(cluster: ClusterConfig) -> TaskFingerprint:
    """Returns the fingerprint of this task, without its model."""
    return TaskFingerprint(tensorflow=tf.__version__, cluster=cluster_hash(cluster), host=socket.gethostname())


def cluster_hash(cluster: ClusterConfig) -> str:
    """Returns a short hash of all tasks and their addresses; every task of a job has the same."""
    return _digest(cluster.as_dict())


def of_model(model_trace: ModelTrace) -> TaskFingerprint:
    """Returns the fingerprint of a worker's model: a hash of its variables, and a hash of its graph.

    The hash of the graph covers ops, names, inputs and attributes. It leaves out constants and shapes, because they
    depend on the batch size, which may differ between workers.
    """
    variables = [[spec.name, spec.shape, str(spec.dtype), spec.trainable] for spec in model_trace.specs]
    nodes = sorted(model_trace.graph.as_graph_def().node, key=lambda node: node.name)
    ops = [[node.name, node.op, list(node.input), _attributes(node)] for node in nodes]
    return TaskFingerprint(variables=_digest(variables), graph=_digest(ops))


def differences(
    own_fingerprint: TaskFingerprint, other: TaskFingerprint, task_name: str, here: str = "here"
) -> list[ClusterFinding]:
    """Returns the differences of two tasks; a field that one of them leaves out does not count.

    Args:
        own_fingerprint: Fingerprint of this task.
        other: Fingerprint of the other task.
        task_name: Name of the other task, for messages.
        here: Place that `own_fingerprint` describes, for messages.

    Returns:
        One finding for each difference, with the name of the field as its topic.
    """
    ours, theirs = dataclasses.asdict(own_fingerprint), dataclasses.asdict(other)
    return [
        ClusterFinding(
            FAIL if name == "variables" else WARNING,
            name,
            text.format(name=task_name, other=theirs[name], own=ours[name], here=here),
            fix,
        )
        for name, (text, fix) in _FIELD_TEXTS.items()
        if None not in (ours[name], theirs[name]) and ours[name] != theirs[name]
    ]


_SAME_CODE = "bring the same code of the model to every machine"
_FIELD_TEXTS = {
    "tensorflow": (
        "{name} has TensorFlow {other}, {here} it is {own}; TensorFlow does not promise that different versions work"
        " together",
        "install the same version everywhere",
    ),
    "cluster": (
        "{name} was given other addresses than those {here} (hash {other}, {here} {own})",
        "give every task the same --ps_hosts, --worker_hosts and --chief_hosts, unless a tunnel needs them to differ",
    ),
    "variables": (
        "the model of {name} has other variables than the one {here} (hash {other}, {here} {own})",
        _SAME_CODE,
    ),
    "graph": ("the model of {name} has another graph than the one {here} (hash {other}, {here} {own})", _SAME_CODE),
}


def _attributes(node: Any) -> list[tuple[str, str]]:
    return sorted(
        (key, str(value))
        for key, value in node.attr.items()
        # Each process numbers TensorFlow's functions (of `tf.data`, for example) for itself, so names are left out.
        if key not in _NOT_OF_THE_MODEL and value.WhichOneof("value") != "func"
    )


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:_HASH_DIGITS]

"""What tasks tell of themselves, so that the doctor and the preflight can compare it: cluster, model, TensorFlow.

A ps task tells its facts in `hello`, a worker with each of its messages. Two clusters with other addresses for the
same tasks (a tunnel, a NAT) can work together, and so can two versions of TensorFlow, though nobody promises it:
these differences are warnings. Workers whose models have other variables cannot.
"""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Mapping
from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.findings import FAIL, WARNING, Finding
from ps_trainer.store.trace import ModelTrace

# What depends on the batch, or is numbered anew in each process.
_NOT_OF_THE_MODEL = ("shape", "value", "_output_shapes", "_class")
_HASH_DIGITS = 10


def of(cluster: ClusterConfig) -> dict[str, Any]:
    """The facts of this task, as JSON values, but those of a worker's model."""
    return {"tensorflow": tf.__version__, "cluster": cluster_hash(cluster), "host": socket.gethostname()}


def cluster_hash(cluster: ClusterConfig) -> str:
    """A short hash of who takes part and where: the same for every task of a job."""
    return _digest(cluster.as_dict())


def of_model(model_trace: ModelTrace) -> dict[str, Any]:
    """Hashes of a worker's model: of its variables, and of its graph.

    The graph's covers ops, names, inputs and attributes, but for constants and shapes, which depend on the batch.
    """
    variables = [[spec.name, spec.shape, str(spec.dtype), spec.trainable] for spec in model_trace.specs]
    nodes = sorted(model_trace.graph.as_graph_def().node, key=lambda node: node.name)
    ops = [[node.name, node.op, list(node.input), _attributes(node)] for node in nodes]
    return {"variables": _digest(variables), "graph": _digest(ops)}


def differences(own: Mapping[str, Any], other: Mapping[str, Any], task_name: str, here: str = "here") -> list[Finding]:
    """What is different in the facts of another task; a fact that one of the two does not tell is not.

    Args:
        own: facts of this task.
        other: facts of the other one.
        task_name: its name, for the words.
        here: whose facts `own` are, for the words.

    Returns:
        A finding for each difference, its topic the fact.
    """
    return [
        Finding(
            FAIL if key == "variables" else WARNING,
            key,
            words.format(name=task_name, other=other[key], own=own[key], here=here),
            fix,
        )
        for key, (words, fix) in _WORDS.items()
        if key in own and key in other and own[key] != other[key]
    ]


_SAME_CODE = "bring the same code of the model to every machine"
_WORDS = {
    "tensorflow": (
        "{name} has TensorFlow {other}, {here} it is {own}: different versions are not promised to work together",
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
        if key not in _NOT_OF_THE_MODEL and value.WhichOneof("value") != "func"
    )


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:_HASH_DIGITS]

"""A worker's graph, built without a server, so that tests can look at its ops."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import tensorflow.compat.v1 as tf

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.training import components as components_lib
from ps_trainer.training import graph as graph_lib
from ps_trainer.training.train_graph import TrainGraph


def assemble(
    config: TrainConfig,
    *,
    num_ps: int = 1,
    num_workers: int = 2,
    worker: int = 0,
    steps_per_call: int = 1,
    spans_hosts: bool = False,
) -> TrainGraph:
    """The graph of one worker of a cluster that does not exist; a call of several steps would copy the ops."""
    jobs = {
        "ps": tuple(f"localhost:{2000 + ps}" for ps in range(num_ps)),
        "worker": tuple(f"localhost:{3000 + index}" for index in range(num_workers)),
    }
    cluster = ClusterConfig(jobs=jobs, job_name="worker", task_index=worker)
    config = dataclasses.replace(config, steps_per_call=steps_per_call)
    return graph_lib.build(components_lib.load(config, num_workers), cluster, config, "run", spans_hosts=spans_hosts)


def ancestors_within_step(ops: Iterable[tf.Operation]) -> set[tf.Operation]:
    """All ops that must run before `ops` in the same turn of the loop."""
    pending, seen = list(ops), set[tf.Operation]()
    while pending:
        op = pending.pop()
        if op not in seen:
            seen.add(op)
            if op.type != "Merge":
                pending += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return seen

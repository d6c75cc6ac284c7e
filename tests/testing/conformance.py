"""The runs that the checks of the conformance suite share: each job once, however many checks look at it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.config import TrainConfig
from ps_trainer.errors import Interrupted
from tests.testing.cluster import InProcessCluster, config_of, wait_until

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from ps_trainer.training import components as components_lib
from ps_trainer.training import graph as graph_lib
from ps_trainer.training.evaluation import evaluate
from tests.testing import components as small
from tests.testing.rule_facts import FACTS

ALONE, THREE = (1, 1), (2, 3)
"""Shapes of clusters: ps tasks and workers."""

NUM_EXAMPLES, SEED, RUN_SECS, THREAD_SECS = 24, 3, 180.0, 30.0
LEARNING_RATE = 0.2
PS_THREADS = {"mail", "liveness"}  # of the living ps tasks, which may begin them when a job has started already


class Place(NamedTuple):
    """Where an op with a resource that outlives a step is."""

    name: str
    op_type: str
    device: str
    container: str


class WorkerGraph(NamedTuple):
    """What is kept of a worker's graph: its run, its own device, and the places of its resources."""

    run_id: str
    worker_device: str
    places: list[Place]


class Result(NamedTuple):
    """A run that ended.

    Attributes:
        codes: exit code of each worker.
        losses: of each worker's steps.
        dropped: gradients of each worker that ps 0 did not use.
        values: the chief's final values.
        loss: mean loss of the final values over all examples.
        left_threads: names of the threads that the run left behind.
        graphs: of each worker, in the order in which they were built.
    """

    codes: list[int]
    losses: list[list[float]]
    dropped: list[int]
    values: dict[str, np.ndarray]
    loss: float
    left_threads: list[str]
    graphs: list[WorkerGraph]

    @property
    def steps(self) -> list[int]:
        """Steps of each worker."""
        return [len(losses) for losses in self.losses]

    @property
    def global_step(self) -> int:
        """At the end."""
        return int(self.values["global_step"])


class Runs:
    """Runs jobs on one cluster per shape, one after the other, each job once however many checks look at it.

    A cluster on which a job failed is given up, as something of the job may still be waiting there.
    """

    def __init__(self) -> None:
        self._clusters: dict[tuple[int, int], InProcessCluster] = {}
        self._done: dict[tuple[tuple[int, int], TrainConfig], Result | BaseException] = {}

    def result(self, shape: tuple[int, int], config: TrainConfig) -> Result:
        """The result of a job, which is run if it was not yet; raises what any of its workers raised."""
        key = (shape, config)
        if key not in self._done:
            try:
                self._done[key] = self.run(shape, config)
            except BaseException as error:  # noqa: BLE001 - kept for the other checks
                self._done[key] = error
        found = self._done[key]
        if isinstance(found, BaseException):
            raise found
        return found

    def run(self, shape: tuple[int, int], config: TrainConfig) -> Result:
        """Runs a job, also if it was run before."""
        if shape not in self._clusters:
            self._clusters[shape] = InProcessCluster(*shape)
        cluster, graphs, threads = self._clusters[shape], [], set(threading.enumerate())
        calls = []
        try:
            with _noting_graphs(graphs):
                calls += [cluster.start(config, index) for index in range(cluster.num_workers)]
                deadline = time.monotonic() + RUN_SECS
                outcomes = [cluster.finish(call, max(0.1, deadline - time.monotonic())) for call in calls]
            errors = [outcome.error for outcome in outcomes if outcome.error is not None]
            if errors:
                raise errors[0]
        except BaseException:
            del self._clusters[shape]
            for call in calls:
                call.stop.request(Interrupted(15))
            cluster.close()
            raise
        chief = outcomes[0].worker
        return Result(
            codes=[outcome.code for outcome in outcomes],
            losses=[outcome.losses for outcome in outcomes],
            dropped=[sum(int(s[0]) < 0 for s in o.progress.staleness_values if len(s)) for o in outcomes],
            values=chief.final_values,
            loss=chief.summary["metrics"]["loss"],
            left_threads=_left_of(threads),
            graphs=graphs,
        )

    def close(self) -> None:
        """Ends the clusters."""
        for cluster in self._clusters.values():
            cluster.close()


def job(rule: str, layout: str, shape: tuple[int, int], model: str | None = None, **fields: Any) -> TrainConfig:
    """A job of a rule with its options, on the first `NUM_EXAMPLES` rows; batches of one worker repeat after 6 steps.

    With three workers a batch is a worker's whole shard, so that the loss falls evenly.
    """
    facts = FACTS[rule]
    lengths = fields.pop("lengths", ())
    dataset = [f"num_examples={NUM_EXAMPLES}"] + ([f"lengths={','.join(map(str, lengths))}"] if lengths else [])
    if lengths:
        fields |= {"max_steps": None, "num_epochs": 1000}
    fields = {
        "learning_rate": LEARNING_RATE,
        "update_option": facts.alone if shape == ALONE else facts.options,
        "max_steps": facts.max_steps,
        "batch_size": 4 if shape == ALONE else NUM_EXAMPLES // 3,
        "seed": SEED,
        "stall_timeout_secs": RUN_SECS - 10,
    } | fields
    return config_of(model or facts.model, "Rows", dataset, update=rule, layout=layout, **fields)


def lone_batches(num_steps: int) -> list[dict[str, np.ndarray]]:
    """What the worker of a `job` with one worker reads."""
    arrays = all_examples()
    indices = [np.arange(step * 4, (step + 1) * 4) % NUM_EXAMPLES for step in range(num_steps)]
    return [{name: array[picked] for name, array in arrays.items()} for picked in indices]


def all_examples() -> dict[str, np.ndarray]:
    """The data of a `job`; worker w of n has the examples w, w + n, …"""
    return small.Rows(small.RowOptions(num_examples=NUM_EXAMPLES)).arrays


def loss_of(config: TrainConfig, values: Mapping[str, np.ndarray]) -> float:
    """The mean loss over all rows of a job's data, by its model with these values."""
    return evaluate(components_lib.load(config, 3), values)["loss"]


@contextmanager
def _noting_graphs(graphs: list[WorkerGraph]) -> Iterator[None]:
    """Adds what is of interest of each worker's graph to `graphs` when it is built."""
    build = graph_lib.build

    def noting(components: Any, cluster: Any, config: Any, run_id: str, **options: Any) -> graph_lib.TrainGraph:
        train = build(components, cluster, config, run_id, **options)
        graphs.append(WorkerGraph(run_id, cluster.device, _places(train.graph)))
        return train

    graph_lib.build = noting
    try:
        yield
    finally:
        graph_lib.build = build


def _places(graph: tf.Graph) -> list[Place]:
    """Variables, queues, accumulators, staging areas … : every op with a container."""
    return [
        Place(op.name, op.type, op.device, op.get_attr("container").decode())
        for op in graph.get_operations()
        if "container" in op.node_def.attr
    ]


def _left_of(before: set[threading.Thread]) -> list[str]:
    """Names of the threads that were not there `before` and do not end."""

    def left() -> list[str]:
        return [t.name for t in threading.enumerate() if t not in before and t.name not in PS_THREADS]

    try:
        wait_until(lambda: not left(), THREAD_SECS)
    except AssertionError:
        return left()
    return []

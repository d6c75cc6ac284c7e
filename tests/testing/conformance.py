"""The runs that the conformance suite checks: each job runs once, and all checks share its result."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.config import TrainConfig
from ps_trainer.errors import Interrupted
from tests.testing.cluster import InProcessCluster, config_of, load_once, wait_until

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from ps_trainer.training import components as components_lib
from ps_trainer.training import graph as graph_lib
from ps_trainer.training.evaluation import evaluate
from ps_trainer.training.train_graph import TrainGraph
from tests.testing import components as small
from tests.testing.repetitions import IS_FULL
from tests.testing.rule_promises import PROMISES

ALONE, THREE = (1, 1), (2, 3)
"""Shapes of clusters: ps tasks and workers."""
THREE_ON_ONE = THREE if IS_FULL else (1, 3)
"""For checks that do not depend on the number of ps tasks; a second one nearly doubles a group rule's graph."""
UNEVEN = {"packed": THREE, "per_variable": THREE_ON_ONE}
"""Shape of the uneven run of each layout."""

NUM_EXAMPLES, SEED, RUN_SECS, THREAD_SECS = 24, 3, 180.0, 30.0
LEARNING_RATE = 0.2
WHOLE = 12  # updates of a job with one worker
# Steps of each worker in an uneven run. The first task to leave differs: the chief, or another worker.
LENGTHS = {"packed": (8, 14, 24), "per_variable": (24, 8, 14)}
EVEN = (10, 10, 10)  # steps of each worker in an even run
# One layout with a velocity on the ps tasks, where the rule takes one.
OPTIMIZERS = {"packed": "momentum", "per_variable": "sgd"}
PS_THREADS = {"mail", "liveness"}  # threads of the live ps tasks, which may start them after a job has started


class ResourcePlace(NamedTuple):
    """The device of an op that holds a resource beyond one step."""

    name: str
    op_type: str
    device: str
    container: str


class WorkerGraph(NamedTuple):
    """The parts of a worker's graph that the checks need: its run, its device, and the places of its resources."""

    run_id: str
    worker_device: str
    places: list[ResourcePlace]


class EndedRun(NamedTuple):
    """A run that ended.

    Attributes:
        codes: Exit code of each worker.
        losses: Losses of each worker's steps.
        dropped: Number of each worker's gradients that ps 0 did not use.
        used: Number of each worker's gradients that updates used, as the summary says; None if the rule counts none.
        values: Final values that the chief reads.
        left_threads: Names of the threads that the run left behind.
        graphs: Graph of each worker, in the order in which the workers built them.
    """

    codes: list[int]
    losses: list[list[float]]
    dropped: list[int]
    used: list[int | None]
    values: dict[str, np.ndarray]
    left_threads: list[str]
    graphs: list[WorkerGraph]

    @property
    def steps(self) -> list[int]:
        """Number of steps of each worker."""
        return [len(losses) for losses in self.losses]

    @property
    def global_step(self) -> int:
        """The global step at the end."""
        return int(self.values["global_step"])


class Runs:
    """Runs each job once, on one cluster per shape, and keeps its result for all checks.

    A cluster on which a job failed is not used again, because an op of that job may still be waiting there.
    """

    def __init__(self) -> None:
        self._clusters: dict[tuple[int, int], InProcessCluster] = {}
        self._done: dict[tuple[tuple[int, int], TrainConfig], EndedRun | BaseException] = {}

    def result(self, shape: tuple[int, int], config: TrainConfig) -> EndedRun:
        """Returns the result of a job, running it on the first call; raises the exception of a worker that failed."""
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

    def run(self, shape: tuple[int, int], config: TrainConfig) -> EndedRun:
        """Runs a job, even if it ran before."""
        if shape not in self._clusters:
            self._clusters[shape] = InProcessCluster(*shape)
        cluster, graphs, threads = self._clusters[shape], [], set(threading.enumerate())
        calls = []
        try:
            with _noting_graphs(graphs):
                components = load_once(config, cluster.num_workers)
                calls += [cluster.start(config, index, components=components) for index in range(cluster.num_workers)]
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
        workers = outcomes[0].worker.summary.workers
        return EndedRun(
            codes=[outcome.code for outcome in outcomes],
            losses=[outcome.losses for outcome in outcomes],
            dropped=[sum(int(s[0]) < 0 for s in o.progress.staleness_values if len(s)) for o in outcomes],
            used=[workers[index].gradients_used for index in range(cluster.num_workers)],
            values=outcomes[0].worker.final_values,
            left_threads=_left_of(threads),
            graphs=graphs,
        )

    def close(self) -> None:
        """Ends the clusters."""
        for cluster in self._clusters.values():
            cluster.close()


def job(rule: str, layout: str, shape: tuple[int, int], model: str | None = None, **fields: Any) -> TrainConfig:
    """A job of a rule on the first `NUM_EXAMPLES` rows; the batches of one worker repeat after 6 steps.

    With three workers a batch is a worker's whole shard, so that the loss falls evenly.
    """
    promises = PROMISES[rule]
    lengths = fields.pop("lengths", ())
    dataset = [f"num_examples={NUM_EXAMPLES}"] + ([f"lengths={','.join(map(str, lengths))}"] if lengths else [])
    if lengths:
        fields |= {"max_steps": None, "num_epochs": 1000}
    fields = {
        "learning_rate": LEARNING_RATE,
        "update_option": promises.alone if shape == ALONE else promises.options,
        "max_steps": promises.max_steps,
        "batch_size": 4 if shape == ALONE else NUM_EXAMPLES // 3,
        "seed": SEED,
        "stall_timeout_secs": RUN_SECS - 10,
        # As many steps in a call as the worker finds useful, in one of the layouts.
        "steps_per_call": 0 if layout == "packed" else 1,
    } | fields
    return config_of(model or promises.model, "Rows", dataset, update=rule, layout=layout, **fields)


def limited(rule: str) -> TrainConfig:
    """A job of three workers that ends at its `max_steps`; its parameters count each worker's gradients."""
    return job(rule, "packed", THREE, model_of_credits(rule))


def uneven(rule: str, layout: str, model: str | None = None) -> TrainConfig:
    """A job of three workers that ends when each worker has used up its data."""
    return job(rule, layout, THREE, model or model_of_uneven(rule), lengths=LENGTHS[layout])


def even(rule: str, layout: str, **fields: Any) -> TrainConfig:
    """A job of three workers that make the same number of steps, so that no worker's examples can be left out.

    With `max_steps` one fast worker may make nearly all steps, and then the loss of the others' examples hardly falls.
    """
    return job(rule, layout, THREE, lengths=EVEN, **fields)


def lone(rule: str, layout: str, **fields: Any) -> TrainConfig:
    """A job of one worker, with a velocity in one of the layouts."""
    return job(rule, layout, ALONE, **({"max_steps": WHOLE, "optimizer": optimizer_of(rule, layout)} | fields))


def model_of_credits(rule: str) -> str:
    """A model whose parameters count each worker's gradients, with a table where the rule trains tables."""
    return "CreditRows" if PROMISES[rule].holds_tables else "Credits"


def model_of_uneven(rule: str) -> str:
    """The model of an uneven job, with a table where the rule trains tables."""
    return "Embedded" if PROMISES[rule].holds_tables else PROMISES[rule].model


def optimizer_of(rule: str, layout: str) -> str:
    """The optimizer of a job with one worker."""
    return OPTIMIZERS[layout] if PROMISES[rule].takes_momentum else "sgd"


def lone_batches(num_steps: int) -> list[dict[str, np.ndarray]]:
    """Batches that the worker reads in a `job` with one worker."""
    arrays = all_examples()
    indices = [np.arange(step * 4, (step + 1) * 4) % NUM_EXAMPLES for step in range(num_steps)]
    return [{name: array[picked] for name, array in arrays.items()} for picked in indices]


def all_examples() -> dict[str, np.ndarray]:
    """The data of a `job`; worker w of n reads the examples w, w + n, …"""
    return small.Rows(small.RowOptions(num_examples=NUM_EXAMPLES)).arrays


def loss_of(config: TrainConfig, values: Mapping[str, np.ndarray]) -> float:
    """The mean loss of these values over all rows of the job's data."""
    config = dataclasses.replace(config, dataset_option=(*config.dataset_option, "has_test=true"))
    return evaluate(components_lib.load(config, 3), values)["loss"]


@contextmanager
def _noting_graphs(graphs: list[WorkerGraph]) -> Iterator[None]:
    """Adds what is kept of each worker's graph to `graphs` when the worker builds it."""
    build = graph_lib.build

    def noting(components: Any, cluster: Any, config: Any, run_id: str, **options: Any) -> TrainGraph:
        train = build(components, cluster, config, run_id, **options)
        graphs.append(WorkerGraph(run_id, cluster.device, _places(train.graph)))
        return train

    graph_lib.build = noting
    try:
        yield
    finally:
        graph_lib.build = build


def _places(graph: tf.Graph) -> list[ResourcePlace]:
    """The places of all ops with a container: variables, queues, accumulators, staging areas and others."""
    return [
        ResourcePlace(op.name, op.type, op.device, op.get_attr("container").decode())
        for op in graph.get_operations()
        if "container" in op.node_def.attr
    ]


def _left_of(before: set[threading.Thread]) -> list[str]:
    """Names of the threads that started after `before` was taken and that do not end."""

    def left() -> list[str]:
        return [t.name for t in threading.enumerate() if t not in before and t.name not in PS_THREADS]

    try:
        wait_until(lambda: not left(), THREAD_SECS)
    except AssertionError:
        return left()
    return []

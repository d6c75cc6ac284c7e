"""Gradient groups on two ps tasks, which workers visit one after the other, and which may kill workers between."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.testing.cluster import DEADLINE_SECS, InProcessCluster, wait_until

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from ps_trainer.runtime.server import session_config
from ps_trainer.store.pieces import Piece
from ps_trainer.updates.exclusive import initializers
from ps_trainer.updates.gradient_group import GradientGroup
from ps_trainer.updates.group_policy import GroupPolicy
from ps_trainer.updates.live_workers import Membership


class TwoPs:
    """The part of a store that groups need: one vector of two entries on each ps task."""

    def __init__(self):
        self.clocks, self.pieces, self.worker_device = [], [], "/job:worker/task:0"
        for ps in (0, 1):
            with tf.device(self.ps_device(ps)):
                self.clocks.append(tf.get_variable(f"clock_{ps}", [], tf.int64, tf.zeros_initializer()))
                vector = tf.get_variable(f"vector_{ps}", [2], initializer=tf.zeros_initializer())
                self.pieces.append(Piece(vector, ps, (), None, True, False))

    def ps_device(self, ps: int) -> str:
        return f"/job:ps/task:{ps}"


class Visits:
    """The visits of one process of each worker, in the default graph.

    Args:
        num_workers: Number of workers.
        required: Number of gradients per group.
        **grouping: Options of the groups; the default groups take all workers' fresh gradients, and workers wait.
    """

    def __init__(self, num_workers: int, required: int, **grouping: bool):
        defaults = {"counts_workers": True, "is_fresh_only": True, "waits": True}
        with tf.variable_scope("", use_resource=True):
            store = TwoPs()
            self.who = [tf.placeholder(tf.float32, [2]) for _ in (0, 1)]
            self.notice = tf.placeholder(tf.int64, [5])
            self.membership = tf.placeholder(tf.int64, [3])
            rule = GroupPolicy(required=lambda clock: tf.constant(required, tf.int64), **(defaults | grouping))

            def update(ps: int, averages: Any) -> tf.Operation:
                ((piece, average),) = averages
                with tf.control_dependencies([piece.variable.assign_add(average, read_value=False)]):
                    called = _call(lambda: None)
                with tf.control_dependencies([called]):
                    return store.clocks[ps].assign_add(1, read_value=False)

            groups = [
                GradientGroup(
                    store, ps, [store.pieces[ps]], num_workers, rule, max_steps=None, update=update, name="groups"
                )
                for ps in (0, 1)
            ]
            workers = range(num_workers)
            self.pushes = [
                [groups[ps].push(worker, [self.who[ps]], [self.notice] * ps) for worker in workers] for ps in (0, 1)
            ]
            self.member_changes = [groups[ps].change_member(self.membership, [self.notice] * ps) for ps in (0, 1)]
            self.resume_version = tf.placeholder(tf.int64, [])
            waits_for = self.pushes[0][0]._replace(resume_version=self.resume_version)
            waited_for = [rule.waits, rule.is_fresh_only]
            self.waits = [[groups[ps].wait(worker, waits_for) for worker in workers if waited_for[ps]] for ps in (0, 1)]
            self.values = [[piece.variable.read_value(), store.clocks[piece.ps].read_value()] for piece in store.pieces]
            self.counts = [[group.pushed, group.used] for group in groups]
            self.init_op = tf.group(tf.global_variables_initializer(), *initializers())


@functools.cache
def _built(process: int, *args: Any, grouping: frozenset[tuple[str, bool]]) -> tuple[tf.GraphDef, Visits]:
    """The graph of `Visits`, which takes seconds to build; a process imports a copy, with a ticket of its number."""
    with tf.Graph().as_default() as graph:
        visits = Visits(*args, **dict(grouping))
    return graph.as_graph_def(), visits


class Processes(Visits):
    """One process of each worker: its graph and session, on the cluster's first worker.

    Args:
        cluster: Cluster with two ps tasks.
        container: Container on the ps tasks; the same for all processes of a test.
        num_workers: Number of workers.
        required: Number of gradients per group.
        in_update: Function that the ps task calls in the middle of each update.
        number: Number of the process of each worker: 0 for the first one.
        **grouping: As for `Visits`.
    """

    def __init__(
        self,
        cluster: InProcessCluster,
        container: str,
        num_workers: int,
        required: int,
        in_update: Callable[[], None],
        number: int,
        **grouping: bool,
    ):
        built, visits = _built(number, num_workers, required, grouping=frozenset(grouping.items()))
        graph_def = tf.GraphDef()
        graph_def.CopyFrom(built)
        with tf.Graph().as_default() as graph:
            with tf.name_scope("in_update"):
                token = _call(in_update).op.get_attr("token")
            for node in [*graph_def.node, *(n for function in graph_def.library.function for n in function.node_def)]:
                if "container" in node.attr:
                    node.attr["container"].s = container.encode()
                if node.op == "PyFunc":
                    node.attr["token"].s = token
            tf.import_graph_def(graph_def, name="")
        for name, parts in vars(visits).items():
            setattr(self, name, tf.nest.map_structure(lambda part: graph.as_graph_element(part.name), parts))
        task = cluster.task("worker", 0)
        self.session = tf.Session(f"grpc://{task.own_address}", graph=graph, config=session_config(task.device))


def _call(function: Callable[[], None]) -> tf.Tensor:
    """The op that calls `function`."""

    def call() -> np.int32:
        function()
        return np.int32(0)

    return tf.numpy_function(call, [], tf.int32)


class Groups:
    """The groups, with two processes of each worker: the first one, and the one that comes after it.

    Args:
        cluster: Cluster with two ps tasks.
        container: Container on the ps tasks.
        num_workers: Number of workers; all have joined.
        required: Number of gradients per group.
        **grouping: Options of the groups, as for `Processes`.
    """

    def __init__(
        self, cluster: InProcessCluster, container: str, num_workers: int, required: int | None = None, **grouping: bool
    ):
        self.may_update = threading.Event()
        self.may_update.set()
        self.is_updating = threading.Event()
        required = num_workers if required is None else required
        self._processes = [
            Processes(cluster, container, num_workers, required, self._in_update, number, **grouping)
            for number in (0, 1)
        ]
        self._processes[0].session.run(self._processes[0].init_op)
        for worker in range(num_workers):
            self.join(worker, process=0)

    def close(self) -> None:
        """Ends the sessions."""
        self.may_update.set()
        for process in self._processes:
            process.session.close()

    def push(
        self, ps: int, worker: int, notice: Sequence[int] | None = None, *, process: int = 0, cancel_after_ms: int = 0
    ) -> tuple[int, np.ndarray]:
        """Adds worker + 1 to each entry; returns (whether accepted, notice)."""
        one = self._processes[process]
        feed = {one.who[ps]: [worker + 1.0] * 2}
        return self._visit(one, one.pushes[ps][worker], ps, notice, feed, cancel_after_ms)

    def join(self, worker: int, process: int = 1) -> np.ndarray:
        """Joins on both ps tasks; returns the notice of ps 0."""
        one = self._processes[process]
        feed = {one.membership: Membership(worker, process + 1, joins=1)}
        _, notice = self._visit(one, one.member_changes[0], 0, None, feed)
        self._visit(one, one.member_changes[1], 1, notice, feed)
        return notice

    def leave(
        self, ps: int, worker: int, notice: Sequence[int] | None = None, *, process: int = 1
    ) -> tuple[int, np.ndarray]:
        """Removes that process of a worker, as the chief does when the process has ended."""
        one = self._processes[0]
        feed = {one.membership: Membership(worker, process + 1, joins=0)}
        return self._visit(one, one.member_changes[ps], ps, notice, feed)

    def wait(self, ps: int, worker: int, notice: Sequence[int], process: int = 0) -> threading.Thread:
        """Waits in a thread, as a worker does after a visit with that notice."""
        one = self._processes[process]
        thread = threading.Thread(
            target=lambda: one.session.run(one.waits[ps][worker], {one.resume_version: notice[4]}), daemon=True
        )
        thread.start()
        return thread

    def values(self, ps: int) -> tuple[float, int]:
        """One entry of the vector, and the clock."""
        vector, clock = self._processes[0].session.run(self._processes[0].values[ps])
        return vector[0], clock

    def counts(self, ps: int) -> tuple[list[int], list[int]]:
        """Number of gradients that each worker pushed, and number of them that were used."""
        pushed, used = self._processes[0].session.run(self._processes[0].counts[ps])
        return pushed.tolist(), used.tolist()

    def _in_update(self) -> None:
        self.is_updating.set()
        assert self.may_update.wait(DEADLINE_SECS)

    def _visit(
        self,
        process: Processes,
        outcome: Any,
        ps: int,
        notice: Sequence[int] | None,
        feed: dict[tf.Tensor, Any],
        cancel_after_ms: int = 0,
    ) -> tuple[int, np.ndarray]:
        feed = feed | ({process.notice: notice} if ps else {})
        options = tf.RunOptions(timeout_in_ms=cancel_after_ms)
        return process.session.run([outcome.is_accepted, outcome.notice], feed, options=options)


def ends(thread: threading.Thread) -> None:
    """Waits until a thread has ended."""
    wait_until(lambda: not thread.is_alive())

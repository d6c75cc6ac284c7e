"""Runs of averaging rules whose parameters tell which gradients are in which update.

Each step's gradient is 1 in one entry of every variable, and 0 elsewhere; each step has another entry. Each update t
has another learning rate, 7^−t. So at the end an entry is −7^−t / k if its gradient was one of k in update t, and 0 if
the rule dropped it. The workers' steps run on real servers in the order of the test. A test may kill a worker in a
step: the step is cancelled, as at the end of its connection, and the worker may come back.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from models import layers
from models.layers import ModelOutput
from ps_trainer.runtime.server import session_config
from ps_trainer.store import extents
from ps_trainer.training import components as components_lib
from ps_trainer.training.train_graph import TrainGraph
from ps_trainer.updates import gradient_collector
from ps_trainer.updates.apply import receive
from ps_trainer.updates.gradient_group import GradientGroup
from ps_trainer.updates.group_state import GroupState, GroupVariables
from ps_trainer.updates.live_workers import Membership
from tests.testing.cluster import DEADLINE_SECS, InProcessCluster, config_of, wait_until
from tests.testing.marked_process import MarkedProcess, Push
from tests.testing.script import _read_of

NUM_WORKERS = 3
NUM_CODES = 90  # limit on the steps of all workers together
_BASE = 7.0


class Marks:
    """Two vectors; the gradient of each has a 1 at the index that is the step's code."""

    def build(self, batch: dict[str, tf.Tensor], training: bool) -> ModelOutput:
        code = MarkedRun.code_of(batch["worker"])
        marked = tf.one_hot(code, NUM_CODES)
        zeros = tf.zeros_initializer()
        loss = sum(tf.reduce_sum(marked * tf.get_variable(name, [NUM_CODES], initializer=zeros)) for name in "ab")
        return ModelOutput(loss, tf.reshape(loss, [1]), {})


class MarksInTables:
    """`Marks` with two rows of a table, one in each half of it."""

    def build(self, batch: dict[str, tf.Tensor], training: bool) -> ModelOutput:
        code = MarkedRun.code_of(batch["worker"])
        marked = tf.one_hot(code, NUM_CODES)
        zeros = tf.zeros_initializer()
        loss = sum(tf.reduce_sum(marked * tf.get_variable(name, [NUM_CODES], initializer=zeros)) for name in "ab")
        rows = layers.embedding("table", 2 * NUM_CODES, 1, tf.stack([code, NUM_CODES + code])[None])
        loss += tf.reduce_sum(rows)
        return ModelOutput(loss, tf.reshape(loss, [1]), {})


class RuleCounts(NamedTuple):
    """The rule's counts on a ps task, by worker."""

    pushed: np.ndarray
    accepted: np.ndarray
    members: np.ndarray

    @property
    def used(self) -> np.ndarray:
        return self.accepted - self.members


class MarkedRun:
    """A run of three workers on a cluster; a test makes its steps one by one or several at once.

    Args:
        cluster: Cluster that runs the workers.
        name: Name of the container on the ps tasks.
        with_tables: Whether the model has a table.
        spans_hosts: Whether the tasks count as those of several hosts.
        **fields: Fields of the run's configuration.

    Attributes:
        pushes: Pushes so far.
        processes: Process of each worker that has not left.
        groups: Gradient groups of the ps tasks: one of each, or one of each part of its pieces. ps 0 has the first.
    """

    groups: list[GradientGroup]
    active: MarkedRun | None = None

    def __init__(
        self, cluster: InProcessCluster, name: str, *, with_tables: bool, spans_hosts: bool = False, **fields: Any
    ):
        self.cluster, self.name, self.spans_hosts = cluster, name, spans_hosts
        model = "MarksInTables" if with_tables else "Marks"
        self.config = config_of(
            f"tests.testing.marked_gradients:{model}", "Rows", batch_size=1, max_steps=1000, learning_rate=1.0,
            schedule="exponential", schedule_option=("decay_steps=1", f"decay_rate={1 / _BASE}"), **fields,
        )  # fmt: skip
        self.components = components_lib.load(self.config, NUM_WORKERS)
        self.pushes: list[Push] = []
        self._lost: set[int] = set()  # killed workers that nobody has noticed, and that are not back
        self._all: list[MarkedProcess] = []
        self._num_codes = 0
        self._lock = threading.Lock()
        self._held: int | None = None
        self._may_go_on = threading.Event()
        self.processes: dict[int, MarkedProcess] = {}
        self._chief = chief = MarkedProcess(self, 0)
        chief.session.run(chief.train.init_state_op)
        values = chief.train.model_trace.initial_values()
        chief.train.state.initialize(chief.session, {name: np.zeros_like(value) for name, value in values.items()})
        chief.session.run(chief.train.step.prepare_op)
        self.processes = {0: chief} | {worker: MarkedProcess(self, worker) for worker in range(1, NUM_WORKERS)}
        for process in self.processes.values():
            process.join()
        for process in self.processes.values():
            process.wait()
        self._open_reading(chief.train)

    @staticmethod
    def code_of(worker_B: tf.Tensor) -> tf.Tensor:
        """A code for the step, different for each step; int64 scalar."""
        run = MarkedRun.active
        if run is None:
            return tf.constant(0, tf.int64)
        code = tf.numpy_function(run._next_code, [worker_B[0]], tf.int64)
        return tf.ensure_shape(code, [])

    def step(self, workers: Sequence[int]) -> None:
        """Makes one step of each given worker at the same time; returns when each step is over or waits for others."""
        pushed = [self.counts(group).pushed for group in range(len(self.groups))]
        for worker in workers:
            self.processes[worker].step(self)
        pushing = [worker for worker in workers if self.processes[worker].is_pushing]

        def has_arrived(worker: int) -> bool:
            process = self.processes[worker]
            arrived = all(self.counts(group).pushed[worker] > before[worker] for group, before in enumerate(pushed))
            return not process.is_busy or arrived

        wait_until(lambda: all(has_arrived(worker) for worker in pushing))
        self.settle()

    def settle(self) -> None:
        """Returns when only workers in an open group are busy and all others have gone on."""

        def is_settled() -> bool:
            members = self.counts(0).members
            if all(not p.is_busy or members[w] > 0 for w, p in self.processes.items()):
                return True
            for worker in filter(self._holds_up_groups, list(self._lost)):
                self.notice(worker)  # the others wait until the chief does so
            return False

        wait_until(is_settled)
        errors = [process.error for process in self.processes.values() if process.error is not None]
        if errors:
            raise AssertionError("a step failed") from errors[0]

    def kill(self, worker: int, *, is_noticed: bool, is_late: bool, comes_back: bool) -> None:
        """Kills a worker in its next push; of several groups only the first one has received the push.

        Args:
            worker: Worker that is not busy.
            is_noticed: Whether the chief takes the worker out of the live set.
            is_late: Whether the other groups receive the rest of the push when the worker is back; otherwise never.
            comes_back: Whether a new process of the worker starts.
        """
        process = self.processes[worker]
        self._held = worker
        self._may_go_on.clear()
        process.step(self, timeout_in_ms=1000)
        process.wait()
        del self.processes[worker]
        self._held = None
        if not is_late:
            self._may_go_on.set()
        if is_noticed:
            self.notice(worker)
        if comes_back:
            self.processes[worker] = MarkedProcess(self, worker)
            self.processes[worker].join()
            wait_until(lambda: not self.processes[worker].is_busy or self.counts(0).members[worker] > 0)
        elif not is_noticed:
            self._lost.add(worker)
        self._may_go_on.set()
        self.settle()

    def leave(self, worker: int) -> None:
        """Ends a worker in order, as when it has no data left."""
        process = self.processes.pop(worker)
        process.leave()
        if worker == 0:
            self.notice(worker)
        self.settle()

    def notice(self, worker: int) -> None:
        """Takes a worker out of the live set, as the chief does when it notices a loss."""
        self._lost.discard(worker)
        ops = self._chief.train.step.service._ops
        left = Membership(worker, self.num_processes(worker), joins=0)
        self._chief.session.run(ops.leave, {ops.membership: left})

    def num_processes(self, worker: int) -> int:
        """Number of processes of a worker so far."""
        return sum(process.worker == worker for process in self._all)

    def note_process(self, process: MarkedProcess) -> None:
        """Keeps a process, whose session is closed with the run."""
        self._all.append(process)

    def counts(self, group: int) -> RuleCounts:
        """The rule's counts in a group."""
        return RuleCounts(*self._reading.run(self._counts[group]))

    def clock(self, ps: int) -> int:
        """Number of updates on that ps task."""
        return int(self._reading.run(self._clocks[ps]))

    def marks(self) -> list[dict[str, dict[int, tuple[int, int]]]]:
        """For each group and each part of a variable in it: code -> (update, number of gradients in it)."""
        store = self._chief.train.store
        values = self._reading.run(self._values)
        group_of = {piece.variable.op.name: n for n, group in enumerate(self.groups) for piece in group.pieces}
        numbers = [group_of[piece.variable.op.name] for piece in store.pieces]
        places = [np.full(value.shape, number) for number, value in zip(numbers, values, strict=True)]
        parts = [piece.extents for piece in store.pieces]
        values = extents.from_pieces(store.specs, list(zip(parts, values, strict=True)))
        places = extents.from_pieces(store.specs, list(zip(parts, places, strict=True)))
        found: list[dict] = [{} for _ in self.groups]
        for name, value in values.items():
            for index, (entry, number) in enumerate(zip(value.ravel(), places[name].ravel(), strict=True)):
                part = found[int(number)].setdefault(f"{name}/{index // NUM_CODES}", {})
                if entry:
                    part[index % NUM_CODES] = _decode(-float(entry))
        return found

    def close(self) -> None:
        """Frees the run's resources on the ps tasks."""
        self._may_go_on.set()
        self._chief.session.run(self._chief.train.free_op)
        for process in self._all:
            process.session.close()
        self._reading.close()

    def _holds_up_groups(self, worker: int) -> bool:
        """Whether the first group is closed with the gradient of a lost worker, for which other groups wait."""
        first, *others = [self.counts(group) for group in range(len(self.groups))]
        return not first.members[worker] and any(first.accepted[worker] > one.accepted[worker] for one in others)

    def _next_code(self, worker: np.int64) -> np.int64:
        with self._lock:
            code = self._num_codes
            self._num_codes += 1
        assert code < NUM_CODES
        self.processes[int(worker)].codes.append(code)
        return np.int64(code)

    def _hold(self, worker: np.int64) -> np.int32:
        if self._held == worker:
            self._may_go_on.wait(DEADLINE_SECS)
        return np.int32(0)

    def _open_reading(self, train: TrainGraph) -> None:
        """A session that reads the variables on the ps tasks."""
        with tf.Graph().as_default() as graph:
            self._counts = []
            for group in self.groups:
                variables = group.state[: len(GroupVariables._fields)]
                state = GroupState(*(row for variable in variables for row in tf.unstack(_read_of(variable))))
                self._counts.append([getattr(state, field) for field in RuleCounts._fields])
            self._clocks = [_read_of(clock) for clock in train.store.clocks]
            self._values = [_read_of(piece.variable) for piece in train.store.pieces]
        task = self.cluster.task("worker", 0)
        config = session_config(task.device, ["/job:ps"])
        self._reading = tf.Session(f"grpc://{task.own_address}", graph=graph, config=config)


@contextmanager
def marked_run(cluster: InProcessCluster, name: str, **fields: Any) -> Iterator[MarkedRun]:
    """A `MarkedRun` that can hold back pushes to all groups but the first; only one at a time."""
    push = gradient_collector.GradientCollector.push

    def held_push(
        collector: gradient_collector.GradientCollector, gradients: Sequence[Any]
    ) -> gradient_collector.PushOps:
        MarkedRun.active.groups = collector._groups
        return push(collector, _held(gradients, collector._groups[0], collector._context.worker_index))

    assert MarkedRun.active is None
    run = MarkedRun.active = MarkedRun.__new__(MarkedRun)
    gradient_collector.GradientCollector.push = held_push
    try:
        run.__init__(cluster, name, **fields)
        yield run
        run.close()
    finally:
        gradient_collector.GradientCollector.push = push
        MarkedRun.active = None


def _held(gradients: Sequence[Any], first: GradientGroup, worker: int) -> list[Any]:
    """The gradients, those of other groups than the first after all of them have arrived and none is held back."""
    early = {piece.variable.op.name for piece in first.pieces}
    is_late = [gradient.piece.variable.op.name not in early for gradient in gradients]
    late = list(itertools.compress(gradients, is_late))
    if not late:
        return list(gradients)
    with tf.device(late[0].piece.variable.device):
        came = [receive(gradient.value) for gradient in late]
        with tf.control_dependencies([getattr(value, "values", value) for value in came]):
            # One op holds back all gradients, because the servers of a process share few threads.
            held = tf.numpy_function(MarkedRun.active._hold, [tf.constant(worker, tf.int64)], tf.int32)
        with tf.control_dependencies([held]):
            came = iter([receive(value) for value in came])
    return [g._replace(value=next(came)) if late else g for g, late in zip(gradients, is_late, strict=True)]


def _decode(entry: float) -> tuple[int, int]:
    """The pair (t, k) of a value 7^-t / k."""
    for update in range(40):
        size = _BASE**-update / entry
        if 0.99 < size < 6.99:
            assert abs(size - round(size)) < 1e-3 * size, f"{entry} is not an average of gradients"
            return update, round(size)
    raise AssertionError(f"{entry} belongs to no update")

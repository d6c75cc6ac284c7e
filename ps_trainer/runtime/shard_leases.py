"""Leases of the shards of the data: ps task 0 hands them out, and the workers ask for them (`--sharding dynamic`).

A worker asks for a shard and holds it until all its batches are counted as trained on. When a worker is lost, the
batches of its shards that are not counted go to other workers. A worker that counted as lost because it was silent may
still run. So each lease names the *generation* of the worker's leases, which changes when its shards are given back.
After a pause the worker asks for the newest generation, and drops leases of an older one.

Each push of a worker also adds to the counts (`training/graph_parts/batch_counter.py`), which lie beside the
parameters. So both are lost, saved and restored together, and a restarted ps task knows from the counts alone which
shards are left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.data.pipeline.shard_plan import Coverage, Lease, ShardPlan
from ps_trainer.runtime.run_record import LeaseAnswer, LeaseKind, LeaseMessage, LeaseRefusal, Leases, RunRecord

COUNTS = "data/seen"
RECYCLED = "data/recycled"
RETIRED = "data/retired"


class LeaseBook:
    """The shards that are left, and those that each worker holds.

    Args:
        plan: Plan of the run.
        read: Function that gives the counts, int [rows, num_shards * max_batches].
        begin_epoch: Function that sets the row of a new epoch to zeros; called before its first shard is handed out.
        epoch: Newest epoch that has begun.
        may_wait: Whether a worker waits for the shards that others hold when no other shard is left.
    """

    def __init__(
        self,
        plan: ShardPlan,
        *,
        read: Callable[[], np.ndarray],
        begin_epoch: Callable[[int], None],
        epoch: int = 0,
        may_wait: bool = True,
    ):
        self._plan = plan
        self._read = read
        self._begin_epoch = begin_epoch
        self._epoch = epoch
        self._may_wait = may_wait
        self._held: dict[int, list[tuple[int, int]]] = {}
        self._idle: set[int] = set()
        self._open: list[tuple[int, int]] = []
        # After a restart of ps 0, any epoch that is still counted may have shards left. `take` skips the finished ones.
        for begun in range(max(0, epoch + 1 - plan.rows), epoch + 1):
            self._open += [(begun, shard) for shard in plan.order(begun)]

    def take(self, worker: int, *, is_idle: bool = False) -> Lease | LeaseRefusal:
        """Returns the next shard for a worker, or the reason why there is none.

        Args:
            worker: Index of the worker.
            is_idle: Whether it has trained on everything that it was given. If it still holds shards, it has not pushed
                their last batches. Some rules push several batches at once, so it needs more batches to push these.
        """
        seen = self._read()
        (self._idle.add if is_idle else self._idle.discard)(worker)

        def first_unseen(place: tuple[int, int]) -> int | None:
            epoch, shard = place
            return self._plan.first_unseen(shard, seen[epoch % self._plan.rows])

        # No worker reports that it has finished a shard: the counts, which are saved with the parameters, show it.
        self._held = {w: [p for p in places if first_unseen(p) is not None] for w, places in self._held.items()}
        self._open = [place for place in self._open if first_unseen(place) is not None]
        if not self._open and (self._plan.num_epochs is None or self._epoch + 1 < self._plan.num_epochs):
            oldest = min((epoch for places in self._held.values() for epoch, _ in places), default=self._epoch)
            if oldest + self._plan.rows <= self._epoch + 1:
                return LeaseRefusal.WAIT  # the next epoch is counted in the row of the oldest one
            self._epoch += 1
            self._begin_epoch(self._epoch)
            self._open = [(self._epoch, shard) for shard in self._plan.order(self._epoch)]
            seen = self._read()
        if self._open:
            place = self._open.pop(0)
            self._held.setdefault(worker, []).append(place)
            return Lease(*place, first_unseen(place) or 0)  # it is not None: `_open` has no finished shard
        others = {holder for holder, places in self._held.items() if places and holder != worker}
        # If all holders are idle, their last batches are in no push yet, and each would wait for the others without
        # end.
        if others and self._may_wait and not (is_idle and others <= self._idle):
            return LeaseRefusal.WAIT
        if is_idle:
            self.give_back(worker)
        return LeaseRefusal.END

    def give_back(self, worker: int) -> None:
        """Frees the shards of a worker that is gone, or has been restarted, for the next worker that asks."""
        self._idle.discard(worker)
        self._open = self._held.pop(worker, []) + self._open


class LeaseServer:
    """Answers the workers of a job, for one run after the other; on ps task 0.

    Args:
        target: Target of this task's own server.
        config: Configuration of a session that has this task's devices only.
        read_run: Function that reads the run record; None where there is none.
        write: Function that publishes the answers.
    """

    def __init__(
        self,
        target: str,
        config: tf.ConfigProto,
        *,
        read_run: Callable[[], RunRecord | None],
        write: Callable[[Leases], None],
    ):
        self._target = target
        self._config = config
        self._read_run = read_run
        self._write = write
        self._answers: dict[int, dict[LeaseKind, LeaseAnswer]] = {}
        self._generations: Counter[int] = Counter()
        self._book: LeaseBook | None = None
        self._counts: LeaseCounts | None = None

    def answer(self, question: LeaseMessage) -> None:
        """Answers a worker's question; a question that is repeated gets the same answer.

        Logs a warning, and gives no answer, where the run record is not valid or does not fit the counts. The worker
        asks again then.
        """
        worker, kind = question.worker, question.kind
        try:
            if self._book is None:
                self._book = self._open(question.run_id)
            if self._book is None:
                return
            answers = self._answers.setdefault(worker, {})
            if kind not in answers or answers[kind].request != question.request:
                lease = self._lease(self._book, question) if kind is LeaseKind.SHARD else None
                answers[kind] = LeaseAnswer(request=question.request, lease=lease, generation=self._generations[worker])
            # Also for a repeated question, because the first write of its answer may have failed.
            self._write(self._answers)
        except tf.errors.OpError as error:
            logging.warning("worker %d was given no shard: %s", worker, error.message)
        except _OtherCountsError as error:
            logging.warning("worker %d was given no shard: %s", worker, error)

    def give_back(self, worker: int) -> None:
        """Frees the shards of a worker, and begins a new generation of its leases."""
        if self._book is not None:
            self._generations[worker] += 1
            self._book.give_back(worker)

    def close(self) -> None:
        """Ends a run."""
        if self._counts is not None:
            self._counts.close()
        self._book, self._counts, self._answers = None, None, {}

    def _lease(self, book: LeaseBook, question: LeaseMessage) -> Lease | LeaseRefusal:
        if question.is_first:  # the worker has dropped what it was given before
            self.give_back(question.worker)
        return book.take(question.worker, is_idle=question.is_idle)

    def _open(self, run_id: str) -> LeaseBook | None:
        """Takes up a run; None if the chief has not set it up yet."""
        run = self._read_run()
        if run is None or run.run_id != run_id or run.shards is None:
            return None
        plan = run.shards.plan
        counts = LeaseCounts(self._target, self._config, run_id, plan)
        try:
            epoch = counts.newest_epoch()
        except BaseException:
            # Each later question tries again with a new session, so this session must not stay open.
            counts.close()
            raise
        self._counts = counts
        return LeaseBook(
            plan,
            read=counts.read,
            begin_epoch=counts.begin_epoch,
            epoch=epoch,
            may_wait=run.shards.may_wait,
        )


class _OtherCountsError(Exception):
    """The counts on this ps task belong to another plan than the run's."""


class LeaseCounts:
    """The counts of a run on this ps task, which the workers' graphs create.

    Args:
        target: Target of this task's own server.
        config: Configuration of a session that has this task's devices only.
        run_id: Name of the run, and of the container that holds its variables.
        plan: Plan of the run.
    """

    def __init__(self, target: str, config: tf.ConfigProto, run_id: str, plan: ShardPlan):
        self._plan = plan
        graph = tf.Graph()
        with graph.as_default():
            # By name: the workers' graphs create these variables, and the chief initialises them.
            seen, recycled, retired = (
                tf.raw_ops.VarHandleOp(dtype=dtype, shape=shape, container=run_id, shared_name=name)
                for name, shape, dtype in specs(plan)
            )
            self._read_seen = tf.raw_ops.ReadVariableOp(resource=seen, dtype=tf.int8)
            self._read_recycled = tf.raw_ops.ReadVariableOp(resource=recycled, dtype=tf.int64)
            self._row = tf.placeholder(tf.int64, [])
            self._add = tf.placeholder(tf.int64, [4])
            row = self._row[tf.newaxis, tf.newaxis]
            zeros = tf.zeros([1, plan.num_shards * plan.max_batches], tf.int8)
            self._recycle = [
                tf.raw_ops.ResourceScatterNdUpdate(ref=seen, indices=row, updates=zeros),
                tf.raw_ops.ResourceScatterNdAdd(ref=recycled, indices=row, updates=tf.ones([1], tf.int64)),
                tf.raw_ops.AssignAddVariableOp(resource=retired, value=self._add),
            ]
        self._session = tf.Session(target, graph=graph, config=config)

    def read(self) -> np.ndarray:
        """Returns the counts, int [rows, num_shards * max_batches]."""
        return self._session.run(self._read_seen)

    def begin_epoch(self, epoch: int) -> None:
        """Sets the row of a new epoch to zeros, and adds the older epoch that was counted there to the sums."""
        if epoch >= self._plan.rows:
            add = self._plan.coverage(self.read()[epoch % self._plan.rows])
            self._session.run(self._recycle, {self._row: epoch % self._plan.rows, self._add: add})

    def newest_epoch(self) -> int:
        """Returns the newest epoch of which a batch was trained on.

        Raises:
            _OtherCountsError: The plan does not fit the counts.
        """
        seen, recycled = self._session.run([self._read_seen, self._read_recycled])
        planned = specs(self._plan)[0][1]
        if list(seen.shape) != planned:
            raise _OtherCountsError(f"the counts of {COUNTS} are {list(seen.shape)}, and the plan's {planned}")
        return newest_epoch(seen, recycled)

    def close(self) -> None:
        """Closes the session."""
        self._session.close()


def specs(plan: ShardPlan) -> list[tuple[str, list[int], tf.DType]]:
    """Returns the name, shape and type of the variables that hold the counts; all are zero at the start.

    1. How often each batch was trained on, by epoch (row) and shard.
    2. How often each row has been reused for a later epoch.
    3. Sums of `ShardPlan.coverage` over the epochs whose rows were reused.
    """
    return [
        (COUNTS, [plan.rows, plan.num_shards * plan.max_batches], tf.int8),
        (RECYCLED, [plan.rows], tf.int64),
        (RETIRED, [4], tf.int64),
    ]


def epochs_of(recycled: np.ndarray) -> np.ndarray:
    """Returns the epoch that is counted in each row."""
    return np.arange(len(recycled)) + len(recycled) * recycled


def newest_epoch(seen: np.ndarray, recycled: np.ndarray) -> int:
    """Returns the newest epoch of which a batch was trained on; 0 before the first."""
    begun = epochs_of(recycled)[np.logical_or(np.any(seen != 0, axis=1), recycled > 0)]
    return int(begun.max(initial=0))


def coverage(plan: ShardPlan, values: Mapping[str, np.ndarray]) -> dict[str, Coverage]:
    """Returns the number of times that examples were seen, by epoch; old epochs are summed into one range.

    Args:
        plan: Plan of the run.
        values: Values of the variables, by name.
    """
    seen, recycled = values[COUNTS], values[RECYCLED]
    last = newest_epoch(seen, recycled)
    found: dict[str, Coverage] = {}
    first = int(max(0, last + 1 - plan.rows))
    if first:
        found[f"0-{first - 1}"] = Coverage(*map(int, values[RETIRED]))
    return found | {str(epoch): plan.coverage(seen[epoch % plan.rows]) for epoch in range(first, last + 1)}

"""Who trains on which shard of the data: kept by ps task 0, asked by the workers (`--sharding dynamic`).

A worker asks for a shard and holds it until all its batches are counted as trained on. What a worker holds that is
gone goes back, from the first batch on that is not counted. A worker that was silent for long may be there still: with
each lease it is told the *generation*, which changes when its shards go back. After a pause it asks for the newest,
and drops what it has of another. The counts (`training/position.py`) are made by the workers' pushes themselves and lie
beside the parameters, so that both are lost, saved and restored together: from them alone a ps task that begins anew
knows what is left to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.data.pipeline.shard_plan import Lease, ShardPlan
from ps_trainer.runtime.messages import END, WAIT

# What a worker asks for.
SHARD = "shard"
GENERATION = "generation"

COUNTS = "data/seen"
RECYCLED = "data/recycled"
RETIRED = "data/retired"


class LeaseBook:
    """The shards that are left, and who holds which.

    Args:
        plan: the run's.
        read: gives the counts, int [rows, num_shards * max_batches].
        begin_epoch: called before the first shard of an epoch is handed out that was not begun yet; its row is zeros
            after that.
        epoch: the newest epoch that was begun.
        may_wait: whether a worker for which nothing is left waits for those that others hold.
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
        for begun in range(max(0, epoch + 1 - plan.rows), epoch + 1):
            self._open += [(begun, shard) for shard in plan.order(begun)]

    def take(self, worker: int, *, is_idle: bool = False) -> Lease | str:
        """The next shard for a worker, or `WAIT` or `END`.

        Args:
            worker: which one.
            is_idle: whether it has trained on all that it was given. What it holds nevertheless are batches that it has
                not pushed: it needs others to push them with, and never will where there are none.
        """
        seen = self._read()
        (self._idle.add if is_idle else self._idle.discard)(worker)

        def first_unseen(place: tuple[int, int]) -> int | None:
            return self._plan.first_unseen(place[1], seen[place[0] % self._plan.rows])

        self._held = {w: [p for p in places if first_unseen(p) is not None] for w, places in self._held.items()}
        self._open = [place for place in self._open if first_unseen(place) is not None]
        if not self._open and (self._plan.num_epochs is None or self._epoch + 1 < self._plan.num_epochs):
            oldest = min((epoch for places in self._held.values() for epoch, _ in places), default=self._epoch)
            if oldest + self._plan.rows <= self._epoch + 1:
                return WAIT  # the next epoch is counted where that one is
            self._epoch += 1
            self._begin_epoch(self._epoch)
            self._open = [(self._epoch, shard) for shard in self._plan.order(self._epoch)]
            seen = self._read()
        if self._open:
            place = self._open.pop(0)
            self._held.setdefault(worker, []).append(place)
            return Lease(*place, first_unseen(place))
        others = {holder for holder, places in self._held.items() if places and holder != worker}
        if others and self._may_wait and not (is_idle and others <= self._idle):
            return WAIT
        if is_idle:
            self.give_back(worker)
        return END

    def give_back(self, worker: int) -> None:
        """A worker is gone, or has come anew: what it holds is for the next one who asks."""
        self._idle.discard(worker)
        self._open = self._held.pop(worker, []) + self._open


class LeaseDesk:
    """Answers the workers of a job, of one run after the other; on ps task 0.

    Args:
        target: of this task's own server.
        config: of a session of this task alone.
        read_run: reads the run's record.
        write: writes the answers, by worker.
    """

    def __init__(
        self,
        target: str,
        config: tf.ConfigProto,
        *,
        read_run: Callable[[], dict[str, Any]],
        write: Callable[[dict[str, Any]], None],
    ):
        self._target = target
        self._config = config
        self._read_run = read_run
        self._write = write
        self._answers: dict[str, Any] = {}
        self._generations: Counter[int] = Counter()
        self._book: LeaseBook | None = None
        self._counts: Counts | None = None

    def answer(self, message: dict[str, Any]) -> None:
        """Gives a worker the shard, or the generation, that it asks for; it asks again where there is no answer.

        There is none, and a warning, where the run's record cannot be read or does not fit the counts.
        """
        worker = message["worker"]
        try:
            if self._book is None and not self._open(message["run_id"]):
                return
            answers = self._answers.setdefault(str(worker), {})
            kind, request = message["kind"], message["request"]
            if answers.get(kind, {}).get("request") != request:
                answer = self._lease(message) if kind == SHARD else None
                generation = self._generations[worker]
                answers[kind] = {"request": request, "lease": answer, "generation": generation}
            self._write(self._answers)
        except tf.errors.OpError as error:
            logging.warning("worker %d was given no shard: %s", worker, error.message)
        except _OtherCountsError as error:
            logging.warning("worker %d was given no shard: %s", worker, error)

    def give_back(self, worker: int) -> None:
        """See `LeaseBook.give_back`; begins a new generation."""
        if self._book is not None:
            self._generations[worker] += 1
            self._book.give_back(worker)

    def close(self) -> None:
        """The run is over."""
        if self._counts is not None:
            self._counts.close()
        self._book, self._counts, self._answers = None, None, {}

    def _lease(self, message: dict[str, Any]) -> Lease | str:
        if message.get("is_first"):  # it has dropped what it was given before
            self.give_back(message["worker"])
        return self._book.take(message["worker"], is_idle=message["is_idle"])

    def _open(self, run_id: str) -> bool:
        """Takes up a run; False where the chief has not set it up."""
        run = self._read_run()
        if run.get("run_id") != run_id or "shards" not in run:
            return False
        plan = ShardPlan(**run["shards"]["plan"])
        counts = Counts(self._target, self._config, run_id, plan)
        try:
            epoch = counts.newest_epoch()
        except BaseException:
            counts.close()
            raise
        self._counts = counts
        self._book = LeaseBook(
            plan,
            read=counts.read,
            begin_epoch=counts.begin_epoch,
            epoch=epoch,
            may_wait=run["shards"]["may_wait"],
        )
        return True


class _OtherCountsError(Exception):
    """The counts on this ps task are not those of the run's plan."""


class Counts:
    """The counts of a run on this ps task, as the workers' graphs make them.

    Args:
        target: of this task's own server.
        config: of a session of this task alone.
        run_id: the run's container.
        plan: the run's.
    """

    def __init__(self, target: str, config: tf.ConfigProto, run_id: str, plan: ShardPlan):
        self._plan = plan
        graph = tf.Graph()
        with graph.as_default():
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
        """See `LeaseBook`."""
        return self._session.run(self._read_seen)

    def begin_epoch(self, epoch: int) -> None:
        """See `LeaseBook`; what was in the epoch's row is summed up."""
        if epoch >= self._plan.rows:
            add = list(self._plan.coverage(self.read()[epoch % self._plan.rows]).values())
            self._session.run(self._recycle, {self._row: epoch % self._plan.rows, self._add: add})

    def newest_epoch(self) -> int:
        """The newest epoch of which a batch was trained on.

        Raises:
            _OtherCountsError: the plan is of other counts.
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
    """Name, shape and type of the variables that hold the counts, zeros at the start.

    They are: how often each batch was trained on, by epoch (row) and shard; how often each row has been used for a
    later epoch; and of the epochs that were there before, the sums of `ShardPlan.coverage`.
    """
    return [
        (COUNTS, [plan.rows, plan.num_shards * plan.max_batches], tf.int8),
        (RECYCLED, [plan.rows], tf.int64),
        (RETIRED, [4], tf.int64),
    ]


def epochs_of(recycled: np.ndarray) -> np.ndarray:
    """The epoch that each row counts."""
    return np.arange(len(recycled)) + len(recycled) * recycled


def newest_epoch(seen: np.ndarray, recycled: np.ndarray) -> int:
    """The newest epoch of which a batch was trained on; 0 before the first."""
    begun = epochs_of(recycled)[np.logical_or(np.any(seen != 0, axis=1), recycled > 0)]
    return int(begun.max(initial=0))


def coverage(plan: ShardPlan, values: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """What summary.json says of the examples: for each epoch how many were seen how often.

    Args:
        plan: the run's.
        values: of the variables, by name.
    """
    seen, recycled = values[COUNTS], values[RECYCLED]
    last = newest_epoch(seen, recycled)
    found: dict[str, Any] = {}
    first = int(max(0, last + 1 - plan.rows))
    if first:
        found[f"0-{first - 1}"] = dict(zip(plan.coverage(seen[0]), map(int, values[RETIRED]), strict=True))
    return found | {str(epoch): plan.coverage(seen[epoch % plan.rows]) for epoch in range(first, last + 1)}

"""The worker's part of `--sharding=dynamic`: asks ps task 0 for shards, and builds the counts of trained batches."""

from __future__ import annotations

import bisect
import contextlib
import functools
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.checkpoints.stored_state import Count
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline import shard_plan
from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.shard_plan import Coverage, Lease, ShardPlan
from ps_trainer.errors import OptionError
from ps_trainer.runtime import shard_leases
from ps_trainer.runtime.control import PsControl
from ps_trainer.runtime.run_record import LeaseAnswer, LeaseKind, LeaseMessage, LeaseRefusal, Shards
from ps_trainer.runtime.suspension import SuspensionDetector
from ps_trainer.store.variables import create_variable
from ps_trainer.updates.base import UpdateRule

_POLL_SECS = 0.03
_WAIT_SECS = 0.3  # between two questions while other workers hold all shards that are left
_ASK_AGAIN_SECS = 5.0  # without an answer in this time, the question counts as lost


def plan_of(
    dataset: DataSource, config: TrainConfig, num_workers: int, shards: Shards | None = None
) -> ShardPlan | None:
    """Returns the shard plan of the run; None under `--sharding=static`.

    Args:
        dataset: Dataset of this worker.
        config: Configuration of this worker.
        num_workers: Number of workers that train.
        shards: Plan of the chief, which all workers share; None on the chief itself.

    Raises:
        OptionError: There are fewer shards than workers, or this worker's data differs from the chief's.
    """
    if config.sharding != "dynamic":
        return None
    num_examples = dataset.num_train_examples
    if shards is not None:
        plan = shards.plan
        if num_examples != plan.num_examples:
            raise OptionError(
                f"this worker's dataset has {num_examples} training examples, the chief's {plan.num_examples}: give"
                " all workers the same --dataset, --dataset_option and files"
            )
        return plan
    plan = shard_plan.plan(
        num_examples, config.batch_size, config.num_epochs, num_workers, config.shard_examples, config.seed
    )
    if plan.num_shards < num_workers:
        raise OptionError(
            f"--shard_examples={config.shard_examples} --batch_size={config.batch_size}: {plan.num_examples} training"
            f" examples make {plan.num_shards} shards for {num_workers} workers; lower one of the two"
        )
    return plan


class LeaseLink(NamedTuple):
    """The connection of one worker to ps task 0, which hands out the leases.

    Attributes:
        ps_0: Client of ps task 0.
        run_id: Name of the run.
        worker_index: Index of this worker.
        on_wait: Function that is called repeatedly while other workers hold all shards that are left.
        num_steps: Function that returns the number of steps that this worker has made.
        pause_secs: Time between two steps after which this worker's shards may have been given to other workers.
    """

    ps_0: PsControl
    run_id: str
    worker_index: int
    on_wait: Callable[[], Any]
    num_steps: Callable[[], int]
    pause_secs: float

    def ask(
        self, kind: LeaseKind, request: str, closing: threading.Event, *, is_idle: bool, is_first: bool
    ) -> LeaseAnswer | None:
        """Asks a question; returns None if no answer came in time."""
        with contextlib.suppress(tf.errors.OpError):  # the watcher detects the loss of a ps task
            self.ps_0.send(
                LeaseMessage(
                    run_id=self.run_id,
                    worker=self.worker_index,
                    request=request,
                    kind=kind,
                    is_idle=is_idle,
                    is_first=is_first,
                )
            )
        for _ in range(int(_ASK_AGAIN_SECS / _POLL_SECS)):
            if closing.wait(_POLL_SECS):
                return None
            with contextlib.suppress(tf.errors.OpError):
                answer = self.ps_0.read().leases.get(self.worker_index, {}).get(kind)
                if answer is not None and answer.request == request:
                    return answer
        return None


class _HeldLease(NamedTuple):
    """A lease that this worker holds or held.

    Attributes:
        batches_before: Number of batches in the earlier leases.
        examples_before: Number of examples in the earlier leases.
        sizes: Number of examples in each batch of this lease.
    """

    batches_before: int
    examples_before: int
    sizes: list[int]


class ShardReader:
    """The leases of one worker in one run, as a dataset, and the number of examples that it has trained on.

    A generator of TensorFlow asks for leases in a separate thread. When the worker was suspended for so long that
    its shards were given to other workers, the dataset is started again, with a new generator.

    Args:
        plan: Shard plan of the run.
        time_fn: Function that returns monotonic seconds.

    Attributes:
        plan: The argument of this name.
    """

    def __init__(self, plan: ShardPlan, time_fn: Callable[[], float] = time.monotonic):
        self.plan = plan
        self._time_fn = time_fn
        self._is_closed = False
        self._closing = threading.Event()  # ends the current generator
        self._lock = threading.Lock()
        self._question_lock = threading.Lock()
        self._taken: list[_HeldLease] = []
        self._generation: int | None = None  # of the leases of the current generator
        self._is_outdated = False
        self._link: LeaseLink  # set by `connect`, as is the detector
        self._pause: SuspensionDetector

    def leases(self) -> tf.data.Dataset:
        """Returns the leases: epoch, shard and first batch, int64 [3]. Python code runs once per lease."""
        return tf.data.Dataset.from_generator(self._leases, output_signature=tf.TensorSpec([3], tf.int64))

    def connect(self, link: LeaseLink) -> None:
        """Connects the reader to ps task 0, before the first batch is read."""
        self._link = link
        self._pause = SuspensionDetector(self._time_fn(), link.pause_secs)

    def shards(self, rule: UpdateRule) -> Shards:
        """Returns the entry of the run record from which ps task 0 hands out the shards."""
        return Shards(plan=self.plan, may_wait=not rule.waits_for_others)

    def coverage(self, values: Mapping[str, np.ndarray]) -> dict[str, Coverage]:
        """Returns how often the examples were seen, by epoch; `values` are those of a checkpoint."""
        return shard_leases.coverage(self.plan, values)

    def close(self) -> None:
        """Ends the dataset and every wait for a lease, and waits until no question is under way.

        A session that ends waits for its datasets, and its server answers nobody meanwhile. Where that server holds the
        parameters as well, a question from the dataset would never be answered.
        """
        self._is_closed = True
        self._closing.set()
        with self._question_lock:
            pass

    def is_outdated(self) -> bool:
        """Returns whether other workers got this worker's shards while it was silent; called before each step.

        If so, the reader drops the batches that it has read and not trained on, and the caller must start the dataset
        again.
        """
        paused = self._pause.secs_suspended(self._time_fn())
        if paused and not self._is_outdated:
            answer = self._ask(LeaseKind.GENERATION, uuid.uuid4().hex, self._closing)
            self._is_outdated = answer is not None and answer.generation != self._generation
        if not self._is_outdated or self._is_closed:
            return False
        logging.warning("shards of this worker were given to others while it was silent; it takes new ones")
        with self._lock:
            self._closing.set()
            self._closing = threading.Event()
            self._generation, self._is_outdated = None, False
            self._drop_untrained()
        return True

    def num_examples(self, num_batches: int) -> int:
        """Returns the number of examples in the first `num_batches` batches of this worker."""
        place = bisect.bisect_right(self._taken, num_batches, key=lambda taken: taken.batches_before) - 1
        if place < 0:
            return 0
        taken = self._taken[place]
        return taken.examples_before + sum(taken.sizes[: num_batches - taken.batches_before])

    def _drop_untrained(self) -> None:
        made = self._link.num_steps()
        self._taken = [
            taken._replace(sizes=taken.sizes[: made - taken.batches_before])
            for taken in self._taken
            if taken.batches_before < made
        ]

    def _num_taken(self) -> tuple[int, int]:
        """Returns the number of batches and of examples in all leases of this worker."""
        if not self._taken:
            return 0, 0
        last = self._taken[-1]
        return last.batches_before + len(last.sizes), last.examples_before + sum(last.sizes)

    def _take(self, lease: Lease) -> None:
        self._taken.append(_HeldLease(*self._num_taken(), self.plan.batch_sizes(lease.shard)[lease.first :]))

    def _ask(
        self, kind: LeaseKind, request: str, closing: threading.Event, *, is_first: bool = False
    ) -> LeaseAnswer | None:
        """Asks ps task 0; returns None if it has not answered in time."""
        # The step loop and the generator ask from different threads; the lock lets them take turns.
        with self._question_lock:
            if closing.is_set():
                return None
            is_idle = self._link.num_steps() >= self._num_taken()[0]
            return self._link.ask(kind, request, closing, is_idle=is_idle, is_first=is_first)

    def _leases(self) -> Iterator[np.ndarray]:
        # This generator keeps its own event, because `is_outdated` gives the next generator a new one.
        closing, request, is_first = self._closing, uuid.uuid4().hex, True
        while not closing.is_set():
            # A question keeps its name until it is answered, so ps 0 hands out no second shard for a repetition.
            answer = self._ask(LeaseKind.SHARD, request, closing, is_first=is_first)
            if answer is None:
                continue  # ps 0 does not answer, or has lost the question; the watcher detects its loss
            lease, request, is_first = answer.lease, uuid.uuid4().hex, False
            if lease is LeaseRefusal.END:
                return
            with self._lock:
                # `is_outdated` may have ended this generator during the question. The first question of the next
                # generator gives the lease back.
                if closing.is_set():
                    return
                self._is_outdated |= self._generation not in (None, answer.generation)
                self._generation = answer.generation
                if isinstance(lease, Lease):
                    self._take(lease)
            if not isinstance(lease, Lease):
                self._link.on_wait()
                closing.wait(_WAIT_SECS)
            else:
                yield np.array(lease, np.int64)


def create_counts(plan: ShardPlan, ps_device: str) -> list[Count]:
    """Creates the variables that `shard_leases.specs` lists, on ps task 0. The first one counts the batches."""
    counts = []
    for name, shape, dtype in shard_leases.specs(plan):
        with tf.device(ps_device):
            variable = create_variable(name, shape, dtype)
        counts.append(Count(variable, functools.partial(_adapt, name, variable)))
    return counts


def _adapt(name: str, variable: tf.Variable, saved: np.ndarray | None) -> np.ndarray:
    shape = tuple(variable.shape.as_list())
    if saved is not None and saved.shape == shape:
        return saved
    logging.warning(
        "%s starts with zeros, because the checkpoint has no such counts of the shape %s: it was saved with other"
        " values of --sharding, --shard_examples, --batch_size, --num_epochs or number of workers",
        name,
        list(shape),
    )
    return np.zeros(shape, variable.dtype.as_numpy_dtype)

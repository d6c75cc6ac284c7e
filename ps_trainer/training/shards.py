"""A worker's part of `--sharding dynamic`: asks ps task 0 for shards, and counts the batches that it trains on."""

from __future__ import annotations

import bisect
import contextlib
import functools
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.config import TrainConfig
from ps_trainer.data import shards
from ps_trainer.data.base import DataSource
from ps_trainer.data.shards import Lease, ShardPlan
from ps_trainer.errors import OptionError
from ps_trainer.runtime import control, leases
from ps_trainer.runtime.control import PsControl
from ps_trainer.store.state import Count
from ps_trainer.store.variables import create_variable
from ps_trainer.updates.base import UpdateRule

_POLL_SECS = 0.03
_WAIT_SECS = 0.3
_ASK_AGAIN_SECS = 5.0


def plan_of(dataset: DataSource, config: TrainConfig, num_workers: int) -> ShardPlan | None:
    """The run's plan; None where the data is dealt out once and for all.

    Raises:
        OptionError: there are fewer shards than workers.
    """
    if config.sharding != "dynamic":
        return None
    num_examples = dataset.num_train_examples
    plan = shards.plan(
        num_examples, config.batch_size, config.num_epochs, num_workers, config.shard_examples, config.seed
    )
    if plan.num_shards < num_workers:
        raise OptionError(
            f"--shard_examples={config.shard_examples} --batch_size={config.batch_size}: {plan.num_examples} training"
            f" examples make {plan.num_shards} shards for {num_workers} workers; lower one of the two"
        )
    return plan


class _Taken(NamedTuple):
    """A lease: the batches and examples of those before it, and the sizes of its own batches."""

    batches_before: int
    examples_before: int
    sizes: list[int]


class ShardReader:
    """The leases of one worker in one run, as a dataset, and what it has trained on.

    Args:
        plan: the run's.
    """

    def __init__(self, plan: ShardPlan):
        self.plan = plan
        self._closing = threading.Event()
        self._ask: Callable[[str], Any] | None = None
        self._num_steps: Callable[[], int] | None = None
        self._taken: list[_Taken] = []
        self._on_wait: Callable[[], Any] | None = None

    def leases(self) -> tf.data.Dataset:
        """int64 [3] each: epoch, shard, first batch. Python runs for a lease, not for what is read by it."""
        return tf.data.Dataset.from_generator(self._leases, output_signature=tf.TensorSpec([3], tf.int64))

    def connect(
        self, ps_0: PsControl, message: dict[str, Any], on_wait: Callable[[], Any], num_steps: Callable[[], int]
    ) -> None:
        """To be called before the first batch is read.

        Args:
            ps_0: who hands out the leases.
            message: the start of a word to it: run and worker.
            on_wait: called now and then while there is no shard left but those of others.
            num_steps: gives the steps that this worker has made.
        """

        def ask(request: str) -> Any:
            """The answer to a request, or None where there is none yet."""
            with contextlib.suppress(tf.errors.OpError):  # who watches the ps tasks says so
                ps_0.say(message | {"status": control.LEASE, "request": request, "is_idle": self._is_idle()})
            for _ in range(int(_ASK_AGAIN_SECS / _POLL_SECS)):
                if self._closing.wait(_POLL_SECS):
                    return None
                with contextlib.suppress(tf.errors.OpError):
                    answer = ps_0.read().leases.get(str(message["worker"]), {})
                    if answer.get("request") == request:
                        return answer["lease"]
            return None

        self._ask, self._on_wait, self._num_steps = ask, on_wait, num_steps

    def record(self, rule: UpdateRule) -> dict[str, Any]:
        """What the run's record says of it, for `leases.LeaseDesk`."""
        return {"plan": self.plan.as_dict(), "may_wait": not rule.waits_for_others}

    def coverage(self, values: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """What summary.json says of the examples; `values` are the state's."""
        return leases.coverage(self.plan, values)

    def close(self) -> None:
        """Ends the dataset: nobody waits for a lease any more."""
        self._closing.set()

    def num_examples(self, num_batches: int) -> int:
        """Examples of the first so many batches that this worker has read."""
        place = bisect.bisect_right(self._taken, num_batches, key=lambda taken: taken.batches_before) - 1
        if place < 0:
            return 0
        taken = self._taken[place]
        return taken.examples_before + sum(taken.sizes[: num_batches - taken.batches_before])

    def _is_idle(self) -> bool:
        """Whether this worker has trained on all batches that it was given."""
        return self._num_steps() >= (self._taken[-1].batches_before + len(self._taken[-1].sizes) if self._taken else 0)

    def _take(self, lease: Lease) -> None:
        before = self._taken[-1] if self._taken else _Taken(0, 0, [])
        batches, examples = before.batches_before + len(before.sizes), before.examples_before + sum(before.sizes)
        self._taken.append(_Taken(batches, examples, self.plan.batch_sizes(lease.shard)[lease.first :]))

    def _leases(self) -> Iterator[np.ndarray]:
        request = uuid.uuid4().hex
        while not self._closing.is_set():
            answer = self._ask(request)
            if answer is None:
                continue  # ps 0 does not answer, or has lost the question; who watches it knows more
            if answer == leases.END:
                return
            request = uuid.uuid4().hex
            if answer == leases.WAIT:
                self._on_wait()
                self._closing.wait(_WAIT_SECS)
                continue
            lease = Lease(*answer)
            self._take(lease)
            yield np.array(lease, np.int64)


def create_counts(plan: ShardPlan, ps_device: str) -> list[Count]:
    """The variables of `leases.specs`, on ps task 0; the first is that of the batches."""
    counts = []
    for name, shape, dtype in leases.specs(plan):
        with tf.device(ps_device):
            variable = create_variable(name, shape, dtype)
        counts.append(Count(variable, functools.partial(_adapt, name, variable)))
    return counts


def _adapt(name: str, variable: tf.Variable, saved: np.ndarray | None) -> np.ndarray:
    shape = tuple(variable.shape.as_list())
    if saved is not None and saved.shape == shape:
        return saved
    logging.warning(
        "%s starts with zeros: the checkpoint has none of the shape %s, as the run had other --sharding,"
        " --shard_examples, --batch_size, --num_epochs or number of workers; examples are counted anew",
        name,
        list(shape),
    )
    return np.zeros(shape, variable.dtype.as_numpy_dtype)

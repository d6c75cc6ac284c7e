"""Models whose steps a test holds up in the middle, and whose parameters count the gradients that are in them."""

from __future__ import annotations

import functools
import os
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.models import layers
from ps_trainer.store import undo_log
from tests.processes.gates import Gate
from tests.processes.hooks import FOLDER_VARIABLE, HoldReading
from tests.testing.components import VOCAB_SIZE
from tests.testing.processes import START_SECS, wait_until

NUM_WORKERS = 2
NUM_PIECES, PIECE_SIZE = 4, 2**16  # between hosts, a piece and a part of 256 KiB each
DIM = 4  # of a row


class Permits:
    """The number of steps that a process of each worker may make; it waits in the middle of the next one.

    Args:
        folder: Folder of the files in which the numbers are.
    """

    ALL = 10**9

    def __init__(self, folder: pathlib.Path):
        self._folder = folder

    def give(self, worker: int, num_steps: int) -> None:
        """Lets each process of the worker make that number of steps since its start."""
        new = self._folder / "new-permit"
        new.write_text(str(num_steps))
        new.rename(self._permit(worker))  # the worker must not read a half of it

    def wait_until_held(self, worker: int, step: int) -> None:
        """Returns when the worker waits in the middle of that step of its process."""
        held, what = self._held(worker), f"worker {worker} does not wait in step {step}"
        wait_until(lambda: held.exists() and held.read_text() == str(step), START_SECS, what)

    def use(self, worker: int, step: int) -> None:
        """Waits, in the worker, until it may end that step of its process."""
        while int(self._permit(worker).read_text()) < step:
            self._held(worker).write_text(str(step))
            time.sleep(0.02)

    def _permit(self, worker: int) -> pathlib.Path:
        return self._folder / f"permit-{worker}"

    def _held(self, worker: int) -> pathlib.Path:
        return self._folder / f"held-{worker}"


class _Held:
    """A model that a test holds up."""

    def __init__(self):
        self._permits = Permits(pathlib.Path(os.environ[FOLDER_VARIABLE]))
        self._num_steps = 0

    def _wait(self, value: tf.Tensor, worker: tf.Tensor) -> tf.Tensor:
        def wait(value: Any, worker: Any) -> Any:
            self._num_steps += 1
            self._permits.use(int(worker), self._num_steps)
            return value

        waited = tf.numpy_function(wait, [value, worker], value.dtype)
        waited.set_shape(value.shape)
        return waited


class Pieces(_Held):
    """Four pieces in parts of their own, as between hosts; a worker waits when it has the gradients of the last two.

    At the index that is the worker's, each gradient is 1, and elsewhere 0.
    """

    def __init__(self):
        super().__init__()
        ClusterConfig.spans_hosts = True

    def build(self, batch: dict[str, tf.Tensor], training: bool) -> layers.ModelOutput:
        worker = batch["worker"][0]
        zeros = tf.zeros_initializer()
        pieces = [tf.get_variable(f"piece_{n}", [PIECE_SIZE], initializer=zeros) for n in range(NUM_PIECES)]
        own = [tf.reduce_sum(tf.one_hot(worker, PIECE_SIZE) * piece) for piece in pieces]

        @tf.custom_gradient
        def wait_on_the_way_back(value: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            return tf.identity(value), lambda gradient: self._wait(gradient, worker)

        loss = wait_on_the_way_back(own[0] + own[1]) + own[2] + own[3]
        return layers.ModelOutput(loss, batch["label"], {})


class Table(_Held):
    """A table of which each worker has its own rows; a worker waits when its gradient has left, before it counts it.

    The gradient of each number of a row is the number of times that the row's id is in the batch.
    """

    def build(self, batch: dict[str, tf.Tensor], training: bool) -> layers.ModelOutput:
        worker = batch["worker"][0]
        ids = worker * VOCAB_SIZE + batch["ids"]
        rows = layers.embedding("table", NUM_WORKERS * VOCAB_SIZE, DIM, ids, tf.zeros_initializer())

        @tf.custom_gradient
        def wait(value: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            return self._wait(value, worker), tf.identity

        return layers.ModelOutput(wait(tf.reduce_sum(rows)), batch["label"], {})


GATES = ("before", "inside", "logged")  # in the order in which an update of `LoggedTable` passes them


class LoggedTable(Table):
    """`Table`, whose updates log the old rows during a save, as those of large tables do.

    An update of worker 1 passes a gate before it asks whether it has to log. During a save it passes two more: between
    the reads of the old rows and their entry in the log, and after the entry. A graph has these gates if the file
    `gates` exists when it is built.

    The chief's save waits before it reads a row, as long as the file `hold` exists.
    """

    def __init__(self):
        super().__init__()
        _log_small_tables()


@functools.cache
def _log_small_tables() -> None:
    undo_log.LARGE_BYTES = 0
    HoldReading()
    if "--task_index=1" in sys.argv:
        undo_log.UndoLog.log = _after_gate("before", undo_log.UndoLog.log)
        undo_log.LoggedTable._stage = _after_gate("inside", undo_log.LoggedTable._stage)
        undo_log.LoggedTable.stamp = _after_gate("logged", undo_log.LoggedTable.stamp)


def _after_gate(name: str, build: Callable[..., Any]) -> Callable[..., Any]:
    """The function that builds the same ops behind a gate; their inputs pass it as well."""

    def build_behind(log: Any, *inputs: Any, **options: Any) -> Any:
        if not pathlib.Path(os.environ[FOLDER_VARIABLE], "gates").exists():
            return build(log, *inputs, **options)
        with tf.control_dependencies([Gate(name).build()]):
            inputs = [tf.nest.map_structure(_copy_of, part) for part in inputs]
            return build(log, *inputs, **options)

    return build_behind


def _copy_of(value: Any) -> Any:
    return tf.identity(value) if isinstance(value, tf.Tensor) else value

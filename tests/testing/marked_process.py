"""One process of a worker in a `MarkedRun`: its graph, its session, and the thread of its current step."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.runtime.server import session_config
from ps_trainer.training import graph as graph_lib
from tests.testing.cluster import DEADLINE_SECS

if TYPE_CHECKING:
    from tests.testing.marked_gradients import MarkedRun


class Push(NamedTuple):
    """A push as its worker saw it.

    Attributes:
        worker: Worker that pushed.
        codes: Codes of the steps whose gradients are in the push.
        staleness: Staleness that the step returned, one entry per ps task; None if the test killed the worker in it.
    """

    worker: int
    codes: tuple[int, ...]
    staleness: np.ndarray | None


class MarkedProcess:
    """One process of a worker: its graph, its session, and the thread of its current step."""

    def __init__(self, run: MarkedRun, worker: int):
        task = run.cluster.task("worker", worker)
        self.worker = worker
        self.train = graph_lib.build(
            run.components, task, run.config, run.name, join_number=run.num_processes(worker) + 1,
            spans_hosts=run.spans_hosts,
        )  # fmt: skip
        config = session_config(task.device, ["/job:ps"])
        self.session = tf.Session(f"grpc://{task.own_address}", graph=self.train.graph, config=config)
        self.session.run(self.train.scaffold.local_init_op)
        run.note_process(self)
        self.error: BaseException | None = None
        self.codes: list[int] = []  # codes of the steps that are not pushed yet
        self.is_pushing = False
        self._global_step = 0
        self._thread: threading.Thread | None = None

    def join(self) -> None:
        """Joins the run in a thread."""

        def join() -> None:
            for op in self.train.join_ops:
                self.session.run(op, self.train.step.join_feeds)
            self._global_step = int(self.session.run(self.train.current_step))
            if self.train.step.on_restored is not None:
                self.train.step.on_restored(self.session)
            for op in self.train.begin_data_ops:
                self.session.run(op)

        self._start(join)

    def step(self, run: MarkedRun, timeout_in_ms: int = 0) -> None:
        """Makes a step in a thread and cancels it after that time, as if the worker were killed."""
        choose = self.train.step.choose or (lambda global_step: 0)
        phase = choose(self._global_step)
        self.is_pushing = phase == 0
        options = tf.RunOptions(timeout_in_ms=timeout_in_ms)

        def step() -> None:
            staleness = None
            try:
                results = self.session.run(self.train.fetches[phase], options=options)
                self._global_step, staleness = int(results[0]), results[1]
            finally:
                if self.is_pushing and self.codes:
                    run.pushes.append(Push(self.worker, tuple(self.codes), staleness))
                    self.codes = []

        self._start(step)

    def leave(self) -> None:
        """Leaves the run in order."""
        if self.train.step.leave_op is not None:
            self.session.run(self.train.step.leave_op)

    @property
    def is_busy(self) -> bool:
        """Whether a step or the joining is still running."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self) -> None:
        """Waits until the current step or joining has ended."""
        self._thread.join(DEADLINE_SECS)
        assert not self.is_busy, f"worker {self.worker} hangs"

    def _start(self, call: Any) -> None:
        def run() -> None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                self.error = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

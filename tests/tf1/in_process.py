"""A script's cluster in the test's own process: each task runs in a thread, with a graph of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer import tf1 as train
from ps_trainer.cluster.ports import pick_free_ports

DEADLINE_SECS = 180.0
"""Against a hang only: a slow machine is not a failure."""


class Task(NamedTuple):
    """A task, from a script's point of view."""

    server: train.Server
    cluster: dict[str, list[str]]
    index: int

    @property
    def is_chief(self) -> bool:
        return self.index == 0

    def device(self) -> Any:
        return tf.device(
            train.replica_device_setter(worker_device=f"/job:worker/task:{self.index}", cluster=self.cluster)
        )


class _Call(threading.Thread):
    def __init__(self, function: Callable[[], Any]):
        super().__init__(daemon=True)
        self._function, self.result, self.error = function, None, None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._function()
        except BaseException as error:  # noqa: BLE001 - raised by `end`
            self.error = error

    def end(self) -> Any:
        self.join(DEADLINE_SECS)
        assert not self.is_alive(), "a task has not ended"
        if self.error is not None:
            raise self.error
        return self.result


class InProcessJob(NamedTuple):
    """The tasks of a cluster that were started."""

    ps: list[_Call]
    workers: list[_Call]

    def end(self) -> list[Any]:
        """Results of the workers, once every task has ended well."""
        results = [call.end() for call in self.workers]
        for call in self.ps:
            call.end()
        return results


def start(script: Callable[[Task], Any], *, num_ps: int = 1, num_workers: int = 2) -> InProcessJob:
    """Starts a cluster whose workers run `script`."""
    hosts = [f"localhost:{port}" for port in pick_free_ports(num_ps + num_workers)]
    cluster = {"ps": hosts[:num_ps], "worker": hosts[num_ps:]}

    def work(index: int) -> Any:
        server = train.Server(cluster, job_name="worker", task_index=index)
        with tf.Graph().as_default():
            return script(Task(server, cluster, index))

    ps = [_Call(lambda i=i: train.Server(cluster, job_name="ps", task_index=i).join()) for i in range(num_ps)]
    return InProcessJob(ps, [_Call(lambda i=i: work(i)) for i in range(num_workers)])


def run(script: Callable[[Task], Any], *, num_ps: int = 1, num_workers: int = 2) -> list[Any]:
    """Runs a cluster whose workers run `script`; returns their results."""
    return start(script, num_ps=num_ps, num_workers=num_workers).end()

"""A script's cluster in the test's own process: each task runs in a thread, with its own graph.

TensorFlow cannot stop a server, and each one keeps 40 MB and more than twenty threads. So a job that ended well leaves
its servers to the next job of its shape.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer import tf1 as train
from ps_trainer.api.servers import clear_control
from ps_trainer.cluster.ports import pick_free_ports
from ps_trainer.tf1 import exit_codes, script_settings, tasks

DEADLINE_SECS = 180.0
"""Against a hang only: a slow machine is not a failure."""

# A call into TensorFlow that hangs ends the process of a script; here it may only end its own test, by the deadline.
exit_codes.end_process = lambda code: logging.error("a script's process would end with %d", code)


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


class _Servers:
    """The servers of a cluster."""

    _unused: dict[tuple[int, int], list[_Servers]] = {}

    def __init__(self, num_ps: int, num_workers: int):
        hosts = [f"localhost:{port}" for port in pick_free_ports(num_ps + num_workers)]
        self.cluster = {"ps": hosts[:num_ps], "worker": hosts[num_ps:]}
        self.ps = [train.Server(self.cluster, "ps", index) for index in range(num_ps)]
        self.workers = [train.Server(self.cluster, "worker", index) for index in range(num_workers)]

    @classmethod
    def borrow(cls, num_ps: int, num_workers: int) -> _Servers:
        """Servers that no job uses, as a script would have made them just now."""
        unused = cls._unused.get((num_ps, num_workers))
        if not unused:
            return cls(num_ps, num_workers)
        servers = unused.pop()
        for server in (*servers.ps, *servers.workers):
            server.settings, server.is_done = script_settings.current(), False
            tasks._tasks[server.target] = tasks._tasks.pop(server.target)  # a task's newest server counts
        return servers

    def leave(self) -> None:
        """Leaves the servers to another job; this one must have ended well."""
        for server in self.ps:
            clear_control(server.target, server.cluster.device)
        self._unused.setdefault((len(self.ps), len(self.workers)), []).append(self)


class InProcessJob(NamedTuple):
    """The tasks of a cluster that were started."""

    servers: _Servers
    ps: list[_Call]
    workers: list[_Call]

    def end(self) -> list[Any]:
        """Results of the workers, once every task has ended well."""
        results = [call.end() for call in self.workers]
        for call in self.ps:
            call.end()
        self.servers.leave()
        return results


def start(script: Callable[[Task], Any], *, num_ps: int = 1, num_workers: int = 2) -> InProcessJob:
    """Starts a cluster whose workers run `script`."""
    servers = _Servers.borrow(num_ps, num_workers)

    def work(index: int) -> Any:
        with tf.Graph().as_default():
            return script(Task(servers.workers[index], servers.cluster, index))

    ps = [_Call(server.join) for server in servers.ps]
    return InProcessJob(servers, ps, [_Call(lambda i=i: work(i)) for i in range(num_workers)])


def run(script: Callable[[Task], Any], *, num_ps: int = 1, num_workers: int = 2) -> list[Any]:
    """Runs a cluster whose workers run `script`; returns their results."""
    return start(script, num_ps=num_ps, num_workers=num_workers).end()


def counter(task: Task) -> tuple[tf.Variable, tf.Variable, tf.Operation]:
    """global_step, a variable [2] that starts at 0 and gains 1 per step, and the train op."""
    with task.device():
        step = train.get_or_create_global_step()
        weight = tf.get_variable("weight", initializer=tf.zeros([2]))
        train_op = train.GradientDescentOptimizer(1.0).minimize(-tf.reduce_sum(weight), global_step=step)
    return step, weight, train_op

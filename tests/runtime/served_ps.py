"""A ps task on a real server in this process, and what workers tell it."""

from __future__ import annotations

import threading
import time

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.ports import pick_free_ports
from ps_trainer.config import TrainConfig
from tests.testing.cluster import environment  # noqa: F401 - prepares TensorFlow's environment

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from ps_trainer.api.servers import clear_control
from ps_trainer.runtime import ps
from ps_trainer.runtime.control import PsClient
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.run_record import AliveMessage, Status, StatusMessage, WorkerEntry
from ps_trainer.runtime.server import create_server

DEADLINE_SECS = 20.0


class Served:
    """A ps task of a cluster of two workers, which a thread serves, and the workers' messages to it."""

    unused = []  # TensorFlow cannot stop a server, so a later test uses it again

    def __init__(self, pool, keep_serving=False, **fields):
        defaults = {"start_timeout_secs": DEADLINE_SECS, "isolation": "test", "recover_timeout_secs": 0.0}
        defaults |= {"intra_op_threads": 1, "inter_op_threads": 2}
        config = TrainConfig(**defaults | fields)
        cluster, server = self._owned = self.unused.pop() if self.unused else self._new(config)
        task = ps.PsTask(cluster, config, server, keep_serving=keep_serving)
        self.stop = StopRequest()
        self.control = PsClient(cluster.own_address, 0)
        self._future = pool.submit(task.serve, self.stop)

    def _new(self, config):
        (port,) = pick_free_ports(1)
        jobs = {"ps": (f"localhost:{port}",), "worker": ("localhost:1", "localhost:2")}
        cluster = ClusterConfig(jobs=jobs, job_name="ps", task_index=0)
        return cluster, create_server(cluster, config)

    def leave(self):
        """Leaves the server to another test, once the ps task has ended."""
        assert not self.is_serving()
        cluster, server = self._owned
        clear_control(server.target, cluster.device)
        self.unused.append(self._owned)

    def send(self, worker, status, run_id="r", **content):
        self.control.send(StatusMessage(run_id=run_id, worker=worker, entry=WorkerEntry(status=status, **content)))

    def beat(self, worker):
        self.control.send(AliveMessage(run_id="r", worker=worker))

    def end(self):
        """The exit code, or the error."""
        return self._future.result(DEADLINE_SECS)

    def wait_for(self, condition):
        """Polls the control plane until its state meets `condition`; returns the state."""
        deadline = time.monotonic() + DEADLINE_SECS
        while time.monotonic() < deadline:
            try:
                state = self.control.read()
                if condition(state):
                    return state
            except tf.errors.FailedPreconditionError:
                pass  # the ps task has not begun yet
            threading.Event().wait(0.01)
        raise AssertionError(f"the condition does not hold after {DEADLINE_SECS} s: {state}")

    def is_serving(self):
        return not self._future.done()


def statuses(state):
    return {index: entry.status for index, entry in state.roster.workers.items()} if state.roster else {}


def joined(task):
    """Both workers of `task` have joined and train."""
    for worker in (0, 1):
        task.send(worker, Status.JOINED)
        task.send(worker, Status.TRAINING)
    task.wait_for(lambda state: statuses(state) == {0: "training", 1: "training"})

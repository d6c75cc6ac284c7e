"""The ps task in a worker's process serves until no other worker needs its share, on a real server in this process."""

from __future__ import annotations

import dataclasses
import signal

import pytest

from ps_trainer.api.servers import clear_control
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.ports import pick_free_ports
from ps_trainer.config import TrainConfig
from ps_trainer.errors import Interrupted, NanLossError, PeerFailedError, PsLostError
from ps_trainer.runtime import liveness, ps
from ps_trainer.runtime.colocated_ps import ColocatedPs
from ps_trainer.runtime.control import PsClient
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.run_record import Status, StatusMessage, WorkerEntry
from ps_trainer.runtime.server import create_server
from tests.testing.cluster import (
    environment,  # noqa: F401 - prepares TensorFlow's environment
    wait_until,
)

CONFIG = TrainConfig(
    start_timeout_secs=20.0, isolation="test", recover_timeout_secs=0.0, intra_op_threads=1, inter_op_threads=2
)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    for name, secs in (("LINGER_SECS", 0.0), ("NOTICE_SECS", 0.3), ("FAILED_SECS", 0.3)):
        monkeypatch.setattr(ps, name, secs)
    monkeypatch.setattr(liveness, "fault_of", lambda address: "")  # the other worker has no server here


@pytest.fixture(scope="module")
def served():
    """The second worker of two, and its server."""
    (port,) = pick_free_ports(1)
    jobs = {"worker": ("localhost:1", f"localhost:{port}")}
    cluster = ClusterConfig(jobs=jobs, job_name="worker", task_index=1, is_colocated=True)
    return cluster, create_server(cluster, CONFIG)


class Share:
    """The ps task, its stop request, and the workers' messages to it."""

    def __init__(self, cluster, server):
        self.task = ColocatedPs(cluster, CONFIG, server)
        self.stop = StopRequest()
        self.task.start(self.stop)
        self.control = PsClient(cluster.own_address, 1)

    def send(self, worker, status, **content):
        self.control.send(StatusMessage(run_id="r", worker=worker, entry=WorkerEntry(status=status, **content)))

    def wait_for(self, worker, status):
        def is_so() -> bool:
            roster = self.control.read().roster
            entry = roster.workers.get(worker) if roster is not None else None
            return entry is not None and entry.status is status

        wait_until(is_so, 20.0)


@pytest.fixture
def share(served):
    cluster, server = served
    share = Share(cluster, server)
    for worker in (0, 1):
        share.send(worker, Status.JOINED)
    share.wait_for(1, Status.JOINED)
    yield share
    share.control.close()
    clear_control(server.target, cluster.device)


def test_serves_under_the_index_of_its_worker(share):
    hello = share.control.read().hello
    assert (hello.ps, hello.num_ps, hello.num_workers) == (1, 0, 2)
    share.task.leave(share.stop, NanLossError("the loss is NaN"))


def test_stays_until_the_other_workers_have_ended(share):
    share.send(1, Status.DONE)
    share.wait_for(1, Status.DONE)
    share.stop.request(PsLostError("a loss that comes too late to matter"))
    share.send(0, Status.DONE)
    share.task.stay(share.stop)
    assert share.stop.reason is None


def test_a_run_that_fails_after_this_worker_was_done_is_a_failure_of_this_process(share):
    share.send(1, Status.DONE)
    share.send(0, Status.FAILED, reason="the disk is full")
    with pytest.raises(PeerFailedError, match="failed after worker-1 was done: worker 0 failed: the disk is full"):
        share.task.stay(share.stop)


def test_a_failure_of_the_job_is_announced_to_the_others(share):
    share.send(1, Status.FAILED)
    share.task.leave(share.stop, NanLossError("the loss is NaN"))
    assert share.control.read().notice.reason == "worker-1 failed: the loss is NaN"


def test_a_signal_is_announced_while_the_job_still_ends(share):
    share.stop.request(PeerFailedError("a reason before the signal"))
    share.stop.request(Interrupted(signal.SIGTERM))
    wait_until(lambda: share.control.read().notice is not None, 20.0)
    assert share.control.read().notice.reason == "worker-1 was ended by SIGTERM"
    share.task.leave(share.stop, share.stop.signal)


def test_a_loss_that_the_job_survives_does_not_end_the_service(share):
    share.stop.request(PsLostError("worker-0 was lost"))
    share.stop.renew()
    share.send(0, Status.TRAINING)
    share.wait_for(0, Status.TRAINING)
    assert share.control.read().notice is None
    share.task.leave(share.stop, NanLossError("the loss is NaN"))


def test_without_a_share_it_ends_with_the_chief_though_its_roster_lacks_a_worker(served):
    """As for a process that was restarted after a third worker was done."""
    cluster, server = served
    jobs = {"worker": (*cluster.jobs["worker"], "localhost:2")}
    share = Share(dataclasses.replace(cluster, jobs=jobs), server)
    share.task.holds_parameters = False
    share.send(1, Status.JOINED)
    share.wait_for(1, Status.JOINED)
    share.send(1, Status.DONE)
    share.send(0, Status.DONE)
    share.wait_for(0, Status.DONE)
    share.task.stay(share.stop)
    share.control.close()
    clear_control(server.target, cluster.device)


def test_without_a_chief_nobody_needs_its_share(served):
    """As for a restarted worker that finds its run at its end.

    The last test here: it closes a session so soon that the server may keep an op which takes mail.
    """
    share = Share(*served)
    share.task.stay(share.stop)
    share.control.close()
    clear_control(served[1].target, served[0].device)

"""The reaction of a worker when the workers that compute its stages join, end and are lost."""

from __future__ import annotations

import threading

import pytest

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.worker_groups import group_of
from ps_trainer.config import TrainConfig
from ps_trainer.errors import Interrupted, PeerFailedError, PeerLostError, StartTimeoutError
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.run_record import RunStart, RunStatus, Status, StatusMessage
from ps_trainer.training.stage_host import StageHost
from ps_trainer.training.stage_workers import StageWorkers
from tests.runtime.fakes import FakeControl, ready_run, roster

HOSTS = tuple(f"localhost:{port}" for port in range(2000, 2004))
RUN = ready_run(start=RunStart(step=0, how="restored"))


def cluster_of(index):
    return ClusterConfig(jobs={"ps": ("localhost:1999",), "worker": HOSTS}, job_name="worker", task_index=index)


@pytest.fixture
def stop():
    return StopRequest()


@pytest.fixture
def peers(stop):
    """Stage peers of worker 1, one of two that train; worker 3 computes its stage 1, worker 2 stage 1 of worker 0."""
    return StageWorkers(group_of(cluster_of(1), 2), TrainConfig(placement="model_parallel"), stop)


def test_the_wait_ends_when_all_have_joined(peers):
    peers.on_worker_start(3)
    peers.wait(0.0)


def test_the_wait_ends_with_an_error_that_names_the_missing_worker(peers):
    peers.on_worker_start(2)
    with pytest.raises(StartTimeoutError, match="worker-3 did not join within 0 s, to compute stages for worker-1"):
        peers.wait(0.0)


def test_the_wait_ends_when_the_worker_is_asked_to_stop(peers, stop):
    stop.request(Interrupted(15))
    with pytest.raises(Interrupted):
        peers.wait(1.0)


@pytest.mark.parametrize(
    ("status", "error"),
    [(Status.LOST, PeerLostError), (Status.FAILED, PeerFailedError), (Status.INTERRUPTED, PeerFailedError)],
)
def test_without_its_stage_a_worker_cannot_continue(peers, stop, status, error):
    peers.on_worker_start(3)
    peers.on_worker_end(3, status)
    with pytest.raises(error, match=f"worker-3 {status}, and worker-1 needs it for a stage"):
        stop.check()


def test_stages_of_other_groups_and_stages_that_are_done_are_ignored(peers, stop):
    for index in (2, 3):
        peers.on_worker_start(index)
    peers.on_worker_end(2, Status.FAILED)
    peers.on_worker_return(2)
    peers.on_worker_end(3, Status.DONE)
    stop.check()


def test_a_stage_that_was_lost_before_is_waited_for_and_a_failed_stage_is_not(peers, stop):
    peers.on_worker_end(3, Status.LOST)
    stop.check()
    peers.on_worker_end(3, Status.FAILED)
    with pytest.raises(PeerFailedError):
        stop.check()


def test_a_restarted_stage_has_lost_its_state(peers, stop):
    peers.on_worker_start(3)
    peers.on_worker_return(3)
    with pytest.raises(PeerLostError, match="worker-3, which computes a stage, was restarted"):
        stop.check()


class Hosting:
    """Worker 3 in a thread, hosting stage 1 for worker 1, on a control plane without a server."""

    def __init__(self, stop):
        config = TrainConfig(placement="model_parallel", recover_timeout_secs=0)
        self.ps = FakeControl(run=RUN)
        self.host = StageHost(cluster_of(3), config, group_of(cluster_of(3), 2), server=None)
        self.host._controls, self.host._run = [self.ps], RUN
        self.host._join = lambda stop: True
        self.error = None
        self.thread = threading.Thread(target=self._run, args=(stop,), daemon=True)
        self.thread.start()

    def _run(self, stop):
        try:
            self.host._take_part(stop)
        except Exception as error:  # noqa: BLE001 - looked at by the test
            self.error = error

    def says(self, **statuses):
        self.ps.fields["roster"] = roster("r", **statuses)

    def outcome(self):
        self.thread.join(30)
        assert not self.thread.is_alive()
        return self.error


class TestHost:
    def test_stays_until_the_worker_it_computes_for_is_done(self, stop):
        hosting = Hosting(stop)
        hosting.says(w0=Status.DONE, w1=Status.TRAINING, w2=Status.DONE)
        hosting.thread.join(1.0)
        assert hosting.thread.is_alive()
        hosting.says(w0=Status.TRAINING, w1=Status.DONE)
        assert hosting.outcome() is None
        assert [said.entry.status for said in hosting.ps.said if isinstance(said, StatusMessage)] == [Status.TRAINING]

    def test_waits_for_a_worker_that_is_lost_and_ends_with_one_that_failed(self, stop):
        hosting = Hosting(stop)
        hosting.says(w0=Status.TRAINING, w1=Status.LOST)
        hosting.thread.join(1.0)
        assert hosting.thread.is_alive()
        hosting.says(w0=Status.TRAINING, w1=Status.FAILED)
        assert isinstance(hosting.outcome(), PeerFailedError)
        assert "worker-1 failed, for which this task computes a stage" in str(hosting.error)

    @pytest.mark.parametrize("trainer", [{}, {"w1": Status.LOST}], ids=["never came", "lost"])
    def test_ends_with_the_run_if_no_task_can_report_the_end_of_its_group(self, stop, trainer):
        hosting = Hosting(stop)
        hosting.says(w0=Status.DONE, **trainer)
        hosting.ps.fields["run"] = RUN.replace(status=RunStatus.ENDED)
        assert hosting.outcome() is None

    def test_learns_the_end_of_its_group_after_the_run_has_ended(self, stop):
        hosting = Hosting(stop)
        hosting.says(w0=Status.DONE, w1=Status.TRAINING)
        hosting.ps.fields["run"] = RUN.replace(status=RunStatus.ENDED)
        hosting.thread.join(1.0)
        assert hosting.thread.is_alive()
        hosting.says(w0=Status.DONE, w1=Status.INTERRUPTED)
        assert isinstance(hosting.outcome(), PeerFailedError)

"""A worker's checks before it starts: it waits for every ps task and for the chief's run, or names what is missing."""

from __future__ import annotations

import dataclasses
import re

import pytest

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.ports import pick_free_ports
from ps_trainer.config import TrainConfig
from ps_trainer.errors import ClusterConfigError, Interrupted, OptionError, PeerFailedError, StartTimeoutError
from tests.testing.cluster import DEADLINE_SECS, InProcessCluster

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from ps_trainer.runtime import control, preflight, run_setup
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.run_record import FINAL, Hello, RunStatus, Status, StatusMessage
from tests.runtime.fakes import GONE, FakeControl, entry, ready_run, roster

NO_WAIT = TrainConfig(start_timeout_secs=0.05, max_steps=10)
PATIENT = dataclasses.replace(NO_WAIT, start_timeout_secs=DEADLINE_SECS)


@pytest.fixture(scope="module")
def served():
    """The worker's view of a cluster of two serving ps tasks and one worker."""
    with InProcessCluster(num_ps=2, num_workers=1) as cluster:
        yield cluster.task("worker", 0)


def worker_of(ps_addresses, worker_addresses=("localhost:1",)):
    jobs = {"ps": tuple(ps_addresses), "worker": tuple(worker_addresses)}
    return ClusterConfig(jobs=jobs, job_name="worker", task_index=0)


def cluster_of(num_ps=1, num_workers=2, worker=0):
    hosts = [f"host{i}:2222" for i in range(num_ps + num_workers)]
    jobs = {"ps": tuple(hosts[:num_ps]), "worker": tuple(hosts[num_ps:])}
    return ClusterConfig(jobs=jobs, job_name="worker", task_index=worker)


class TestWaitForPs:
    def test_returns_a_client_for_each_ps_task(self, served):
        clients = preflight.wait_for_ps(served, TrainConfig(start_timeout_secs=DEADLINE_SECS), StopRequest())
        for ps, client in enumerate(clients):
            hello = client.read().hello
            assert hello.incarnation
            assert hello == control.hello(served, ps, hello.incarnation)
        for client in clients:
            client.close()

    def test_names_the_missing_one_its_address_and_the_wait(self, served):
        (port,) = pick_free_ports(1)
        cluster = worker_of([f"localhost:{port}", served.ps_addresses[1]])
        with pytest.raises(StartTimeoutError) as caught:
            preflight.wait_for_ps(cluster, NO_WAIT, StopRequest())
        message = str(caught.value)
        assert re.search(rf"worker-0 waited \d+ s for ps-0 \(localhost:{port}\): no connection", message)
        assert "--ps_hosts" in message and "--start_timeout_secs" in message
        assert "ps-1" not in message

    @pytest.mark.parametrize("num_workers", [2, 3])
    def test_a_ps_of_another_cluster_is_detected(self, served, num_workers):
        cluster = worker_of(served.ps_addresses, [f"localhost:{1 + index}" for index in range(num_workers)])
        with pytest.raises(ClusterConfigError) as caught:
            preflight.wait_for_ps(cluster, TrainConfig(), StopRequest())
        assert f"ps-0 ({served.ps_addresses[0]}) belongs to another cluster" in str(caught.value)
        assert "'num_workers': 1" in str(caught.value) and f"'num_workers': {num_workers}" in str(caught.value)

    def test_ps_addresses_in_another_order_are_noticed(self, served):
        with pytest.raises(ClusterConfigError, match="in the same order") as caught:
            preflight.wait_for_ps(worker_of(served.ps_addresses[::-1]), TrainConfig(), StopRequest())
        assert f"ps-0 ({served.ps_addresses[1]})" in str(caught.value)

    def test_a_worker_in_the_place_of_a_ps_does_not_hang_it(self, served):
        cluster = worker_of([served.own_address])
        with pytest.raises(
            StartTimeoutError, match=rf"ps-0 \({served.own_address}\): is starting, or is not a ps task"
        ):
            preflight.wait_for_ps(cluster, NO_WAIT, StopRequest())

    def test_a_tensorflow_server_without_a_control_plane_does_not_hang_it(self):
        (port,) = pick_free_ports(1)
        cluster = worker_of([f"localhost:{port}"])
        tf.train.Server(tf.train.ClusterSpec(cluster.as_dict()), "ps", 0)
        with pytest.raises(StartTimeoutError, match=rf"ps-0 \(localhost:{port}\): is starting, or is not a ps task"):
            preflight.wait_for_ps(cluster, NO_WAIT, StopRequest())

    def test_ends_when_asked_to(self):
        (port,) = pick_free_ports(1)
        stop = StopRequest()
        stop.request(Interrupted(15))
        with pytest.raises(Interrupted):
            preflight.wait_for_ps(worker_of([f"localhost:{port}"]), TrainConfig(start_timeout_secs=DEADLINE_SECS), stop)


class TestWaitForRun:
    def ready(self, status=RunStatus.READY, config=NO_WAIT, failure="", **statuses):
        run = ready_run(status=status, agreement=run_setup.agreement(cluster_of(), config), failure=failure)
        return FakeControl(run=run, roster=roster("r", **statuses) if statuses else None)

    def wait(self, ps_0, config=NO_WAIT, stop=None):
        run = preflight.wait_for_run([ps_0], cluster_of(worker=1), config, stop or StopRequest())
        return run.run_id, run.status is RunStatus.ENDED

    @pytest.mark.parametrize("statuses", [{}, {"w0": "joined"}, {"w0": "training", "w1": "joined"}])
    def test_joins_a_ready_run(self, statuses):
        assert self.wait(self.ready(**statuses)) == ("r", False)

    def test_reports_that_the_run_ended_without_this_worker(self):
        assert self.wait(self.ready(RunStatus.ENDED, w0="done")) == ("r", True)

    @pytest.mark.parametrize("status", RunStatus)
    def test_tells_of_a_run_that_the_chief_sets_up(self, status):
        seen = []

        def note(run):
            seen.append(run.run_id)
            ps_0.fields["run"] = run.replace(status=RunStatus.READY)

        ps_0 = self.ready(status, PATIENT)
        preflight.wait_for_run([ps_0], cluster_of(worker=1), PATIENT, StopRequest(), on_starting=note)
        assert seen == (["r"] if status is RunStatus.STARTING else [])

    @pytest.mark.parametrize("statuses", [{"w0": "failed"}, {"w0": "failed", "w1": "lost"}])
    def test_a_run_that_failed_without_this_worker_is_not_a_success(self, statuses):
        ps_0 = self.ready(RunStatus.ENDED, failure="worker 0 failed: the loss is NaN", **statuses)
        with pytest.raises(PeerFailedError, match="the run ended before worker-1 joined: worker 0 failed: the loss is"):
            self.wait(ps_0)

    def test_a_chiefs_failure_that_only_a_restarted_ps_knows_belongs_to_the_run_before(self):
        ps_0 = self.ready(RunStatus.ENDED, failure="worker 0 failed")
        ps_0.fields["hello"] = Hello(incarnation="second")
        with pytest.raises(StartTimeoutError, match="for the chief"):
            self.wait(ps_0)

    @pytest.mark.parametrize("status", FINAL)
    def test_does_not_join_a_run_that_it_has_left(self, status):
        with pytest.raises(StartTimeoutError):
            self.wait(self.ready(RunStatus.ENDED, w0="done", w1=status))

    @pytest.mark.parametrize("status", [Status.FAILED, Status.INTERRUPTED, Status.LOST])
    def test_rejoins_a_run_that_continues_without_it(self, status):
        assert self.wait(self.ready(w0="training", w1=status)) == ("r", False)

    def test_does_not_rejoin_a_run_in_which_it_was_done(self):
        with pytest.raises(StartTimeoutError):
            self.wait(self.ready(w0="training", w1="done"))

    def test_does_not_join_a_run_whose_part_on_a_ps_is_lost(self):
        ps_0 = self.ready()
        ps_0.fields["hello"] = Hello(incarnation="second")
        with pytest.raises(StartTimeoutError):
            self.wait(ps_0)

    def test_its_status_in_an_earlier_run_does_not_count(self):
        ps_0 = self.ready()
        ps_0.fields["roster"] = roster("earlier", w0="done", w1="done")
        assert self.wait(ps_0) == ("r", False)

    @pytest.mark.parametrize(("run_id", "worker", "number"), [("r", 1, 3), ("r", 2, 0), ("earlier", 1, 0)])
    def test_the_roster_counts_the_joins_of_a_worker(self, run_id, worker, number):
        ps_0 = self.ready(w0="training", w1="lost")
        ps_0.fields["roster"].workers[1] = entry("lost", joining=3)
        assert preflight.last_join_number(ps_0.read(), run_id, worker) == number

    @pytest.mark.parametrize("run", [None, ready_run(status=RunStatus.STARTING, start=None)])
    def test_names_a_chief_that_does_not_come(self, run):
        with pytest.raises(StartTimeoutError, match=r"worker-1 waited 0 s for the chief \(worker-0\)"):
            self.wait(FakeControl(run=run))

    def test_waits_until_the_run_is_ready(self):
        ps_0 = FakeControl()
        ready = self.ready(config=PATIENT)
        polls = []

        class Stop(StopRequest):
            def wait(self, seconds):
                polls.append(seconds)
                if len(polls) == 3:
                    ps_0.fields = ready.fields
                return False

        assert self.wait(ps_0, PATIENT, Stop()) == ("r", False)
        assert len(polls) == 3

    def test_ends_when_asked_to(self):
        stop = StopRequest()
        stop.request(Interrupted(15))
        with pytest.raises(Interrupted):
            self.wait(FakeControl(), PATIENT, stop)

    def test_names_every_setting_that_differs_from_the_chiefs(self):
        chief = self.ready(config=dataclasses.replace(NO_WAIT, learning_rate=0.5, update="sync"))
        with pytest.raises(OptionError) as caught:
            self.wait(chief)
        assert "worker-1 was started with other settings than the chief" in str(caught.value)
        assert "--learning_rate: chief 0.5, worker-1 0.1" in str(caught.value)
        assert "--update: chief 'sync', worker-1 'async'" in str(caught.value)
        assert "--model:" not in str(caught.value)


def test_a_message_goes_to_every_reachable_ps():
    controls = [FakeControl(0), FakeControl(1), FakeControl(2)]
    controls[1].error = GONE
    message = StatusMessage(run_id="r", worker=0, entry=entry("done"))
    preflight.send_to_all(controls, message)
    assert [ps.said for ps in controls] == [[message], [], [message]]

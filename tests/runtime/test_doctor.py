"""Answers of running tasks, on real servers in this process, and the findings of the preflight from them."""

from __future__ import annotations

import dataclasses
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from ps_trainer.cluster import checks
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.findings import FAIL, OK, UNKNOWN, WARNING
from ps_trainer.cluster.network import Resolved
from ps_trainer.cluster.ports import pick_free_ports
from ps_trainer.config import TrainConfig
from ps_trainer.errors import OptionError, StartTimeoutError
from tests.testing.cluster import InProcessCluster

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from ps_trainer.runtime import control, doctor, messages, preflight, reachability, task_fingerprint
from ps_trainer.runtime.control import ControlGraph, PsClient, PsState
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.run_record import Roster, TaskFingerprint
from ps_trainer.runtime.server import session_config
from ps_trainer.store.trace import trace
from tests.runtime.fakes import FakeControl, entry, ready_run

UNRESOLVABLE = "no-such-host.invalid:2222"


@pytest.fixture(scope="module")
def served():
    """The worker's view of a running cluster of two ps tasks and two workers."""
    with InProcessCluster(num_ps=2, num_workers=2, is_new=True) as cluster:
        yield cluster.task("worker", 0)


@pytest.fixture(scope="module")
def half_blind():
    """A worker's cluster in which the ps task has another address for worker 1, one that does not resolve."""
    ps, w0, w1 = (f"localhost:{port}" for port in pick_free_ports(3))
    jobs = {"ps": (ps,), "worker": (w0, w1)}
    wrong = {"ps": [ps], "worker": [w0, UNRESOLVABLE]}
    servers = [tf.train.Server(tf.train.ClusterSpec(wrong), "ps", 0)]
    servers += [tf.train.Server(tf.train.ClusterSpec(jobs), "worker", index) for index in range(2)]
    graph = ControlGraph()
    of_ps = ClusterConfig(jobs=wrong, job_name="ps", task_index=0)
    with tf.Session(servers[0].target, graph=graph.graph, config=session_config(of_ps.device, peers=())) as session:
        session.run(graph.init_op)
        hello = control.hello(of_ps, 0)
        session.run(graph.write["hello"], {graph.value: messages.encode(hello)})
        yield ClusterConfig(jobs=jobs, job_name="worker", task_index=1)


def found_by(cluster, **settings):
    return list(doctor.examine(cluster, checks.probe(cluster), settings))


def reach_of(cluster, partners):
    """The findings where all tasks run, beside a run with these circles of workers."""
    places, state = list(checks.probe(cluster)), PsState(run=ready_run(partners=partners))
    with ThreadPoolExecutor() as pool:
        return list(doctor._reach_findings(pool, cluster, places, places, state))


def of_level(findings, level):
    return [f"{finding.topic}: {finding.message}" for finding in findings if finding.level == level]


def model_trace(units, activation=tf.nn.relu, batch=8):
    def build():
        x = tf.placeholder(tf.float32, [batch, 4])
        return activation(tf.matmul(x, tf.get_variable("kernel", [4, units])))

    return trace(build, seed=0)


class TestReach:
    def test_a_server_returns_its_identity_and_its_time(self, served):
        answer = reachability.ask(served.jobs["worker"][1])
        assert answer.device == "/job:worker/task:1"
        assert abs(answer.ahead_secs) <= answer.uncertain_secs + 0.05  # client and server have the same clock

    def test_a_missing_task_is_an_error_within_the_deadline(self):
        (port,) = pick_free_ports(1)
        with pytest.raises(tf.errors.OpError):
            reachability.ask(f"localhost:{port}", deadline_secs=0.5)

    def test_a_task_reaches_another_by_its_own_view_of_the_cluster(self, half_blind):
        ps, worker_1 = half_blind.ps_addresses[0], half_blind.jobs["worker"][1]
        assert reachability.fault_between(ps, "/job:worker/task:0") == ""
        assert reachability.fault_between(worker_1, "/job:ps/task:0") == ""
        assert "no-such-host.invalid" in reachability.fault_between(ps, "/job:worker/task:1")
        assert reachability.fault_between(ps, "/job:worker/task:9") == "its cluster definition has no such task"

    def test_a_silent_peer_is_given_up_and_the_asked_task_continues(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            ps, w0 = (f"localhost:{port}" for port in pick_free_ports(2))
            jobs = {"ps": [ps], "worker": [w0, f"localhost:{silent.getsockname()[1]}"]}
            servers = [tf.train.Server(tf.train.ClusterSpec(jobs), job, 0) for job in ("ps", "worker")]
            assert reachability.fault_between(ps, "/job:worker/task:1", deadline_secs=0.5) == "no answer within 0.5 s"
            assert reachability.fault_between(ps, "/job:worker/task:0") == ""
            assert len(servers) == 2


class TestExamine:
    def test_a_healthy_cluster(self, served):
        findings = found_by(served)
        assert of_level(findings, FAIL) == of_level(findings, WARNING) == []
        said = "\n".join(of_level(findings, OK))
        assert (
            f"cluster: same addresses (hash {task_fingerprint.cluster_hash(served)}), TensorFlow {tf.__version__}"
            in said
        )
        # 2 ps x 2 workers, both ways
        assert f"reach: in both directions, asked on the tasks themselves: {2 * 2 * 2} connections" in said
        assert "clocks: within" in said

    def test_a_ps_that_does_not_reach_a_worker_is_named_and_the_other_direction_is_ok(self, half_blind):
        found = of_level(found_by(half_blind), FAIL)
        assert len(found) == 1
        ps, worker = half_blind.ps_addresses[0], half_blind.jobs["worker"][1]
        assert found[0].startswith(f"reach: ps-0 ({ps}) does not reach worker-1 ({worker}), and a ps task must reach")
        assert "no-such-host.invalid" in found[0] and "through firewalls" in found[0]

    @pytest.mark.parametrize(("partners", "num_connections"), [([[0], [1]], 8), ([[0, 1]], 10), ([[0, 1, 2]], 10)])
    def test_workers_that_send_tensors_to_each_other_are_asked_as_well(self, served, partners, num_connections):
        (finding,) = reach_of(served, partners)
        assert f"{num_connections} connections" in finding.message
        assert ("workers to workers among them" in finding.message) == (num_connections == 10)

    def test_a_worker_that_does_not_reach_its_partner_is_named(self, half_blind):
        w0, w1 = (f"localhost:{port}" for port in pick_free_ports(2))
        right = ClusterConfig(jobs={"ps": half_blind.ps_addresses, "worker": (w0, w1)}, job_name="worker", task_index=0)
        views = [right.jobs | {"worker": (w0, UNRESOLVABLE)}, right.jobs]
        servers = [tf.train.Server(tf.train.ClusterSpec(view), "worker", index) for index, view in enumerate(views)]
        assert len(servers) == 2
        (found,) = [finding for finding in reach_of(right, [[0, 1]]) if "worker-0" in finding.message.split()[0]]
        assert found.level == FAIL
        assert f"worker-0 ({w0}) does not reach worker-1 ({w1}), and these workers send tensors" in found.message

    def test_other_addresses_are_a_warning(self, half_blind):
        (found,) = of_level(found_by(half_blind), WARNING)
        assert "was given other addresses than those here" in found and "unless a tunnel needs" in found

    def test_a_task_in_the_place_of_another(self, served):
        jobs = {"ps": served.ps_addresses[::-1], "worker": served.jobs["worker"]}
        found = of_level(found_by(dataclasses.replace(served, jobs=jobs)), FAIL)
        assert f"ps-0 ({jobs['ps'][0]}): the server there is /job:ps/task:1, not /job:ps/task:0" in found[0]
        assert len(found) == 2

    def test_a_cluster_of_another_size(self, served):
        jobs = {"ps": served.ps_addresses, "worker": served.jobs["worker"][:1]}
        found = of_level(found_by(dataclasses.replace(served, jobs=jobs)), FAIL)
        assert [line.partition(": it says")[0] for line in found] == [
            f"cluster: ps-{index} ({address}) belongs to another cluster" for index, address in enumerate(jobs["ps"])
        ]

    def test_tasks_that_do_not_run_yet(self, served):
        (port,) = pick_free_ports(1)
        jobs = {"ps": served.ps_addresses, "worker": (served.jobs["worker"][0], f"localhost:{port}")}
        found = of_level(found_by(dataclasses.replace(served, jobs=jobs)), UNKNOWN)
        assert any(f"worker-1 (localhost:{port}): only a running task knows what it reaches" in line for line in found)

    def test_a_listener_that_is_not_a_server(self):
        with socket.create_server(("127.0.0.1", 0)) as sock:
            address = f"localhost:{sock.getsockname()[1]}"
            place = checks.TaskAddress("ps", 0, address, "localhost", 1, Resolved(("127.0.0.1",)), True, "", False)
            cluster = ClusterConfig(jobs={"ps": (address,), "worker": ("h:1",)}, job_name="ps", task_index=0)
            findings = list(doctor.examine(cluster, [place], {}))
        assert "no TensorFlow server answers" in of_level(findings, FAIL)[0]


class TestJob:
    CLUSTER = ClusterConfig(jobs={"ps": ("p:1",), "worker": ("w:1", "w:2")}, job_name="worker", task_index=0)

    def found(self, workers, settings=None):
        roster = Roster(run_id="r", workers=dict(enumerate(workers)))
        state = PsState(run=ready_run(agreement=TrainConfig().agreement()), roster=roster)
        return list(doctor._job_findings(self.CLUSTER, state, settings or {}))

    def worker(self, status="training", **own_fields):
        fingerprint = dataclasses.replace(
            task_fingerprint.of(self.CLUSTER), **{"variables": "v", "graph": "g"} | own_fields
        )
        return entry(status, fingerprint=fingerprint)

    def test_workers_that_agree(self):
        findings = self.found([self.worker(), self.worker()])
        assert of_level(findings, OK) == [
            "job: run r is ready: worker-0 training, worker-1 training",
            "workers: same addresses, TensorFlow and model (hash g): worker-0, worker-1",
        ]
        assert len(findings) == 2

    @pytest.mark.parametrize(
        ("own_fields", "level", "words"),
        [
            (
                {"variables": "x"},
                FAIL,
                "worker-1 has other variables than the one on the chief (hash x, on the chief v)",
            ),
            ({"graph": "x"}, WARNING, "worker-1 has another graph than the one on the chief"),
            ({"tensorflow": "2.0"}, WARNING, f"worker-1 has TensorFlow 2.0, here it is {tf.__version__}"),
            ({"cluster": "x"}, WARNING, "worker-1 was given other addresses"),
        ],
    )
    def test_a_worker_that_differs(self, own_fields, level, words):
        (found,) = of_level(self.found([self.worker(), self.worker(**own_fields)]), level)
        assert words in found

    def test_a_failed_worker_and_a_missing_worker(self):
        findings = self.found([entry("failed", reason="disk")])
        assert of_level(findings, OK) == ["job: run r is ready: worker-0 failed, worker-1 not joined"]
        assert "worker 0 failed: disk; look at its log" in of_level(findings, WARNING)[0]

    def test_flags_with_which_the_chief_would_reject_a_worker(self):
        (found,) = of_level(self.found([self.worker()], {"learning_rate": 0.5, "seed": 0}), FAIL)
        assert "--learning_rate: chief 0.1, this command 0.5" in found and "--seed" not in found

    def test_a_clock_that_differs(self):
        place = checks.TaskAddress("ps", 0, "p:1", "p", 1, Resolved(("10.0.0.1",)), False, "", False)
        ahead = doctor._Live(place, reachability.ServerAnswer(place.device, 90.0, 0.01))
        (finding,) = doctor._clock_findings([ahead])
        assert finding.level == WARNING and "ps-0 (p:1): its clock is 90.0 s ahead of this machine's" in finding.text
        unsure = doctor._Live(place, reachability.ServerAnswer(place.device, 2.0, 1.5))
        assert doctor._clock_findings([unsure]).__next__().level == OK


class TestPreflight:
    def test_a_worker_that_a_ps_does_not_reach_does_not_start(self, half_blind):
        with pytest.raises(StartTimeoutError) as caught:
            preflight.wait_for_ps(half_blind, TrainConfig(start_timeout_secs=0.05), StopRequest())
        expected = preflight.unreached_finding(
            f"ps-0 ({half_blind.ps_addresses[0]})", f"worker-1 ({half_blind.own_address})", ""
        )
        assert expected.text in str(caught.value)

    def test_a_worker_that_every_ps_reaches_starts(self, half_blind):
        worker_0 = dataclasses.replace(half_blind, task_index=0)
        for client in preflight.wait_for_ps(worker_0, TrainConfig(start_timeout_secs=60), StopRequest()):
            client.close()

    def test_an_evaluator_need_not_be_reached(self, half_blind):
        evaluator = dataclasses.replace(half_blind, job_name="evaluator", task_index=0)
        for client in preflight.wait_for_ps(evaluator, TrainConfig(start_timeout_secs=60), StopRequest()):
            client.close()

    def test_a_worker_with_another_model_than_the_chief_is_rejected(self):
        chief = ClusterConfig(jobs={"ps": ("p:1",), "worker": ("w:1", "w:2")}, job_name="worker", task_index=0)
        worker = dataclasses.replace(chief, task_index=1)
        ps_0 = FakeControl(run=ready_run(model=task_fingerprint.of_model(model_trace(2))))
        preflight.check_same_model(ps_0, task_fingerprint.of_model(model_trace(2, batch=3)), worker)
        with pytest.raises(OptionError, match=r"the model of worker-1 has other variables than the one on the chief"):
            preflight.check_same_model(ps_0, task_fingerprint.of_model(model_trace(3)), worker)

    def test_another_graph_of_the_same_variables_is_a_warning(self, caplog):
        own, other = task_fingerprint.of_model(model_trace(2)), task_fingerprint.of_model(model_trace(2, tf.nn.tanh))
        assert own.variables == other.variables and own.graph != other.graph
        assert [finding.level for finding in task_fingerprint.differences(own, other, "worker-1")] == [WARNING]


def test_fields_that_one_side_does_not_report_are_not_a_difference():
    assert task_fingerprint.differences(TaskFingerprint(tensorflow="1"), TaskFingerprint(), "x") == []
    assert task_fingerprint.differences(TaskFingerprint(), TaskFingerprint(graph="1"), "x") == []


def test_the_ps_tasks_report_their_fingerprints(served):
    client = PsClient(served.ps_addresses[0], 0)
    assert client.read().hello.fingerprint == task_fingerprint.of(served)
    client.close()

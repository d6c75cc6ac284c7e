"""The control plane, on a real server in this process."""

from __future__ import annotations

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import ps_trainer
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.ports import pick_free_ports
from tests.testing.cluster import environment  # noqa: F401 - prepares TensorFlow's environment

import tensorflow.compat.v1 as tf  # isort: skip - after the environment

from ps_trainer.runtime import control, messages, task_fingerprint
from ps_trainer.runtime.control import ControlGraph, PsClient, PsState
from ps_trainer.runtime.run_record import (
    AliveMessage,
    EndNotice,
    Hello,
    PartResult,
    RunRecord,
    RunStatus,
    Status,
    StatusMessage,
    WorkerEntry,
)
from ps_trainer.runtime.server import session_config


@pytest.fixture
def server():
    """A server without any state; its address and target."""
    (port,) = pick_free_ports(1)
    address = f"localhost:{port}"
    jobs = {"ps": (address,), "worker": ("localhost:1",)}
    cluster = ClusterConfig(jobs=jobs, job_name="ps", task_index=0)
    server = tf.train.Server(tf.train.ClusterSpec(cluster.as_dict()), "ps", 0)
    return address, server.target, cluster


@pytest.fixture
def client(server):
    client = PsClient(server[0], 0)
    yield client
    client.close()


def run_of(run_id, **fields):
    """A run's record."""
    defaults = {"status": RunStatus.STARTING, "agreement": {}, "incarnations": ("first-0",)}
    return RunRecord(run_id=run_id, **defaults | fields)


def report(status):
    return StatusMessage(run_id="a1", worker=1, entry=WorkerEntry(status=status))


def alive(worker):
    return AliveMessage(run_id="a1", worker=worker)


def own_session(server, graph):
    return tf.Session(server[1], graph=graph.graph, config=session_config(server[2].device, peers=()))


def test_a_read_before_the_ps_has_begun_returns_no_state(client):
    with pytest.raises(tf.errors.FailedPreconditionError):
        client.read()


def test_written_records_are_read_back(server, client):
    graph = ControlGraph()
    with own_session(server, graph) as session:
        session.run(graph.init_op)
        assert client.read() == PsState()
        run = run_of("a1", agreement={"model": "m", "option": ["x=ü"]})
        client.write_run(run)
        session.run(graph.write["notice"], {graph.value: messages.encode(EndNotice(reason="why"))})
        assert client.read() == PsState(run=run, notice=EndNotice(reason="why"))


def test_mail_arrives_in_order_and_waits_for_its_reader(server, client):
    graph = ControlGraph()
    with own_session(server, graph) as session:
        for status in (Status.JOINED, Status.TRAINING, Status.DONE):
            client.send(report(status))
        got = [json.loads(session.run(graph.receive))["status"] for _ in range(3)]
    assert got == ["joined", "training", "done"]


def test_parts_of_an_evaluation_are_counted_and_results_wait_for_the_chief(server, client):
    graph, other = ControlGraph(), PsClient(server[0], 0)
    results = [
        PartResult(call_id="c", part=part, worker=1, num_examples=2, loss=0.5, weight=2.0, totals={}, collected={})
        for part in range(2)
    ]
    with own_session(server, graph) as session, ThreadPoolExecutor(2) as pool:
        session.run(graph.init_op)
        clients = [client, other] * 20
        assert sorted(pool.map(PsClient.take_part, clients)) == list(range(40))
        client.begin_parts()
        assert other.take_part() == 0
        assert client.receive_parts() == []
        other.send_part(results[0])
        session.run(graph.send_part, {graph.value: "no result"})
        other.send_part(results[1])
        assert client.receive_parts() == results  # what a stranger has written is left out
        assert client.receive_parts() == []
    other.close()


def test_all_sessions_of_a_process_share_one_graph_that_nobody_changes():
    graph = ControlGraph.shared()
    assert ControlGraph.shared() is graph
    with graph.graph.as_default(), pytest.raises(RuntimeError, match="finalized"):
        tf.constant(0)


def test_two_clients_read_the_same_state(server, client):
    graph = ControlGraph()
    with own_session(server, graph) as session:
        session.run(graph.init_op)
    other = PsClient(server[0], 0)
    client.write_run(run_of("b"))
    assert other.read().run == run_of("b")
    other.close()


def test_calls_from_many_threads_do_not_disturb_each_other(server, client):
    graph = ControlGraph()
    with own_session(server, graph) as session, ThreadPoolExecutor(8) as pool:
        session.run(graph.init_op)
        list(pool.map(lambda i: client.send(alive(i)), range(40)))
        got = {json.loads(session.run(graph.receive))["worker"] for _ in range(40)}
    assert got == set(range(40))


def test_a_closed_client_opens_no_session(server, client):
    """A heartbeat or a watcher may call the client once more after its end."""
    graph = ControlGraph()
    with own_session(server, graph) as session:
        session.run(graph.init_op)
    client.read()
    client.close()
    client.close()
    for call in (client.read, lambda: client.send(alive(1)), lambda: client.write_run(run_of("b"))):
        with pytest.raises(tf.errors.CancelledError, match="the connection to ps-0 .* was closed"):
            call()
    assert client._session is None


class SlowSession:
    """Stands for a session to a ps task that is too slow for its first calls."""

    def __init__(self, num_late):
        self.num_late = num_late
        self.num_calls = 0

    def run(self, fetches, feeds=None):
        self.num_calls += 1
        if self.num_calls <= self.num_late:
            raise tf.errors.DeadlineExceededError(None, None, "late")
        return [b"{}"] * 5

    def close(self):
        pass


@pytest.fixture
def slow(monkeypatch):
    """Makes a client of a ps task that is too slow for the first 4 calls, with the client's session."""

    def create(patience_secs):
        session = SlowSession(num_late=4)
        monkeypatch.setattr(control.tf, "Session", lambda *args, **kwargs: session)
        monkeypatch.setattr(control.network, "fault_of", lambda *args: "")
        return PsClient("localhost:1", 0, patience_secs=patience_secs), session

    return create


def test_a_patient_call_is_repeated(slow):
    client, session = slow(patience_secs=60.0)
    assert client.read(is_patient=True) == PsState()
    assert session.num_calls == 4 + 1
    client, session = slow(patience_secs=60.0)
    client.write_run(run_of("a"))
    assert session.num_calls == 4 + 1


def test_impatient_calls_and_calls_without_patience_are_made_once(slow):
    for patience_secs, call in ((60.0, PsClient.read), (0.0, lambda client: client.read(is_patient=True))):
        client, session = slow(patience_secs)
        with pytest.raises(tf.errors.DeadlineExceededError):
            call(client)
        assert session.num_calls == 1
    client, session = slow(patience_secs=60.0)
    with pytest.raises(tf.errors.DeadlineExceededError):
        client.send(alive(1))
    assert session.num_calls == 1


@pytest.mark.parametrize("kind", ["dead", "silent"])
def test_no_answer_is_an_error_within_the_deadline(kind):
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        if kind == "silent":
            listener.listen()
        client = PsClient(f"localhost:{listener.getsockname()[1]}", 0, call_timeout_secs=0.5)
        started = time.monotonic()
        with pytest.raises(tf.errors.OpError):
            client.read()
        assert time.monotonic() - started < 0.5 + 5.0  # an error by the deadline, with allowance for a busy machine
        client.close()


def test_a_client_works_again_after_an_error(server):
    client = PsClient(server[0], 0)
    with pytest.raises(tf.errors.FailedPreconditionError):
        client.read()
    graph = ControlGraph()
    with own_session(server, graph) as session:
        session.run(graph.init_op)
    assert client.read() == PsState()
    client.close()


def test_the_control_plane_survives_the_end_of_a_run(server, client):
    """It lies in a separate container, so a run's variables of the same names are different ones."""
    graph = ControlGraph()
    with own_session(server, graph) as session:
        session.run(graph.init_op)
        client.write_run(run_of("kept"))
    with tf.Graph().as_default() as other, other.container("run"), tf.device("/job:ps/task:0"):
        variable = tf.get_variable("control/run", [], tf.string, initializer=tf.constant_initializer("lost"))
        with tf.Session(server[1], config=session_config("/job:ps/task:0", peers=())) as session:
            session.run(variable.initializer)
            assert session.run(variable) == b"lost"
    assert client.read().run == run_of("kept")


def test_hello_names_version_place_and_size_of_the_cluster():
    jobs = {"ps": ("h:1", "h:2"), "chief": ("h:3",), "worker": ("h:4", "h:5")}
    cluster = ClusterConfig(jobs=jobs, job_name="worker", task_index=0)
    assert control.hello(cluster, 1, incarnation="x") == Hello(
        version=ps_trainer.__version__,
        ps=1,
        num_ps=2,
        num_workers=1 + 2,
        incarnation="x",
        fingerprint=task_fingerprint.of(cluster),
    )

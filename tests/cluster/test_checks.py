"""Tests of ps_trainer.cluster.checks: the doctor's findings without TensorFlow."""

from __future__ import annotations

import socket

import pytest

from ps_trainer.cluster import checks, network, ports
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.findings import FAIL, OK, UNKNOWN, WARNING, ClusterFinding, will_fail
from ps_trainer.cluster.network import Resolved

REFUSED = "nothing listens there: connection refused"


def cluster_of(ps, workers, job_name="evaluator", index=0):
    return ClusterConfig(jobs={"ps": tuple(ps), "worker": tuple(workers)}, job_name=job_name, task_index=index)


def place(address, *, job="worker", index=0, ips=("10.0.0.9",), is_local=False, problem="", is_free=False):
    host, _, port = address.rpartition(":")
    return checks.TaskAddress(job, index, address, host, int(port), Resolved(ips, ""), is_local, problem, is_free)


def levels(findings):
    return [finding.level for finding in findings]


def test_a_line_has_level_topic_text_and_fix():
    assert ClusterFinding(FAIL, "ports", "port 1\nis in use", "stop it").line() == (
        "will fail  ports       port 1 is in use; stop it"
    )
    assert will_fail([ClusterFinding(OK, "a", "b"), ClusterFinding(FAIL, "a", "b")])
    assert not will_fail([ClusterFinding(WARNING, "a", "b"), ClusterFinding(UNKNOWN, "a", "b")])


class TestLookAt:
    def test_a_free_port_of_this_machine_is_only_bound(self, monkeypatch):
        monkeypatch.setattr(network.socket, "create_connection", None)  # a connection would fail the test
        cluster = cluster_of(*([f"localhost:{port}"] for port in ports.pick_free_ports(2)))
        for found in checks.probe(cluster):
            assert found.is_local and found.is_free and not found.answers and not found.problem

    def test_a_port_in_use_that_answers_differs_from_one_that_does_not(self):
        with socket.create_server(("127.0.0.1", 0)) as listens, socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            addresses = [f"localhost:{sock.getsockname()[1]}" for sock in (listens, bound)]
            answering, silent = checks.probe(cluster_of(addresses[:1], addresses[1:]))
            assert answering.answers
            assert not silent.answers and "is in use" in silent.problem
            (finding,) = checks.own_ports([silent])
            assert finding.level == FAIL and finding.fix == "stop that process or choose another port"

    def test_a_check_does_not_keep_a_server_from_starting(self):
        (port, other) = ports.pick_free_ports(2)
        checks.probe(cluster_of([f"localhost:{port}"], [f"localhost:{other}"]))
        with socket.create_server(("", port)):
            pass

    def test_a_name_that_does_not_resolve(self):
        places = checks.probe(cluster_of(["no-such-host.invalid:2222"], ["localhost:2223"]))
        findings = list(checks.names(places))
        assert levels(findings) == [FAIL]
        assert "ps-0 (no-such-host.invalid:2222): the name no-such-host.invalid does not resolve" in findings[0].text
        assert not list(checks.others(places[:1], is_running=False))  # reported once


def test_loopback_names_are_errors_beside_another_machine():
    here = place("localhost:2222", job="ps", ips=("127.0.0.1",), is_local=True, is_free=True)
    assert levels(checks.names([here])) == [OK]
    wrong, right = checks.names([here, place("h1:2222")])
    assert wrong.level == FAIL and "means each machine itself, and worker-0 (h1:2222) is on another" in wrong.text
    assert right.level == OK
    # An entry for a machine's own name in /etc/hosts is not a mistake.
    named = place("h0:2222", job="ps", ips=("127.0.1.1",), is_local=True, is_free=True)
    assert levels(checks.names([named, place("h1:2222")])) == [OK]


def test_a_port_that_the_kernel_may_take_is_a_warning():
    low, high = ports.ephemeral_range()
    found = list(checks.own_ports([place(f"localhost:{low}", is_local=True, is_free=True)]))
    assert levels(found) == [OK, WARNING]
    assert f"{low}..{high}" in found[1].text


def test_a_cluster_without_a_task_on_this_machine_is_reported():
    (finding,) = checks.own_ports([place("h1:2222", problem=REFUSED)])
    assert finding.level == UNKNOWN and finding.fix == "run this on h1"


@pytest.mark.parametrize(
    ("problem", "is_running", "level", "words"),
    [
        (REFUSED, False, OK, "the machine answers, and no task runs yet: worker-0 (h1:2222)"),
        (REFUSED, True, WARNING, "not running: worker-0 (h1:2222)"),
        ("no answer within 3 s: its machine is off", False, FAIL, "worker-0 (h1:2222): no answer within 3 s"),
        ("No route to host", True, FAIL, "No route to host"),
    ],
)
def test_a_task_elsewhere_that_does_not_answer(problem, is_running, level, words):
    (finding,) = checks.others([place("h1:2222", problem=problem)], is_running=is_running)
    assert finding.level == level and words in finding.text


@pytest.mark.parametrize(
    ("bound", "interfaces", "isolation", "level", "words"),
    [
        ({"127.0.0.1"}, {"eth0": ["10.0.0.1"]}, None, OK, "on loopback only: outsiders cannot reach it"),
        ({"::"}, {"lo": ["127.0.0.1"]}, None, OK, "only loopback is up; no outsider can reach it"),
        ({"::"}, {"eth0": ["10.0.0.1"]}, "vpn", OK, "10.0.0.1 (eth0); --isolation states what keeps strangers away"),
        (
            set(),
            {"eth0": ["10.0.0.1"]},
            None,
            WARNING,
            "will listen on every interface: 10.0.0.1 (eth0); anyone who reaches",
        ),
        ({"::"}, {"eth0": ["8.8.8.8"]}, None, WARNING, "8.8.8.8 (eth0), including a public address"),
    ],
)
def test_reports_which_machines_can_reach_the_ports(monkeypatch, bound, interfaces, isolation, level, words):
    monkeypatch.setattr(network, "listening_ips", lambda _: bound)
    monkeypatch.setattr(network, "interfaces", lambda: interfaces)
    finding = checks.listening([("ps-0", 2222)], isolation)
    assert finding.level == level and words in finding.text


def test_a_task_on_another_machine_than_its_address_is_an_error():
    cluster = cluster_of(["h0:1"], ["h1:1"], "worker", 0)
    away = [place("h0:1", job="ps"), place("h1:1")]
    finding = checks.own_host(cluster, away)
    assert finding.level == WARNING and "this machine has none of the addresses of h1 (10.0.0.9)" in finding.text
    assert checks.own_host(cluster, [away[0], place("h1:1", is_local=True)]) is None
    assert checks.own_host(cluster_of(["h0:1"], ["h1:1"]), away) is None

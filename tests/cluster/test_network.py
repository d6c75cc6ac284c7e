"""Tests of ps_trainer.cluster.network, on loopback only."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import time

import pytest

from ps_trainer.cluster import network
from ps_trainer.cluster.ports import pick_free_ports

UNRESOLVABLE = "no-such-host.invalid"


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock


def test_a_name_and_an_address_resolve():
    assert "127.0.0.1" in network.resolve("localhost").ips
    assert network.resolve("127.0.0.1") == network.Resolved(("127.0.0.1",))


@pytest.mark.parametrize("host", [UNRESOLVABLE, "x" * 64 + ".example"])
def test_a_name_that_does_not_resolve_has_a_reason(host):
    resolved = network.resolve(host)
    assert resolved.ips == () and resolved.problem


def test_a_name_service_that_does_not_answer_is_given_up(monkeypatch):
    monkeypatch.setattr(network.socket, "getaddrinfo", lambda *_, **__: time.sleep(60) or [])
    assert network.resolve("h", deadline_secs=0.05) == ((), "no answer from the name service within 0.05 s")


def test_a_possible_connection_has_no_fault(listener):
    assert network.fault_of(f"localhost:{listener.getsockname()[1]}") == ""


def test_faults_are_described_in_words():
    (port,) = pick_free_ports(1)
    assert network.fault_of(f"localhost:{port}") == "nothing listens there: connection refused"
    assert network.fault_of(f"{UNRESOLVABLE}:1").startswith(f"the name {UNRESOLVABLE} does not resolve: ")


def test_silence_differs_from_rejection():
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = listener.getsockname()
        for _ in range(4):  # no process accepts them; when the queue is full, the kernel drops further ones
            client = sockets.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(address)
        fault = network.fault_of(f"127.0.0.1:{address[1]}", 0.5)
    assert fault == "no answer within 0.5 s: its machine is off, or a firewall drops the packets"


def test_recognises_this_machines_own_addresses():
    assert network.is_own("127.0.0.1") and network.is_own("127.0.0.5")
    assert not network.is_own("192.0.2.77")  # TEST-NET-1, which belongs to no machine
    assert not network.is_own("no address")


@pytest.mark.skipif(not pathlib.Path("/proc/net/tcp").exists(), reason="no /proc")
def test_lists_the_addresses_on_which_a_port_listens(listener):
    assert network.listening_ips(listener.getsockname()[1]) == {"127.0.0.1"}
    with socket.create_server(("", 0)) as everywhere:
        assert network.listening_ips(everywhere.getsockname()[1]) == {"0.0.0.0"}
    (port,) = pick_free_ports(1)
    assert network.listening_ips(port) == set()


def test_loopback_is_among_the_interfaces():
    assert "127.0.0.1" in network.interfaces().get("lo", ["127.0.0.1"])

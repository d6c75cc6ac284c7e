"""Tests of ps_trainer.cluster.ports; every port is chosen by the kernel or was found free."""

from __future__ import annotations

import os
import pathlib
import socket

import pytest

from ps_trainer.cluster import ports
from ps_trainer.errors import ClusterConfigError


@pytest.fixture(params=["127.0.0.1", ""], ids=["loopback", "every_interface"])
def listener(request):
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((request.param, 0))
        sock.listen()
        yield sock


def test_names_the_process_that_uses_the_port(listener):
    port = listener.getsockname()[1]
    with pytest.raises(ClusterConfigError) as caught:
        ports.check_port_free(f"localhost:{port}")
    message = str(caught.value)
    assert message.startswith(f"port {port} of localhost:{port} is in use")
    assert "stop that process or choose another port" in message
    if pathlib.Path("/proc/self/net/tcp").exists():
        assert f"by pid {os.getpid()} (" in message


def test_a_port_is_free_again_while_old_connections_are_in_time_wait():
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = server.accept()
            accepted.close()  # the side that closes first stays in TIME_WAIT
            assert client.recv(1) == b""
    ports.check_port_free(f"localhost:{port}")


def test_reports_that_this_user_may_not_use_a_port(monkeypatch):
    def refuse(port, *, reuse):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(ports, "_bind_everywhere", refuse)
    with pytest.raises(ClusterConfigError, match=r"port 80 of h:80 may not be used by this user; choose one of 1024"):
        ports.check_port_free("h:80")


def test_picks_different_free_ports_that_are_not_ephemeral(tmp_path):
    range_file = tmp_path / "range"
    range_file.write_text("20000\t60000\n")
    picked = ports.pick_free_ports(20, range_file)
    assert len(set(picked)) == 20
    assert not [port for port in picked if 20000 <= port <= 60000 or port < 10000]
    for port in picked:
        ports.check_port_free(f"localhost:{port}")


def test_picks_at_random():
    assert ports.pick_free_ports(10) != ports.pick_free_ports(10)


def test_finds_the_only_free_port_of_many(monkeypatch, tmp_path):
    def refuse(port, *, reuse):
        if port != 10_007:
            raise OSError
        return socket.socket()

    monkeypatch.setattr(ports, "_bind_everywhere", refuse)
    monkeypatch.setattr(ports.addresses, "MAX_PORT", 10_020)
    range_file = tmp_path / "range"
    range_file.write_text("10005 10010")
    assert ports.pick_free_ports(1, range_file) == [10_007]


def test_does_not_pick_a_port_in_use(monkeypatch, listener):
    port = listener.getsockname()[1]
    monkeypatch.setattr(ports, "LOWEST_PICKED_PORT", port)
    monkeypatch.setattr(ports.addresses, "MAX_PORT", port)  # so that only one candidate exists
    with pytest.raises(
        ClusterConfigError, match="the tasks need 1 free ports, and this machine has 0; start fewer tasks"
    ):
        ports.pick_free_ports(1)


def test_uses_the_kernels_default_range_where_proc_lacks_it(tmp_path):
    picked = ports.pick_free_ports(20, tmp_path / "missing")
    assert not [port for port in picked if 32768 <= port <= 60999]

"""The kernel's counts of this process's connections, of real sockets over loopback."""

from __future__ import annotations

import contextlib
import os
import socket

import pytest

from ps_trainer.metrics import traffic
from ps_trainer.metrics.traffic import BytesPerStep, SocketTraffic, StepTraffic, Traffic

pytestmark = pytest.mark.skipif(not traffic.is_supported(), reason="the counts are Linux's")

SYN_BYTES = 1  # the kernel counts the opening of a connection as one byte from the opener


class Link(contextlib.ExitStack):
    """A TCP connection within this process; `port` belongs to the accepting end."""

    def __init__(self, family=socket.AF_INET, host="127.0.0.1"):
        super().__init__()
        with socket.socket(family) as listener:
            listener.bind((host, 0))
            listener.listen()
            self.port = listener.getsockname()[1]
            self.opened = self.enter_context(socket.socket(family))
            self.opened.connect((host, self.port))
            self.accepted = self.enter_context(listener.accept()[0])

    def send_to_opener(self, num_bytes):
        _transfer(self.accepted, self.opened, num_bytes)

    def send_to_accepter(self, num_bytes):
        _transfer(self.opened, self.accepted, num_bytes)


def _transfer(sender, receiver, num_bytes):
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(num_bytes // 1000):  # small enough parts to fit the buffers
        sender.sendall(b"x" * 1000)
        assert len(receiver.recv(1000, socket.MSG_WAITALL)) == 1000


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_counts_both_directions_of_an_opened_connection(family, host):
    with Link(family, host) as to_ps:
        counter = SocketTraffic(None, [to_ps.port])
        assert counter.sample() == Traffic(SYN_BYTES, 0)
        to_ps.send_to_opener(50_000)  # parameters
        to_ps.send_to_accepter(3_000)  # requests
        assert counter.sample() == Traffic(push_bytes=SYN_BYTES + 3_000, pull_bytes=50_000)


def test_counts_both_directions_of_an_accepted_connection():
    with Link() as from_ps:
        counter = SocketTraffic(from_ps.port, [])
        from_ps.send_to_opener(40_000)  # gradients
        from_ps.send_to_accepter(2_000)  # requests
        assert counter.sample() == Traffic(push_bytes=40_000, pull_bytes=2_000)


def test_sums_the_connections_of_the_cluster_and_no_others():
    with Link() as first, Link() as second, Link() as own, Link() as stranger:
        counter = SocketTraffic(own.port, [first.port, second.port])
        first.send_to_opener(1_000)
        second.send_to_opener(2_000)
        own.send_to_opener(4_000)
        stranger.send_to_opener(8_000)
        assert counter.sample() == Traffic(push_bytes=2 * SYN_BYTES + 4_000, pull_bytes=1_000 + 2_000)


def test_totals_keep_the_bytes_of_closed_connections():
    with Link() as lasting:
        with Link() as closing:
            counter = SocketTraffic(None, [lasting.port, closing.port])
            closing.send_to_opener(7_000)
            lasting.send_to_opener(1_000)
            before = counter.sample()
        after = counter.sample()
        assert before == after == Traffic(2 * SYN_BYTES, 7_000 + 1_000)
        lasting.send_to_opener(1_000)
        assert counter.sample().pull_bytes == 7_000 + 2_000


def test_a_new_connection_with_a_closed_ones_descriptor_is_counted_beside_it():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        counter = SocketTraffic(None, [listener.getsockname()[1]])
        descriptors = []
        for num_bytes in (9_000, 5_000):
            with socket.create_connection(listener.getsockname()) as opened, listener.accept()[0] as accepted:
                _transfer(accepted, opened, num_bytes)
                descriptors.append(opened.fileno())
                total = counter.sample()
    assert descriptors[0] == descriptors[1]
    assert total == Traffic(2 * SYN_BYTES, 9_000 + 5_000)


def test_other_descriptors_are_skipped_and_none_is_left_open():
    with contextlib.ExitStack() as stack:
        link = stack.enter_context(Link())
        stack.enter_context(open(os.devnull))
        for sock in (socket.socket(socket.AF_UNIX), socket.socket(type=socket.SOCK_DGRAM), socket.socket()):
            stack.enter_context(sock)
        before = sorted(os.listdir("/proc/self/fd"))
        found = list(traffic.connections())
        assert sorted(os.listdir("/proc/self/fd")) == before
        ports = [(connection.local_port, connection.peer_port) for connection in found]
        opener_port = link.opened.getsockname()[1]
        assert ports.count((opener_port, link.port)) == ports.count((link.port, opener_port)) == 1


def test_has_no_figures_on_other_systems(monkeypatch):
    monkeypatch.setattr(traffic.sys, "platform", "darwin")
    counter = SocketTraffic(1, [2])
    assert counter.sample() is None
    sent = iter([0, 70])
    steps = StepTraffic(counter.sample, lambda: next(sent))
    assert steps.report(10) == BytesPerStep(70 / 10)
    assert steps.summary() == BytesPerStep(70 / 10)


def test_figures_are_per_step_of_the_interval_and_of_all_reported_steps():
    samples = iter([Traffic(100, 1_000), Traffic(100 + 40, 1_000 + 400), Traffic(140 + 90, 1_400 + 300)])
    sent = iter([5, 5 + 32, 37 + 24])
    steps = StepTraffic(lambda: next(samples), lambda: next(sent))
    assert steps.summary() == BytesPerStep()
    assert steps.report(4) == figures(40 / 4, 400 / 4, 32 / 4)
    assert steps.report(3) == figures(90 / 3, 300 / 3, 24 / 3)
    assert steps.summary() == figures((40 + 90) / (4 + 3), (400 + 300) / (4 + 3), (32 + 24) / (4 + 3))


def figures(push, pull, computed):
    return BytesPerStep(computed, push, pull)

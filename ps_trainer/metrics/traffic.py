"""Measures the bytes on the wire by the kernel's counts of this process's own TCP connections.

In TensorFlow the receiver of a tensor requests it, over a connection that the receiver opened. So a worker
has two connections with each ps task, and control messages go both ways on both:

    opened by the worker to the ps:   parameters come in; requests for them and "run this step" go out
    opened by the ps to the worker:   gradients go out; requests for them come in

The kernel cannot tell which bytes are tensors, so everything counts: all bytes to other tasks are *push*, all bytes
from other tasks are *pull*. Both are payload of TCP without the headers of IP and TCP. Besides the tensors they contain
gRPC's framing and the requests, about half a kB per step and ps task in each direction. The heartbeats are below 1 kB/s
per ps task. On the chief the parameters read for each checkpoint count as well, and the calls of its rule's service
when a worker joins or leaves. A worker that holds parameters (`--placement=colocated`) also sends these to the other
workers, and receives their gradients.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import sys
from collections.abc import Callable, Collection, Hashable, Iterator
from typing import NamedTuple

_FD_DIR = "/proc/self/fd"
# tcpi_bytes_acked and tcpi_bytes_received of struct tcp_info (linux/tcp.h): after 8 bytes of flags, 24
# 32-bit fields and two 64-bit fields. Linux has them since 4.1, and adds new fields only at the end.
_BYTES_AT = 8 + 24 * 4 + 2 * 8
_BYTES = struct.Struct("=QQ")
_INFO_SIZE = _BYTES_AT + _BYTES.size


class Connection(NamedTuple):
    """A TCP connection of this process.

    Attributes:
        key: Identity of the connection; an earlier connection with the same descriptor has another key.
        local_port: Port of this end.
        peer_port: Port of the other end.
        sent_bytes: Payload in bytes that the other end has acknowledged.
        received_bytes: Received payload in bytes.
    """

    key: tuple[Hashable, ...]
    local_port: int
    peer_port: int
    sent_bytes: int
    received_bytes: int


class Traffic(NamedTuple):
    """Bytes between this process and other tasks since the first sample; they never decrease.

    Attributes:
        push_bytes: Bytes to the other tasks: gradients and requests.
        pull_bytes: Bytes from the other tasks: parameters and requests.
    """

    push_bytes: int
    pull_bytes: int


class BytesPerStep(NamedTuple):
    """Bytes per step of one worker. All are None before its first step.

    Attributes:
        push_bytes_computed: Bytes pushed, computed from the tensors.
        push_bytes_per_step: Bytes to other tasks; None if the system does not count them.
        pull_bytes_per_step: Bytes from other tasks; None if the system does not count them.
    """

    push_bytes_computed: float | None = None
    push_bytes_per_step: float | None = None
    pull_bytes_per_step: float | None = None


class SocketTraffic:
    """Counts the bytes between this process and the other tasks of its cluster.

    A connection belongs to the cluster if it was accepted at `own_port`, or opened to one of `peer_ports`. For two
    tasks in one process (as in tests), the connections that they opened cannot be distinguished.

    Args:
        own_port: Port of this task's server; None if it has no server.
        peer_ports: Ports of the other tasks: the ps tasks, and the workers if workers exchange tensors.
    """

    def __init__(self, own_port: int | None, peer_ports: Collection[int]):
        self._own_port = own_port
        self._peer_ports = frozenset(peer_ports)
        self._last: dict[tuple[Hashable, ...], Connection] = {}
        self._closed = Traffic(0, 0)

    def sample(self) -> Traffic | None:
        """Returns the bytes so far; None if the system does not count them.

        Closed connections count up to the last sample before their end. A sample examines every descriptor of the
        process, which takes about a millisecond, so call it for reports and not for steps.
        """
        if not is_supported():
            return None
        now = {connection.key: connection for connection in connections() if self._is_cluster(connection)}
        # The kernel forgets the counts of a closed connection. Without them the sums would decrease when a task is
        # restarted.
        gone = [connection for key, connection in self._last.items() if key not in now]
        self._closed = _sum([self._closed, *map(_traffic, gone)])
        self._last = now
        return _sum([self._closed, *map(_traffic, now.values())])

    def _is_cluster(self, connection: Connection) -> bool:
        return connection.local_port == self._own_port or connection.peer_port in self._peer_ports


class StepTraffic:
    """Bytes per step of a worker: measured since this object was made, and computed from the tensors.

    Args:
        sample: Function such as `SocketTraffic.sample`; called once here and once in each report.
        sent_bytes: Function that returns the bytes pushed so far, computed from the tensors; called as often.
    """

    def __init__(self, sample: Callable[[], Traffic | None], sent_bytes: Callable[[], int]):
        self._sample = sample
        self._sent_bytes = sent_bytes
        self._begin = self._reported = sample()
        self._begin_sent = self._reported_sent = sent_bytes()
        self._steps = 0

    def report(self, steps: int) -> BytesPerStep:
        """Returns the bytes per step of the `steps` since the last report."""
        before, self._reported = self._reported, self._sample()
        sent_before, self._reported_sent = self._reported_sent, self._sent_bytes()
        self._steps += steps
        return _per_step(before, self._reported, self._reported_sent - sent_before, steps)

    def summary(self) -> BytesPerStep:
        """Returns the bytes per step of all reported steps, without later ones."""
        return _per_step(self._begin, self._reported, self._reported_sent - self._begin_sent, self._steps)


def is_supported() -> bool:
    """Returns whether this system counts the bytes of its connections: Linux with /proc."""
    return sys.platform == "linux" and os.path.isdir(_FD_DIR)


def connections() -> Iterator[Connection]:
    """Yields the established TCP connections of this process, IPv4 and IPv6.

    Descriptors are never duplicated here. gRPC watches its sockets by epoll, which reports a closed socket as long as a
    duplicate exists. gRPC has freed that socket, and crashes.
    """
    for name in os.listdir(_FD_DIR):
        descriptor = int(name)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISSOCK(status.st_mode):
                continue
            sock = socket.socket(fileno=descriptor)
        except OSError:  # the descriptor was closed after it was listed
            continue
        try:
            connection = _connection(sock, status.st_ino)
        finally:
            sock.detach()  # the socket belongs to TensorFlow, so it must stay open
        if connection is not None:
            yield connection


def _connection(sock: socket.socket, inode: int) -> Connection | None:
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM:
        return None
    try:
        local, peer = sock.getsockname(), sock.getpeername()
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_SIZE)
    except OSError:  # the socket listens, or is no longer connected
        return None
    # An older kernel returns a shorter structure, without the two counts.
    if len(info) < _INFO_SIZE:
        return None
    sent, received = _BYTES.unpack_from(info, _BYTES_AT)
    # Descriptors are reused soon after a close. The inode and both ends together name one connection.
    return Connection((inode, local, peer), local[1], peer[1], sent, received)


def _per_step(before: Traffic | None, after: Traffic | None, sent_bytes: int, steps: int) -> BytesPerStep:
    if not steps:
        return BytesPerStep()
    if before is None or after is None:
        return BytesPerStep(sent_bytes / steps)
    push, pull = after.push_bytes - before.push_bytes, after.pull_bytes - before.pull_bytes
    return BytesPerStep(sent_bytes / steps, push / steps, pull / steps)


def _traffic(connection: Connection) -> Traffic:
    return Traffic(connection.sent_bytes, connection.received_bytes)


def _sum(parts: list[Traffic]) -> Traffic:
    return Traffic(sum(part.push_bytes for part in parts), sum(part.pull_bytes for part in parts))

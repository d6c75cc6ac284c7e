"""Moves the bytes of a step through plain sockets: what the machine allows, without any framework.

    python -m benchmarks.peers.raw_socket --job_name=ps --port=2222
    python -m benchmarks.peers.raw_socket --job_name=worker --port=2222 --pull_bytes=665600 --push_bytes=665600

A step is a request of 16 bytes, `--pull_bytes` to the worker, and `--push_bytes` from it. A thread serves each worker.
"""

from __future__ import annotations

import argparse
import socket
import struct
import threading
import time

from benchmarks.peers.step_reporter import StepReporter

_SIZES = struct.Struct("=QQ")
_CONNECT_SECS = 60.0
_POLL_SECS = 0.05


def main() -> None:
    """Runs one task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job_name", required=True, choices=["ps", "worker"])
    parser.add_argument("--port", required=True, type=int)
    parser.add_argument("--pull_bytes", type=int, default=0)
    parser.add_argument("--push_bytes", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--report_file")
    flags = parser.parse_args()
    if flags.job_name == "ps":
        serve(socket.create_server(("127.0.0.1", flags.port)))
    else:
        _train(flags)


def serve(listener: socket.socket) -> None:
    """Serves workers without end, each in a thread."""
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_serve_worker, args=(connection,), daemon=True).start()


def step(connection: socket.socket, pull: bytearray, push: bytes) -> None:
    """Makes one step of a worker.

    Args:
        connection: Connection to the ps task.
        pull: Buffer for the bytes that are pulled; its length is asked for.
        push: Bytes to send.
    """
    connection.sendall(_SIZES.pack(len(pull), len(push)))
    _receive(connection, pull)
    connection.sendall(push)
    _receive(connection, bytearray(1))  # the ps task has everything


def connect(port: int) -> socket.socket:
    """Connects to a ps task on this machine, which may start a little later.

    Raises:
        OSError: It does not accept in time.
    """
    deadline = time.monotonic() + _CONNECT_SECS
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port))
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECS)
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection


def _train(flags: argparse.Namespace) -> None:
    report = StepReporter(flags.report_file)
    pull, push = bytearray(flags.pull_bytes), bytes(flags.push_bytes)
    with connect(flags.port) as connection:
        for _ in range(flags.steps):
            step(connection, pull, push)
            report.count_step(0.0)
    report.close()


def _serve_worker(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sizes = bytearray(_SIZES.size)
    parameters, gradient = bytearray(), bytearray()
    with connection:
        while _receive(connection, sizes):
            pull_size, push_size = _SIZES.unpack(sizes)
            if (len(parameters), len(gradient)) != (pull_size, push_size):
                parameters, gradient = bytearray(pull_size), bytearray(push_size)
            connection.sendall(parameters)
            _receive(connection, gradient)
            connection.sendall(b"\0")


def _receive(connection: socket.socket, buffer: bytearray) -> bool:
    """Fills the buffer; returns False if the other end has closed the connection."""
    view = memoryview(buffer)
    while view:
        num_bytes = connection.recv_into(view)
        if num_bytes == 0:
            return False
        view = view[num_bytes:]
    return True


if __name__ == "__main__":
    main()

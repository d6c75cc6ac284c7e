"""A task that adds up gradients through plain sockets: what links and TCP allow, without TensorFlow and gRPC.

    python -m ps_trainer.experiments.toolkit.socket_task '{"job": "ps", …}'

The launcher is `socket_rounds.py`. A round sums the gradients of all workers, and gives each worker the sum. A ps task
gets its share of a gradient in chunks. It sends a chunk of the sum as soon as the last worker's chunk has arrived. With
one chunk, a push ends before the pull begins, as in TensorFlow. With many chunks, pushes and pulls overlap, as in
BytePS. In a ring, each worker sends to the next one and receives from the one before.

Each worker checks every sum that it receives. It prints a JSON object with the wall time of the end of each round.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

_CONNECT_SECS = 60.0
_POLL_SECS = 0.05


class Address(NamedTuple):
    """Host and port of a task."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Reads "10.0.0.1:2222"."""
        host, _, port = text.rpartition(":")
        return cls(host, int(port))


def main() -> None:
    """Runs one task."""
    spec = json.loads(sys.argv[1])
    jobs: dict[str, Callable[..., None]] = {"ps": _run_ps, "worker": _run_worker, "ring": _run_ring}
    jobs[spec.pop("job")](**spec)


def _run_ps(address: str, num_workers: int, num_rounds: int, num_values: int, num_chunks: int) -> None:
    with socket.create_server(Address.parse(address), backlog=num_workers) as listener:
        connections = [listener.accept()[0] for _ in range(num_workers)]
    share = _Sum(num_workers, num_values, num_chunks)
    _in_threads(
        [
            function
            for connection in connections
            for function in (
                functools.partial(share.receive, connection, num_rounds),
                functools.partial(share.send, connection, num_rounds),
            )
        ]
    )


class _Sum:
    """The sum of the workers' gradients on a ps task.

    A worker begins a round only with the whole sum of the round before. So two buffers are enough: while a sum is sent
    to a slow worker, the others can only be one round ahead.
    """

    def __init__(self, num_workers: int, num_values: int, num_chunks: int):
        self._num_workers = num_workers
        self._chunks = _chunks_of(num_values, num_chunks)
        self._sums = np.zeros([2, num_values], np.float32)
        self._num_added = np.zeros([2, num_chunks], int)  # workers whose chunk is in a sum
        self._num_done = [0] * num_chunks  # rounds in which a chunk's sum was whole
        self._changed = threading.Condition()

    def receive(self, connection: socket.socket, num_rounds: int) -> None:
        """Adds a worker's chunks to the sums."""
        received = np.empty(self._sums.shape[1], np.float32)
        for number in range(num_rounds):
            for k, chunk in enumerate(self._chunks):
                _receive(connection, received[chunk])
                with self._changed:
                    self._add(number % 2, k, received[chunk])

    def send(self, connection: socket.socket, num_rounds: int) -> None:
        """Sends a worker each sum of a chunk once it is whole."""
        for number in range(num_rounds):
            for k, chunk in enumerate(self._chunks):
                with self._changed:
                    self._changed.wait_for(functools.partial(self._is_whole, k, number))
                connection.sendall(self._sums[number % 2, chunk].data)

    def _is_whole(self, k: int, number: int) -> bool:
        return self._num_done[k] > number

    def _add(self, buffer: int, k: int, values: np.ndarray) -> None:
        sums = self._sums[buffer, self._chunks[k]]
        np.add(sums if self._num_added[buffer, k] else 0.0, values, out=sums)
        self._num_added[buffer, k] += 1
        if self._num_added[buffer, k] == self._num_workers:
            self._num_added[buffer, k] = 0
            self._num_done[k] += 1
            self._changed.notify_all()


def _run_worker(
    index: int, num_workers: int, num_rounds: int, ps_addresses: Sequence[str], num_values: int, num_chunks: int
) -> None:
    connections = [_connect(Address.parse(address)) for address in ps_addresses]
    gradient = np.full(num_values, index + 1, np.float32)
    received = np.empty([len(connections), num_values], np.float32)
    chunks, ends = _chunks_of(num_values, num_chunks), []

    def push(connection: socket.socket) -> None:
        for chunk in chunks:
            connection.sendall(gradient[chunk].data)

    def pull(number: int) -> None:
        for chunk in chunks:
            _receive(connections[number], received[number, chunk])

    for _ in range(num_rounds):
        pushes = [functools.partial(push, connection) for connection in connections]
        _in_threads([*pushes, *(functools.partial(pull, number) for number in range(len(connections)))])
        ends.append(time.time())
        _check(received, num_workers)
    print(json.dumps({"worker": index, "ends": ends}), flush=True)


def _run_ring(index: int, num_workers: int, num_rounds: int, addresses: Sequence[str], num_values: int) -> None:
    with socket.create_server(Address.parse(addresses[index])) as listener:
        following = _connect(Address.parse(addresses[(index + 1) % num_workers]))
        previous = listener.accept()[0]
    chunks, ends = _chunks_of(num_values, num_workers), []
    received = np.empty(num_values, np.float32)
    for _ in range(num_rounds):
        values = np.full(num_values, index + 1, np.float32)
        for step in range(2 * (num_workers - 1)):
            sent, got = (chunks[(index - step - back) % num_workers] for back in (0, 1))
            _in_threads(
                [
                    functools.partial(following.sendall, values[sent].data),
                    functools.partial(_receive, previous, received[got]),
                ]
            )
            # In the first n − 1 steps sums grow; in the others they are whole and replace what is there.
            values[got] = received[got] + (values[got] if step < num_workers - 1 else 0.0)
        ends.append(time.time())
        _check(values, num_workers)
    print(json.dumps({"worker": index, "ends": ends}), flush=True)


def _check(sums: np.ndarray, num_workers: int) -> None:
    expected = num_workers * (num_workers + 1) / 2
    if not np.all(sums == expected):
        raise ValueError(f"a sum is {sums[sums != expected][0]}, not {expected}")


def _chunks_of(num_values: int, num_chunks: int) -> list[slice]:
    ends = [num_values * k // num_chunks for k in range(num_chunks + 1)]
    return [slice(begin, end) for begin, end in itertools.pairwise(ends)]


def _in_threads(functions: Sequence[Callable[[], Any]]) -> None:
    """Runs functions at the same time, and returns when all have ended; an error ends the process."""

    def run(function: Callable[[], Any]) -> None:
        try:
            function()
        except BaseException:  # noqa: BLE001 - other threads may wait for this one without end
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    threads = [threading.Thread(target=run, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _connect(address: Address) -> socket.socket:
    deadline = time.monotonic() + _CONNECT_SECS
    while True:
        try:
            connection = socket.create_connection(address)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECS)
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection


def _receive(connection: socket.socket, values: np.ndarray) -> None:
    view = values.data.cast("B")
    while view:
        num_bytes = connection.recv_into(view)
        if num_bytes == 0:
            raise ConnectionError("the other task has ended")
        view = view[num_bytes:]


if __name__ == "__main__":
    main()

"""Measured rate of a shaped link: a plain TCP transfer between two hosts, without other code of this package."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Sequence

from ps_trainer.errors import RunError
from ps_trainer.launch.hosts import TaskHost
from ps_trainer.launch.hosts_netns import NetnsHosts
from ps_trainer.launch.hosts_rate import parse_rate

_SENDER, _RECEIVER = "worker-0", "ps-0"
_MOVED_SECS = 1.0  # duration of a transfer at the link's rate; long, because its first 64 KiB do not wait
_DEADLINE_SECS = 60.0
# Receives all data, then answers with one byte.
_RECEIVE = """
import socket
with socket.create_server(("", 0)) as server:
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    while connection.recv(1 << 18): pass
    connection.sendall(b".")
"""
# Sends the given number of bytes; prints the seconds until the answer.
_SEND = """
import socket, sys, time
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    begin = time.monotonic()
    connection.sendall(bytes(int(sys.argv[3])))
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
    print(time.monotonic() - begin)
"""


def measure(rate: str, num_transfers: int = 3) -> list[float]:
    """Returns the payload bytes per second of transfers from one host to another, one after the other.

    Args:
        rate: Rate of both hosts' links: "200mbit".
        num_transfers: Number of transfers.

    Raises:
        OptionError: The rate is invalid, or this machine cannot have shaped hosts.
        RunError: A host could not be made, or a transfer failed.
    """
    bits_per_sec = parse_rate(rate, "--rate")
    num_bytes = int(bits_per_sec / 8 * _MOVED_SECS)
    with NetnsHosts(ps_rate=bits_per_sec, worker_rate=bits_per_sec) as hosts:
        placed = hosts.place([_RECEIVER, _SENDER])
        return [num_bytes / _transfer_secs(placed[_SENDER], placed[_RECEIVER], num_bytes) for _ in range(num_transfers)]


def _transfer_secs(sender: TaskHost, receiver: TaskHost, num_bytes: int) -> float:
    with contextlib.ExitStack() as ended:
        server = ended.enter_context(_python_on(receiver, _RECEIVE))
        ended.callback(server.kill)
        port = _first_line(server)
        address = receiver.address.rpartition(":")[0]
        client = ended.enter_context(_python_on(sender, _SEND, [address, port, str(num_bytes)]))
        ended.callback(client.kill)
        try:
            return float(client.communicate(timeout=_DEADLINE_SECS)[0])
        except (subprocess.TimeoutExpired, ValueError) as error:
            raise RunError(f"a transfer of {num_bytes} bytes to {address}:{port} failed: {error}") from error


def _first_line(process: subprocess.Popen[str]) -> str:
    if process.stdout is None:
        raise ValueError(f"process {process.pid} was started without a pipe for its output")
    return process.stdout.readline().strip()


def _python_on(host: TaskHost, script: str, arguments: Sequence[str] = ()) -> subprocess.Popen[str]:
    command = [*host.prefix, sys.executable, "-S", "-c", script, *arguments]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

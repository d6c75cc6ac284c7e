"""The transfers and pauses of `benchmarks.overlap` between plain sockets: what the links themselves allow.

Each worker has one connection to the ps task. It pushes a piece as soon as its layers have paused on the way back. A
layer begins when its piece has arrived. The ps task sends each piece back as soon as it has it from that worker
(`async`), or from all workers (`sync`). It computes nothing.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

from ps_trainer.errors import RunError
from ps_trainer.experiments.toolkit.shaped_hosts import MeteredHosts
from ps_trainer.launch.hosts import TaskHost
from ps_trainer.launch.hosts_rate import parse_rate

_DEADLINE_SECS = 300
_WARM_UP = 2
_COMMON = """
import json, queue, signal, socket, sys, threading, time
job = json.loads(sys.argv[1])
signal.alarm(job["deadline_secs"])
def report(failed):
    if not isinstance(failed.exc_value, ConnectionError): threading.__excepthook__(failed)  # the others have ended
threading.excepthook = report
sizes, order = job["sizes"], range(len(job["sizes"]))
zeros = memoryview(bytes(max(sizes)))
def receive(connection, number):
    left = memoryview(bytearray(sizes[number]))
    while left:
        count = connection.recv_into(left)
        if not count: sys.exit("connection closed")
        left = left[count:]
def send(connection, numbers):
    while True: connection.sendall(zeros[:sizes[numbers.get()]])
def start(fn, *arguments): threading.Thread(target=fn, args=arguments, daemon=True).start()
"""
_PS = (
    _COMMON
    + """
barrier = threading.Barrier(job["num_workers"])
def serve(connection):
    ready = queue.Queue()
    start(send, connection, ready)
    while True:
        for number in reversed(order):
            receive(connection, number)
            if job["waits"]: barrier.wait()
            ready.put(number)
with socket.create_server(("", 0)) as server:
    print(server.getsockname()[1], flush=True)
    for _ in range(job["num_workers"]): start(serve, server.accept()[0])
    sys.stdin.read()
"""
)
_WORKER = (
    _COMMON
    + """
connection = socket.create_connection((job["host"], job["port"]))
arrived, pushed = [threading.Semaphore(1) for _ in order], queue.Queue()
def pull():
    while True:
        for number in reversed(order):
            receive(connection, number)
            arrived[number].release()
start(pull)
start(send, connection, pushed)
pieces, secs, ends = job["piece_of_layer"], job["pause_secs"], []
for step in range(job["num_steps"]):
    for layer, piece in enumerate(pieces):
        if layer == 0 or piece != pieces[layer - 1]: arrived[piece].acquire()
        if secs: time.sleep(secs)
    for layer in reversed(range(len(pieces))):
        if secs: time.sleep(2 * secs)
        if layer == 0 or pieces[layer] != pieces[layer - 1]: pushed.put(pieces[layer])
    ends.append(time.monotonic())
print(json.dumps([after - before for before, after in zip(ends, ends[1:])]))
sys.stdin.read()
"""
)


class Schedule(NamedTuple):
    """A step of each worker.

    Attributes:
        layer_bytes: Size of each layer's parameters, in the order of use.
        piece_bytes: Size of each piece; every piece ends where a layer ends.
        pause_secs: Pause of a layer on the way forward; on the way back it is twice as long.
        waits: Whether the ps task waits for each piece of all workers, as under `sync`.
    """

    layer_bytes: Sequence[int]
    piece_bytes: Sequence[int]
    pause_secs: float
    waits: bool

    @property
    def piece_of_layer(self) -> list[int]:
        """The number of each layer's piece."""
        numbers = [number for number, size in enumerate(self.piece_bytes) for _ in range(size // self.layer_bytes[0])]
        if len(numbers) != len(self.layer_bytes):
            raise ValueError(f"pieces {self.piece_bytes} do not end where layers of {self.layer_bytes[0]} bytes end")
        return numbers


def measure(schedule: Schedule, rate: str, num_workers: int, num_steps: int) -> float:
    """Returns the time in which every worker makes a step, in seconds, after two steps of warm-up.

    Args:
        schedule: Step.
        rate: Rate of each host's link, such as "100mbit".
        num_workers: Number of workers; there is one ps task, and each task has its own host.
        num_steps: Number of steps of each worker.

    Raises:
        OptionError: The rate is invalid, or this machine cannot have shaped hosts.
        RunError: A task failed.
    """
    workers = [f"worker-{index}" for index in range(num_workers)]
    job = {
        "sizes": list(schedule.piece_bytes),
        "piece_of_layer": schedule.piece_of_layer,
        "pause_secs": schedule.pause_secs,
        "waits": schedule.waits,
        "num_workers": num_workers,
        "num_steps": num_steps + _WARM_UP,
        "deadline_secs": _DEADLINE_SECS,
    }
    with MeteredHosts(parse_rate(rate, "--rate")) as hosts, contextlib.ExitStack() as ended:
        placed = hosts.place(["ps-0", *workers])
        ps = _start(ended, placed["ps-0"], _PS, job)
        address = {"host": placed["ps-0"].address.rpartition(":")[0], "port": int(_line_of(ps))}
        processes = [_start(ended, placed[worker], _WORKER, {**job, **address}) for worker in workers]
        secs = [json.loads(_line_of(process))[_WARM_UP - 1 :] for process in processes]
    return num_workers / sum(len(own) / sum(own) for own in secs)


def _start(ended: contextlib.ExitStack, host: TaskHost, script: str, job: dict[str, object]) -> subprocess.Popen[str]:
    command = [*host.prefix, sys.executable, "-S", "-c", script, json.dumps(job)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    ended.callback(process.wait)
    ended.callback(process.kill)
    return process


def _line_of(process: subprocess.Popen[str]) -> str:
    """Returns the line that a task prints.

    Raises:
        RunError: It ended without.
    """
    if process.stdout is None:
        raise ValueError(f"process {process.pid} was started without a pipe for its output")
    if line := process.stdout.readline().strip():
        return line
    raise RunError(f"a task with plain sockets ended with exit code {process.wait()}, or after {_DEADLINE_SECS} s")

"""`MeteredHosts`: shaped hosts that tasks may share, with continuous readings of their traffic."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np

from ps_trainer.errors import RunError
from ps_trainer.launch import hosts_iproute
from ps_trainer.launch.hosts import TaskHost
from ps_trainer.launch.hosts_netns import QUEUE_SECS, HostTraffic, NetnsHosts

CONGESTION_CONTROL = "reno"
"""TCP's congestion control on shaped hosts. Every kernel has it, and it fills links in both directions at once.

Under bbr, hosts that send and receive at once do not fill such links: it sends as much as the shortest round trip
needs, but acknowledgements wait behind the data of the other direction (`experiments/ps_bandwidth`).
"""

SHORT_QUEUE_SECS = 0.05
"""Queues at the ends of links so short that an asynchronous worker's request hardly waits behind others' data.

In the usual ones (`hosts_netns.QUEUE_SECS`) it waits for so long that workers get in step, and links are idle. With
short queues, TCP sends more segments again where a host receives from several at once.
"""

_SAMPLE_SECS = 0.25
_SET_CONGESTION_CONTROL = "echo {} > /proc/sys/net/ipv4/tcp_congestion_control"


class BytesPerSec(NamedTuple):
    """Mean rates of a host's interface in a window, payload with headers."""

    received: float  # bytes per second
    sent: float  # bytes per second


class MeteredHosts:
    """Hosts with links of limited rate, as `launch.hosts.Hosts`; several tasks may share a host.

    Data between tasks on the same host do not pass its link.

    Args:
        rate: Bits per second and direction of each host's link.
        shared: Task -> the task whose host it shares: {"ps-0": "worker-0"}. All other tasks have their own hosts.
        hosts: Maker of the hosts; None = network namespaces.
        sample_secs: Time between two readings of the counters.
        time_fn: Seconds since the epoch.
        congestion_control: TCP's congestion control on the hosts.
        queue_secs: Longest queue at each end of a link, in seconds of its rate.
        run: Function that runs one command.

    Attributes:
        num_retransmitted: TCP segments that all hosts have sent again, known after leaving.
        num_dropped: Packets to all hosts that found a queue full, known after leaving.
    """

    def __init__(
        self,
        rate: int,
        shared: Mapping[str, str] | None = None,
        hosts: NetnsHosts | None = None,
        sample_secs: float = _SAMPLE_SECS,
        time_fn: Callable[[], float] = time.time,
        congestion_control: str = CONGESTION_CONTROL,
        queue_secs: float = QUEUE_SECS,
        run: hosts_iproute.Run = hosts_iproute.run,
    ):
        self.num_retransmitted = self.num_dropped = 0
        self._congestion_control = congestion_control
        self._run = run
        self._placed: list[TaskHost] = []
        self._hosts = hosts or NetnsHosts(ps_rate=rate, worker_rate=rate, queue_secs=queue_secs)
        self._shared = dict(shared or {})
        self._sample_secs = sample_secs
        self._time_fn = time_fn
        self._samples: list[tuple[float, Mapping[str, HostTraffic]]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="traffic", daemon=True)

    def __enter__(self) -> MeteredHosts:
        self._hosts.__enter__()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
            self.num_retransmitted = sum(map(self._retransmitted, self._placed))
            self.num_dropped = sum(self._hosts.dropped_packets().values())
        self._hosts.__exit__(exc_type, exc, traceback)

    @property
    def has_links(self) -> bool:
        """Whether each task has its own network link; false if tasks share a host."""
        return not self._shared

    def set_link(self, task: str, *, is_up: bool) -> None:
        """Cuts or restores the link of a task's host; only if `has_links`."""
        self._hosts.set_link(task, is_up=is_up)

    @property
    def summary(self) -> str:
        """Description of the hosts and of the shared ones, for the launcher's first line."""
        together = ", ".join(f"{task} with {host}" for task, host in self._shared.items())
        return f"{self._hosts.summary}{f', {together}' if together else ''}"

    def place(self, tasks: Sequence[str]) -> dict[str, TaskHost]:
        """Makes the hosts and starts the readings; tasks on the same host have consecutive ports."""
        placed = self._hosts.place([task for task in tasks if task not in self._shared])
        self._placed = list(placed.values())
        for one in self._placed:
            self._run([*one.prefix, "sh", "-c", _SET_CONGESTION_CONTROL.format(self._congestion_control)])
        num_more = dict.fromkeys(placed, 0)
        for task, host in self._shared.items():
            num_more[host] += 1
            address, _, port = placed[host].address.rpartition(":")
            placed[task] = placed[host]._replace(address=f"{address}:{int(port) + num_more[host]}")
        self._thread.start()
        return {task: placed[task] for task in tasks}

    def write_report(self, logdir: Path) -> None:
        """Writes a report about the traffic of each host, not of each task."""
        self._hosts.write_report(logdir)

    def between(self, start: float, end: float) -> dict[str, BytesPerSec]:
        """Returns the mean rates of each host in a window (seconds since the epoch), interpolated between readings."""
        times = [when for when, _ in self._samples]
        return {
            host: BytesPerSec(
                *(
                    float(np.diff(np.interp([start, end], times, self._counted(host, field)))[0]) / (end - start)
                    for field in ("rx_bytes", "tx_bytes")
                )
            )
            for host in self._samples[-1][1]
        }

    def _retransmitted(self, host: TaskHost) -> int:
        """Returns the TCP segments that a host has sent again; of two lines of the kernel, the first has the names."""
        names, values = (
            line.split()
            for line in self._run([*host.prefix, "cat", "/proc/net/snmp"]).splitlines()
            if line[:4] == "Tcp:"
        )
        return int(values[names.index("RetransSegs")])

    def _counted(self, host: str, field: str) -> list[int]:
        return [getattr(traffic[host], field) for _, traffic in self._samples]

    def _watch(self) -> None:
        while not self._ended.wait(self._sample_secs):
            try:
                traffic = self._hosts.traffic()
            except RunError:  # a command sometimes takes too long; the next reading includes the missed traffic
                continue
            self._samples.append((self._time_fn(), traffic))

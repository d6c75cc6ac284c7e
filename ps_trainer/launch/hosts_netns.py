"""`NetnsHosts`: shaped hosts, each task in a separate network namespace, behind a link of limited rate.

    ps-0     ── eth0 ═══ port ps-0     ──┐
    worker-0 ── eth0 ═══ port worker-0 ──┤ bridge      (in a separate namespace: the switch)
    worker-1 ── eth0 ═══ port worker-1 ──┘

`═══` is a veth pair with a token bucket (`tc` qdisc `tbf`) at both ends. Packets that a host sends wait at its `eth0`,
packets that it receives wait at its port of the switch. Both directions are independent, as on a full-duplex network
card. The bridge is in a namespace as well. So none of this appears among the machine's own interfaces, and the
addresses (10.0.0.0/16) cannot collide with any of its networks. The tasks see no other network.

Only bandwidth is emulated. The tasks share cores and memory. The links have no latency, jitter or loss, which would
need `netem`; the report says whether the kernel has it.

Accuracy, measured with plain TCP between two hosts (Linux 6.18, 2 cores, bbr), 6 transfers of 0.6 s: median goodput
divided by the rate. The optimum is 1,448 / 1,514 = 0.956, because the rest of a frame is headers.

    rate in mbit/s      20      50      100     200     500     1000
    worker to ps        0.956   0.956   0.956   0.956   0.915   0.879
    ps to worker        0.956   0.956   0.956   0.956   0.903   0.869
    4 workers at once   0.987   0.969   0.962   0.958   0.955   0.938      (0.2 s of data each)
    1 MiB after a pause 1.016   1.015   1.012   1.007   0.998   0.968

These transfers go one way. At 100 mbit/s, rounds in which every host sends and receives 4 MB or more at once took 1.2
to 1.7 times as long as their bytes need under bbr, and 1.03 to 1.05 times under reno (`experiments/ps_bandwidth`).

So up to 200 mbit/s an idle machine keeps the rate to within one per cent. From 500 mbit/s on, late timers cost part of
the rate. If other processes compete for the cores, the links carry less, never more. A synchronous step of two workers
with a model of 4.5 MB at 100 mbit/s took 1.41 s; pull and push one after the other take 2 * 2 * 4.5 MB / (0.956 * 12.5
MB/s) = 1.51 s. Settings:

* `BURST_BYTES` pass without waiting after a pause, at each end. So short transfers exceed the rate; measure
  models of 20 bursts (1.3 MB) or more. With 256 KiB, 1 MiB after a pause reached 1.20 at 1 gbit/s.
* `GSO_BYTES` limits the packets that the kernel hands to a veth. The default of 64 KiB does not fit such a bucket with
  the headers. So `tbf` cuts each packet into single frames, and waits six times as often for the same bytes: 67,890
  against 10,876 times for 77 MB. 16 KiB fit.
* `QUEUE_SECS` limits the queue at one end; further packets are dropped. Four senders of 4 MiB each at once, at 100
  mbit/s, lose few packets or none under bbr, and about 6,000 under reno. They reach 95 to 96 % of the rate under both.
  A ps task counts a worker's silence as a miss after 3 s. The limit keeps the wait of a short message behind bulk data
  well below that. But an asynchronous worker's request for parameters waits as well, behind the gradients of another,
  so that workers get in step (`experiments/scaling_curve`). `queue_secs` makes queues shorter.
"""

from __future__ import annotations

import ipaddress
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NamedTuple

from absl import logging

from ps_trainer.errors import OptionError, RunError
from ps_trainer.launch import hosts_iproute
from ps_trainer.launch.hosts import TaskHost
from ps_trainer.launch.hosts_iproute import NetworkSupport, Owner, Run, ip, tc

BURST_BYTES = 64 * 1024
GSO_BYTES = 16 * 1024
QUEUE_SECS = 0.5
REPORT_NAME = "hosts.json"

_PORT = 2222  # every host has its own ports, so all use the same one
_NETWORK = ipaddress.IPv4Network("10.0.0.0/16")
_SWITCH = "switch"
_CONGESTION_CONTROL = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control")


class HostTraffic(NamedTuple):
    """Traffic of a host's interface since it was made, as the kernel counts it.

    The bytes include the headers of Ethernet, IP and TCP once for each packet that the kernel hands over, of up to
    `GSO_BYTES`. A wire would have them in each frame. So they are up to 4 % less than on a wire.
    """

    rx_bytes: int
    tx_bytes: int
    rx_packets: int
    tx_packets: int


class NetnsHosts:
    """A network namespace for each task, joined by links of limited rate.

    Names contain this process (`ps_trainer.launch.hosts_iproute`). Entering removes the namespaces of dead launchers.

    Args:
        ps_rate: Rate of each ps task's link in bits per second and direction; None = no limit.
        worker_rate: Rate of each worker's link in bits per second and direction; None = no limit.
        queue_secs: Longest queue at each end of a limited link, in seconds of its rate.
        run: Function that runs one command.
    """

    has_links = True

    def __init__(
        self,
        *,
        ps_rate: int | None,
        worker_rate: int | None,
        queue_secs: float = QUEUE_SECS,
        run: Run = hosts_iproute.run,
    ):
        self._rates = {"ps": ps_rate, "worker": worker_rate}
        self._queue_secs = queue_secs
        self._run = run
        self._owner: Owner  # set on entering, as are the facilities
        self._network_support: NetworkSupport
        self._made: list[str] = []  # namespaces
        self._hosts: dict[str, TaskHost] = {}

    def __enter__(self) -> NetnsHosts:
        self._network_support = hosts_iproute.probe(self._run)
        if self._network_support.problem:
            raise OptionError(
                "--hosts=netns is not available here: it needs Linux, root (CAP_NET_ADMIN and CAP_SYS_ADMIN), ip, tc"
                f" and tbf. {self._network_support.problem}. Use --hosts=local instead"
            )
        self._owner = hosts_iproute.own_process()
        for name in hosts_iproute.remove_leftovers(self._run):
            logging.info("removed the namespace %s of a dead launcher", name)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # One namespace that cannot be removed must not keep the others from being removed.
        while self._made:
            name = self._made.pop()
            try:
                self._run(["ip", "netns", "del", name])  # also removes its interfaces, and so both ends of each link
            except RunError as error:
                logging.warning("a namespace could not be removed; run `ip netns del %s` (%s)", name, error)

    @property
    def summary(self) -> str:
        """Kind and rates."""
        return (
            f"network namespaces, ps {_format_rate(self._rates['ps'])}, workers {_format_rate(self._rates['worker'])}"
        )

    def place(self, tasks: Sequence[str]) -> dict[str, TaskHost]:
        """Makes the switch, and a host on it for each task.

        Raises:
            OptionError: More tasks than addresses.
            RunError: A command failed; leaving removes what was made before.
        """
        # Without the first and the last address, which name the network itself and all hosts.
        if len(tasks) > _NETWORK.num_addresses - 2:
            raise OptionError(f"{len(tasks)} tasks exceed the {_NETWORK.num_addresses - 2} hosts of {_NETWORK}")
        switch = self._add_namespace(_SWITCH)
        self._run(ip(switch, "link add name bridge type bridge forward_delay 0 mcast_snooping 0"))
        self._run(ip(switch, "link set dev bridge addrgenmode none up"))
        for number, task in enumerate(tasks, start=1):
            address = _NETWORK[number]
            name = self._add_host(switch, task, address)
            self._hosts[task] = TaskHost(f"{address}:{_PORT}", name)
        return dict(self._hosts)

    def set_link(self, task: str, *, is_up: bool) -> None:
        """Takes the task's port of the switch down or up, as if its cable was pulled. Addresses stay.

        Raises:
            RunError: The command failed.
        """
        self._run(ip(self._owner.namespace(_SWITCH), f"link set dev {task} {'up' if is_up else 'down'}"))

    def traffic(self) -> Mapping[str, HostTraffic]:
        """Returns the traffic of each task's host so far; the difference of two calls is the traffic between them.

        Raises:
            RunError: The hosts do not exist.
        """
        return traffic(self._owner, self._run)

    def write_report(self, logdir: pathlib.Path) -> None:
        """Writes `hosts.json`: the settings, and the address, rate, bytes, packets and drops of each task.

        `dropped_packets` counts packets to the host that found the queue full.
        """
        drops = self.dropped_packets()
        tasks = {
            task: {
                "address": self._hosts[task].address,
                "rate_bits_per_sec": self._rate_of(task),
                **figures._asdict(),
                "dropped_packets": drops.get(task, 0),
            }
            for task, figures in self.traffic().items()
        }
        report = {
            "kind": "netns",
            "burst_bytes": BURST_BYTES,
            "gso_bytes": GSO_BYTES,
            "queue_secs": self._queue_secs,
            "has_netem": self._network_support.has_netem,
            "kernel": os.uname().release,
            "congestion_control": _CONGESTION_CONTROL.read_text().strip(),
            "tasks": tasks,
        }
        (logdir / REPORT_NAME).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")

    def _add_namespace(self, what: str) -> str:
        name = self._owner.namespace(what)
        self._run(["ip", "netns", "add", name])
        self._made.append(name)
        return name

    def _add_host(self, switch: str, task: str, address: ipaddress.IPv4Address) -> str:
        name = self._add_namespace(task)
        self._run(ip(switch, f"link add name {task} type veth peer name eth0 netns {name}"))
        self._run(ip(switch, f"link set dev {task} master bridge"))
        self._run(ip(name, f"address add {address}/{_NETWORK.prefixlen} dev eth0"))
        rate = self._rate_of(task)
        for namespace, interface in ((switch, task), (name, "eth0")):
            if rate is not None:
                self._shape(namespace, interface, rate)
            # Without IPv6 addresses only the tasks send packets.
            self._run(ip(namespace, f"link set dev {interface} addrgenmode none gso_max_size {GSO_BYTES} up"))
        # The kernel delivers packets to a host's own address through `lo`.
        self._run(ip(name, "link set dev lo up"))
        return name

    def _shape(self, namespace: str, interface: str, rate: int) -> None:
        bucket = f"rate {rate}bit burst {BURST_BYTES} latency {self._queue_secs * 1000:g}ms"
        self._run(tc(namespace, f"qdisc add dev {interface} root tbf {bucket}"))

    def _rate_of(self, task: str) -> int | None:
        return self._rates[task.partition("-")[0]]

    def dropped_packets(self) -> dict[str, int]:
        """Returns the packets to each task's host that found the queue full, so far."""
        listed = json.loads(self._run(tc(self._owner.namespace(_SWITCH), "-s -json qdisc show")))
        return {entry["dev"]: entry["drops"] for entry in listed if entry["kind"] == "tbf"}


def traffic(launcher: Owner, run: Run = hosts_iproute.run) -> Mapping[str, HostTraffic]:
    """Returns the traffic of each host of a run so far; any process may ask.

    Args:
        launcher: Process of `ps_trainer local --hosts=netns`, from `hosts_iproute.owner(pid)`.
        run: Function that runs one command.

    Raises:
        RunError: This launcher has no hosts (not yet, or no longer).
    """
    listed = json.loads(run(ip(launcher.namespace(_SWITCH), "-s -json link show type veth")))
    return {entry["ifname"]: _of_host(entry["stats64"]) for entry in listed}


def _of_host(port: Mapping[str, Mapping[str, int]]) -> HostTraffic:
    """Returns the traffic from the view of the host: it receives what its port of the switch sends."""
    received, sent = port["tx"], port["rx"]
    return HostTraffic(received["bytes"], sent["bytes"], received["packets"], sent["packets"])


def _format_rate(rate: int | None) -> str:
    return "without limit" if rate is None else f"{rate / 10**6:g} mbit/s"

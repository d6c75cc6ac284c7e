"""Hosts that tasks share, and continuous readings of their counters, with fake namespaces."""

from __future__ import annotations

import time

import pytest

from ps_trainer.errors import RunError
from ps_trainer.experiments.toolkit.shaped_hosts import MeteredHosts
from ps_trainer.launch.hosts import Hosts, LocalHosts, TaskHost
from ps_trainer.launch.hosts_netns import HostTraffic, NetnsHosts

MB = 10**6


class Namespaces:
    """Hosts whose counters rise by a known amount at each reading.

    Attributes:
        events: Calls that the hosts received.
        num_readings: Number of readings of the counters.
        failing: Readings that fail, counted from 1.
    """

    summary = "namespaces"

    def __init__(self, failing=()):
        self.events = []
        self.commands = []
        self.num_readings = 0
        self.failing = failing

    def __enter__(self):
        self.events.append("enter")
        return self

    def __exit__(self, *error):
        self.events.append("exit")

    def place(self, tasks):
        self.events.append(list(tasks))
        return {task: TaskHost(f"10.0.0.{i}:2222", f"netns-{task}") for i, task in enumerate(tasks, start=1)}

    def set_link(self, task, is_up):
        self.events.append((task, is_up))

    def write_report(self, logdir):
        self.events.append(logdir)

    def run(self, command):
        self.commands.append(list(command))
        return "Ip: Forwarding\nIp: 1\nTcp: InSegs RetransSegs\nTcp: 70 3\n"

    def dropped_packets(self):
        return {"worker-0": 2, "worker-1": 5}

    def traffic(self):
        self.num_readings += 1
        if self.num_readings in self.failing:
            raise RunError("too slow")
        n = self.num_readings
        return {"worker-0": HostTraffic(3 * n * MB, n * MB, 0, 0), "worker-1": HostTraffic(0, 0, 0, 0)}


def metered(inner, shared=None, **more):
    """Reads as fast as possible; its time advances by a second with each reading."""
    clock = lambda: float(inner.num_readings)  # noqa: E731
    return MeteredHosts(MB, shared, inner, sample_secs=0.001, time_fn=clock, run=inner.run, **more)


def wait_for_readings(inner, count):
    deadline = time.monotonic() + 20
    while inner.num_readings < count:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_tasks_that_share_a_host_have_its_namespace_and_ports_of_their_own():
    inner = Namespaces()
    with metered(inner, {"ps-0": "worker-0", "ps-1": "worker-1", "ps-2": "worker-1"}) as hosts:
        placed = hosts.place(["ps-0", "ps-1", "ps-2", "worker-0", "worker-1"])
    assert inner.events == ["enter", ["worker-0", "worker-1"], "exit"]
    assert list(placed) == ["ps-0", "ps-1", "ps-2", "worker-0", "worker-1"]  # the tasks of each job are in their order
    assert placed["ps-0"] == TaskHost("10.0.0.1:2223", "netns-worker-0")
    assert placed["ps-2"] == TaskHost("10.0.0.2:2224", "netns-worker-1")
    assert placed["worker-1"] == TaskHost("10.0.0.2:2222", "netns-worker-1")


def test_without_shared_hosts_each_task_has_its_own():
    inner = Namespaces()
    with metered(inner) as hosts:
        placed = hosts.place(["ps-0", "worker-0"])
        assert hosts.summary == "namespaces"
    assert {host.address for host in placed.values()} == {"10.0.0.1:2222", "10.0.0.2:2222"}


def test_rates_are_those_of_the_window():
    inner = Namespaces(failing={4})
    with metered(inner) as hosts:
        hosts.place(["worker-0", "worker-1"])
        wait_for_readings(inner, 9)
    rates = hosts.between(2.5, 6.5)  # 3 MB and 1 MB in each second of its time
    assert rates["worker-0"] == pytest.approx((3 * MB, 1 * MB))
    assert rates["worker-1"] == (0, 0)


def test_every_host_gets_the_congestion_control_and_its_losses_are_counted():
    inner = Namespaces()
    with metered(inner, {"ps-0": "worker-0"}, congestion_control="bbr") as hosts:
        hosts.place(["ps-0", "worker-0", "worker-1"])
    set_commands = [command for command in inner.commands if command[-1].startswith("echo bbr > ")]
    assert [command[:4] for command in set_commands] == [["ip", "netns", "exec", f"netns-worker-{i}"] for i in range(2)]
    assert hosts.num_retransmitted == 2 * 3
    assert hosts.num_dropped == 2 + 5


def test_the_counters_are_not_read_after_the_end():
    inner = Namespaces()
    with metered(inner) as hosts:
        hosts.place(["worker-0", "worker-1"])
        wait_for_readings(inner, 1)
    seen = inner.num_readings
    assert not hosts._thread.is_alive()
    assert inner.num_readings == seen
    assert inner.events[-1] == "exit"


def test_an_end_before_any_task_was_placed_is_not_an_error():
    inner = Namespaces()
    with metered(inner):
        pass
    assert inner.events == ["enter", "exit"]


@pytest.mark.parametrize("cls", [LocalHosts, NetnsHosts, MeteredHosts])
def test_all_kinds_of_hosts_have_the_methods_that_the_launcher_calls(cls):
    assert {name for name in vars(Hosts) if not name.startswith("_")} - set(dir(cls)) == set()


def test_links_can_be_cut_unless_tasks_share_them():
    inner = Namespaces()
    assert metered(inner).has_links and not metered(inner, {"ps-0": "worker-0"}).has_links
    metered(inner).set_link("worker-0", is_up=False)
    assert inner.events == [("worker-0", False)]

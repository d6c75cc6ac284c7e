"""Shaped hosts: with fake `ip` and `tc`, and with real ones where the system allows it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from ps_trainer.errors import OptionError, RunError
from ps_trainer.launch import hosts_iproute, hosts_netns
from ps_trainer.launch.hosts_netns import BURST_BYTES, NetnsHosts
from ps_trainer.launch.process import TaskProcess
from tests.launch import fakes
from tests.launch.fake_iproute import FakeSystem

PROBLEM = hosts_iproute.probe().problem
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
needs_namespaces = pytest.mark.skipif(bool(PROBLEM), reason=f"no shaped hosts here: {PROBLEM}")

TASKS = ["ps-0", "worker-0", "worker-1"]
MBIT = 10**6

# Accepts one connection, reads everything, and answers with one byte at the end.
RECEIVER = """
import socket
with socket.create_server(("", 2222)) as server:
    print("up", flush=True)
    connection, _ = server.accept()
    while connection.recv(1 << 18): pass
    connection.sendall(b".")
"""
# Sends that number of bytes; prints the seconds until the answer.
SENDER = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 2222)) as connection:
    begin = time.monotonic()
    connection.sendall(bytes(int(sys.argv[2])))
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
    print(time.monotonic() - begin)
"""


@pytest.fixture
def tools(monkeypatch):
    monkeypatch.setattr(hosts_iproute.shutil, "which", lambda name: f"/sbin/{name}")


def python_on(host, script, *args):
    """Starts a Python script on a host; its output is text."""
    command = [*host.prefix, sys.executable, "-S", "-c", script, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def transfer_secs(placed, sender, receiver, num_bytes):
    """Seconds of one TCP transfer, from its first byte to the answer of the other end."""
    with contextlib.ExitStack() as ended:
        server = ended.enter_context(python_on(placed[receiver], RECEIVER))
        ended.callback(server.kill)
        assert server.stdout.readline() == "up\n"
        address = placed[receiver].address.partition(":")[0]
        client = ended.enter_context(python_on(placed[sender], SENDER, address, num_bytes))
        ended.callback(client.kill)
        return float(client.communicate(timeout=60)[0])


def own_namespaces():
    prefix = hosts_iproute.owner().namespace("")
    return [name for name in hosts_iproute.namespaces() if name.startswith(prefix)]


@linux_only
def test_an_unavailable_host_type_is_rejected_with_the_reason(tools):
    system = FakeSystem(broken=lambda command: "netns add" in command)
    with (
        pytest.raises(
            OptionError, match=r"--hosts=netns is not available here.*netns add.*out of order.*--hosts=local"
        ),
        NetnsHosts(ps_rate=None, worker_rate=None, run=system),
    ):
        pass
    assert system.namespaces == set()


@linux_only
def test_each_task_gets_a_namespace_and_an_address_and_both_ends_of_its_link_a_bucket(tools):
    system = FakeSystem()
    with NetnsHosts(ps_rate=200 * MBIT, worker_rate=None, queue_secs=0.05, run=system) as hosts:
        placed = hosts.place(TASKS)
        names = {task: hosts_iproute.owner().namespace(task) for task in TASKS}
        assert system.namespaces == {*names.values(), hosts_iproute.owner().namespace("switch")}
        assert hosts.summary == "network namespaces, ps 200 mbit/s, workers without limit"
    assert [placed[task].address for task in TASKS] == ["10.0.0.1:2222", "10.0.0.2:2222", "10.0.0.3:2222"]
    assert all(placed[task].prefix == ("ip", "netns", "exec", names[task]) for task in TASKS)
    bucket = r"tc -n (\S+) qdisc add dev (\S+) root tbf rate (\d+)bit burst 65536 latency 50ms"
    buckets = [re.match(bucket, command) for command in system.commands]
    switch = hosts_iproute.owner().namespace("switch")
    of_links = {match.groups() for match in buckets if match}
    assert of_links == {(switch, "ps-0", "200000000"), (names["ps-0"], "eth0", "200000000")}
    assert system.namespaces == set()


@linux_only
def test_whichever_command_fails_nothing_is_left(tools):
    complete = FakeSystem()
    with NetnsHosts(ps_rate=MBIT, worker_rate=MBIT, run=complete) as hosts:
        hosts.place(["ps-0", "worker-0"])
        entering = complete.commands.index("ip netns list") + 1
        total = len(complete.commands)
    assert total > entering
    for number in range(entering, total):
        system = FakeSystem(["blue"], broken=lambda command, broken=complete.commands[number]: command == broken)
        with (
            pytest.raises(RunError, match="out of order"),
            NetnsHosts(ps_rate=MBIT, worker_rate=MBIT, run=system) as hosts,
        ):
            hosts.place(["ps-0", "worker-0"])
        assert system.namespaces == {"blue"}, complete.commands[number]


@linux_only
def test_a_namespace_that_cannot_be_removed_is_named_and_the_others_are_removed(tools, caplog):
    stuck = hosts_iproute.owner().namespace("ps-0")
    system = FakeSystem(broken=lambda command: command == f"ip netns del {stuck}")
    with NetnsHosts(ps_rate=None, worker_rate=None, run=system) as hosts:
        hosts.place(TASKS)
    assert system.namespaces == {stuck}
    assert f"run `ip netns del {stuck}`" in caplog.text


@linux_only
def test_more_tasks_than_addresses_are_rejected(tools):
    system = FakeSystem()
    with NetnsHosts(ps_rate=None, worker_rate=None, run=system) as hosts:
        begun = len(system.commands)
        with pytest.raises(OptionError, match="65535 tasks exceed the 65534 hosts"):
            hosts.place(["worker-0"] * (2**16 - 1))
        assert len(system.commands) == begun


@needs_namespaces
@pytest.mark.parametrize(("sender", "receiver"), [("ps-0", "worker-1"), ("worker-1", "ps-0")])
def test_a_link_carries_its_rate_and_no_more_each_way(sender, receiver):
    rate, num_bytes = 80 * MBIT, 2 * 10**6
    with NetnsHosts(ps_rate=rate, worker_rate=None) as hosts:
        placed = hosts.place(TASKS)
        before = hosts.traffic()
        secs = [transfer_secs(placed, sender, receiver, num_bytes) for _ in range(3)]
        after = hosts.traffic()
    # The buckets are full at first, and TCP cannot be faster. Other load on the machine can make it slower.
    assert min(secs) >= (num_bytes - 2 * BURST_BYTES) * 8 / rate
    assert min(secs) < 10 * num_bytes * 8 / rate
    sent = {task: after[task].tx_bytes - before[task].tx_bytes for task in TASKS}
    received = {task: after[task].rx_bytes - before[task].rx_bytes for task in TASKS}
    for figure in (sent[sender], received[receiver]):
        assert 3 * num_bytes < figure < 1.1 * 3 * num_bytes
    assert sent["worker-0"] + received["worker-0"] < 5_000  # a few ARP broadcasts


@needs_namespaces
def test_report_holds_settings_and_traffic_of_each_task(tmp_path):
    with NetnsHosts(ps_rate=80 * MBIT, worker_rate=8 * MBIT, queue_secs=0.25) as hosts:
        placed = hosts.place(TASKS)
        transfer_secs(placed, "ps-0", "worker-0", 100_000)
        asked_by_pid = hosts_netns.traffic(hosts_iproute.owner(os.getpid()))
        hosts.write_report(tmp_path)
    report = json.loads((tmp_path / "hosts.json").read_text())
    assert (report["burst_bytes"], report["queue_secs"]) == (BURST_BYTES, 0.25)
    assert isinstance(report["has_netem"], bool)
    assert list(report["tasks"]) == TASKS
    assert [task["rate_bits_per_sec"] for task in report["tasks"].values()] == [80 * MBIT, 8 * MBIT, 8 * MBIT]
    assert report["tasks"]["worker-0"]["address"] == placed["worker-0"].address
    assert 100_000 < asked_by_pid["worker-0"].rx_bytes <= report["tasks"]["worker-0"]["rx_bytes"] < 120_000
    assert 100_000 < report["tasks"]["ps-0"]["tx_bytes"] < 120_000
    assert report["tasks"]["ps-0"]["dropped_packets"] == 0


@needs_namespaces
def test_the_started_process_is_the_task_itself_and_receives_its_signals(tmp_path):
    script = "import os, signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
    # One string, because a task's output is unbuffered: the log would show the first word before the others.
    script += "print(f\"{os.getpid()} {os.getppid()} {os.listdir('/sys/class/net')}\")\ntime.sleep(60)"
    with NetnsHosts(ps_rate=None, worker_rate=None) as hosts:
        prefix = hosts.place(TASKS)["worker-0"].prefix
        task = TaskProcess(
            job_name="worker",
            task_index=0,
            command=[*prefix, sys.executable, "-S", "-c", script],
            log_path=tmp_path / "log",
        )
        task.start()
        try:
            fakes.wait_until(lambda: task.log_tail(1) != [], "its line")
            pid, parent, interfaces = task.log_tail(1)[0].split(maxsplit=2)
            assert (int(pid), int(parent)) == (task.pid, os.getpid())
            assert sorted(json.loads(interfaces.replace("'", '"'))) == ["eth0", "lo"]
            task.terminate()
            fakes.wait_until(lambda: task.poll() is not None, "its end")
            assert task.exit_code == 7
        finally:
            task.kill()
    assert own_namespaces() == []


@needs_namespaces
def test_hosts_are_removed_at_the_end_even_with_a_process_on_one():
    with NetnsHosts(ps_rate=MBIT, worker_rate=MBIT) as hosts:
        left = python_on(hosts.place(TASKS)["ps-0"], "print('up', flush=True); input()")
        assert left.stdout.readline() == "up\n"
        assert len(own_namespaces()) == 1 + len(TASKS)
    assert own_namespaces() == []
    left.kill()
    left.communicate()


@needs_namespaces
def test_the_next_launcher_removes_leftovers_of_a_killed_one_and_keeps_those_of_a_living_one():
    script = (
        "from ps_trainer.launch.hosts_netns import NetnsHosts\n"
        "with NetnsHosts(ps_rate=None, worker_rate=None) as hosts:\n"
        "    hosts.place(['ps-0']); print('up', flush=True); input()"
    )
    with contextlib.ExitStack() as ended:
        launchers = []
        for _ in range(2):
            launcher = ended.enter_context(
                subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            ended.callback(launcher.kill)
            assert launcher.stdout.readline() == b"up\n"
            launchers.append(launcher)
        killed, living = ({hosts_iproute.owner(p.pid).namespace(w) for w in ("ps-0", "switch")} for p in launchers)
        launchers[0].send_signal(signal.SIGKILL)
        launchers[0].wait()
        assert killed | living <= set(hosts_iproute.namespaces())
        with NetnsHosts(ps_rate=None, worker_rate=None):
            assert not killed & set(hosts_iproute.namespaces())
            assert living <= set(hosts_iproute.namespaces())
        launchers[1].communicate(b"\n", timeout=30)
        assert not living & set(hosts_iproute.namespaces())

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ps_trainer.errors import RunError
from ps_trainer.launch import hosts_iproute
from ps_trainer.launch.hosts_iproute import Owner
from tests.launch import fakes
from tests.launch.fake_iproute import FakeSystem

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def tools(monkeypatch):
    monkeypatch.setattr(hosts_iproute.shutil, "which", lambda name: f"/sbin/{name}")


def test_a_command_returns_its_output_and_a_failed_one_an_error_with_its_reason():
    assert hosts_iproute.run([sys.executable, "-c", "print('yes')"]) == "yes\n"
    with pytest.raises(RunError, match=r"-c import sys; sys.exit\('no\\nway'\)`: exit 1: no way"):
        hosts_iproute.run([sys.executable, "-c", r"import sys; sys.exit('no\nway')"])
    with pytest.raises(RunError, match="`/no/such/tool one`: .*No such file"):
        hosts_iproute.run(["/no/such/tool", "one"])


def test_a_command_does_not_share_the_launchers_process_group():
    script = f"import os; print(os.getpgrp() != {os.getpgrp()})"
    assert hosts_iproute.run([sys.executable, "-c", script]) == "True\n"


@linux_only
def test_a_process_is_identified_by_pid_and_start_time():
    assert hosts_iproute.owner() == hosts_iproute.owner(os.getpid())
    other = hosts_iproute.owner(os.getppid())
    assert other.pid == os.getppid()
    assert 0 < other.started <= hosts_iproute.owner().started


@linux_only
def test_a_zombie_owns_nothing():
    child = subprocess.Popen(["true"])
    fakes.wait_until(lambda: not fakes.is_alive(child.pid), "its end")
    assert hosts_iproute.owner(child.pid) is None
    child.wait()
    assert hosts_iproute.owner(child.pid) is None


@linux_only
def test_leftovers_of_ended_launchers_are_removed_and_all_others_stay():
    me = hosts_iproute.owner()
    dead = subprocess.Popen(["true"])
    dead.wait()
    gone = {Owner(dead.pid, 5).namespace("switch"), Owner(me.pid, me.started - 1).namespace("ps-0")}
    kept = {me.namespace("worker-1"), hosts_iproute.owner(os.getppid()).namespace("switch"), "blue", "ps_trainer-1"}
    system = FakeSystem(gone | kept)
    assert set(hosts_iproute.remove_leftovers(system)) == gone
    assert system.namespaces == kept


@linux_only
def test_a_leftover_that_another_launcher_has_just_removed_is_not_an_error():
    left = Owner(2**30, 1).namespace("switch")
    system = FakeSystem([left], broken=lambda command: "netns del" in command)
    assert hosts_iproute.remove_leftovers(system) == []


@linux_only
def test_probe_succeeds_and_leaves_nothing(tools):
    system = FakeSystem()
    assert hosts_iproute.probe(system) == ("", True)
    assert system.namespaces == set()


@linux_only
def test_netem_may_be_missing(tools):
    assert hosts_iproute.probe(FakeSystem(broken=lambda command: "netem" in command)) == ("", False)


@linux_only
@pytest.mark.parametrize("part", ["netns add", "netns exec", "type bridge", "type veth", "tbf"])
def test_probe_reports_a_failure_and_leaves_nothing(tools, part):
    system = FakeSystem(broken=lambda command: part in command)
    problem = hosts_iproute.probe(system).problem
    assert part in problem
    assert problem.endswith("exit 1: out of order")
    assert system.namespaces == set()


@linux_only
@pytest.mark.parametrize(("present", "missing"), [((), "ip and tc"), (("ip",), "tc")])
def test_probe_names_the_tools_that_are_not_installed(monkeypatch, present, missing):
    monkeypatch.setattr(hosts_iproute.shutil, "which", lambda name: name if name in present else None)
    system = FakeSystem()
    assert hosts_iproute.probe(system).problem == f"{missing} not found on PATH; install iproute2"
    assert system.commands == []


def test_probe_names_a_system_without_namespaces(monkeypatch):
    monkeypatch.setattr(hosts_iproute.sys, "platform", "darwin")
    assert "this is darwin" in hosts_iproute.probe(FakeSystem()).problem

"""The launcher's use of hosts, with fake ones."""

from __future__ import annotations

import io
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest
from rich.console import Console

from ps_trainer.config import TrainConfig
from ps_trainer.errors import OptionError, RunError
from ps_trainer.launch import local
from ps_trainer.launch.hosts import LocalHosts, TaskHost
from ps_trainer.launch.local_cluster import LocalClusterSpec
from ps_trainer.launch.task_factory import cluster_flags
from tests.launch import fakes

PROJECT = pathlib.Path(__file__).resolve().parents[2]
SHOW = "print(json.dumps([sys.argv[1:], os.environ.get('HOST')]))"


class FakeHost(TaskHost):
    """A host whose tasks have a variable set."""

    @property
    def prefix(self):
        return ("env", f"HOST={self.netns}")


class FakeHosts(LocalHosts):
    """Hosts that set their name in the tasks' environment, and record their own life cycle."""

    summary = "two cupboards"

    def __init__(self, refusal: Exception | None = None, failure: Exception | None = None, on_place=lambda: None):
        super().__init__()
        self.events: list[str] = []
        self._refusal = refusal
        self._failure = failure
        self._on_place = on_place

    def __enter__(self):
        if self._refusal:
            raise self._refusal
        self.events.append("entered")
        return self

    def __exit__(self, *exc_info):
        self.events.append("removed")

    def place(self, tasks):
        self.events.append(f"placed {' '.join(tasks)}")
        self._on_place()
        if self._failure:
            raise self._failure
        return {task: FakeHost(f"10.1.1.{number}:80", f"host-of-{task}") for number, task in enumerate(tasks, start=1)}

    def write_report(self, logdir):
        self.events.append("reported")


@pytest.fixture
def launch(tmp_path):
    logdir = tmp_path / "run"

    def run(hosts, behaviours, *, num_evaluators=0, faults=(), **kwargs):
        output = io.StringIO()
        cluster = LocalClusterSpec(
            num_evaluators=num_evaluators,
            faults=faults,
            config=TrainConfig(logdir=str(logdir)),
            plain=True,
            task_command=fakes.task_command(behaviours),
        )
        code = local.run(cluster, console=Console(file=output), hosts=hosts, **kwargs)
        return code, output.getvalue()

    run.logdir = logdir
    for _ in fakes.end_leftovers(logdir):
        yield run


def test_a_task_runs_on_its_host_under_its_address(launch):
    hosts = FakeHosts()
    code, output = launch(hosts, {"ps": SHOW, "worker": SHOW, "evaluator": SHOW}, num_evaluators=1)
    assert code == 0, output
    assert output.startswith("1 ps, 2 workers, 1 evaluator in two cupboards; files in ")
    for task in ("ps-0", "worker-0", "worker-1", "evaluator-0"):
        flags, host = json.loads((launch.logdir / "logs" / f"{task}.log").read_text())
        assert flags[2:4] == ["--ps_hosts=10.1.1.1:80", "--worker_hosts=10.1.1.2:80,10.1.1.3:80"]
        assert host == (None if task == "evaluator-0" else f"host-of-{task}")
    assert hosts.events == ["entered", "placed ps-0 worker-0 worker-1", "reported", "removed"]


def test_hosts_are_removed_when_a_task_fails_but_not_before_all_tasks_have_ended(launch):
    class Watching(FakeHosts):
        def __exit__(self, *exc_info):
            self.living = [pid for pid in fakes.marked_pids(launch.logdir) if fakes.is_alive(pid)]
            super().__exit__(*exc_info)

    hosts = Watching()
    behaviours = {"ps": "sleep_for_ever()", "worker-0": "sleep_for_ever()", "worker-1": "wait_for('pid-ps-0'); 1 / 0"}
    code, _ = launch(hosts, behaviours)
    assert code == 1
    assert hosts.events[-2:] == ["reported", "removed"]
    assert hosts.living == []


def test_hosts_that_are_not_available_end_with_an_error_before_any_is_made(launch):
    with pytest.raises(OptionError, match="no cupboards"):
        launch(FakeHosts(refusal=OptionError("no cupboards")), {})
    assert not launch.logdir.exists()


def test_hosts_that_fail_half_way_are_removed_and_no_task_is_started(launch):
    hosts = FakeHosts(failure=RunError("the door is stuck"))
    with pytest.raises(RunError, match="the door is stuck"):
        launch(hosts, {"ps": "", "worker": ""}, spawn=None)
    assert hosts.events[-1] == "removed"


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_hosts_are_made_ends_the_run_and_removes_them(launch, signum):
    hosts = FakeHosts(on_place=lambda: os.kill(os.getpid(), signum))
    code, _ = launch(hosts, {"ps": "sleep_for_ever()", "worker": "sleep_for_ever()"})
    assert code == 128 + signum
    assert hosts.events[-1] == "removed"


def test_on_this_machine_each_task_gets_a_free_port_and_nothing_before_its_command():
    with LocalHosts(pick_ports=lambda n: range(5000, 5000 + n)) as hosts:
        placed = hosts.place(["ps-0", "worker-0"])
    assert placed == {"ps-0": TaskHost("localhost:5000"), "worker-0": TaskHost("localhost:5001")}
    assert placed["ps-0"].prefix == ()


def test_the_tasks_of_a_job_are_in_the_order_of_their_addresses():
    tasks = ["ps-0", *(f"worker-{index}" for index in range(11))]
    with LocalHosts(pick_ports=lambda n: range(1, 1 + n)) as hosts:
        flags = cluster_flags(hosts.place(tasks))
    workers = ",".join(f"localhost:{port}" for port in range(2, 13))
    assert flags == ["--ps_hosts=localhost:1", f"--worker_hosts={workers}"]


def test_imports_neither_tensorflow_nor_rich():
    script = (
        "import sys; import ps_trainer.launch.hosts_netns; sys.exit(bool({'tensorflow', 'rich'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=PROJECT).returncode == 0

"""A ps task that comes back under another IP address, as pods do: tasks find it by the same name.

Each task has its own network namespace, and finds names only in a file that a test changes.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

from ps_trainer.launch import hosts_iproute
from ps_trainer.launch.forkserver import ForkServer
from ps_trainer.launch.hosts_netns import NetnsHosts
from tests.testing.processes import END_SECS, LOST_SECS, START_SECS, ClusterRun, Task

needs_namespaces = pytest.mark.skipif(bool(hosts_iproute.probe().problem), reason="no network namespaces here")
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SLOW = "--straggler=det:mean_ms=100"  # training must not end before the ps task is lost
TASKS = ["ps-0", "worker-0"]
# A Python whose processes read a file, the first argument, in place of /etc/hosts.
PYTHON = """#!/bin/sh
exec unshare --mount sh -c 'mount --bind "$0" /etc/hosts && exec "$@"' {names} {python} "$@"
"""

# A worker's server asks for a ps task by its name, which first leads to a wrong address and then to the right one.
ASK_AGAIN = """
import pathlib, sys, time
from ps_trainer.runtime import environment
environment.prepare(is_ps=True)
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
names, own, deadline_secs = pathlib.Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
ps = tf.train.Server({"ps": ["localhost:0"]}, "ps", 0)
jobs = {"ps": ["digits-ps-0:" + ps.target.rpartition(":")[2]], "worker": ["localhost:0"]}
worker = tf.train.Server(jobs, "worker", 0)
with tf.device("/job:ps/task:0"):
    answer = tf.random.uniform([], 7, 8, tf.int32)

def found():
    try:
        with tf.Session(worker.target) as session:
            return session.run(answer) == 7
    except tf.errors.UnavailableError as error:
        print(error.message)
        return False

assert not found()
names.write_text("127.0.0.1 localhost\\n" + own + " digits-ps-0\\n")
deadline = time.monotonic() + deadline_secs
while not found():
    assert time.monotonic() < deadline, "the name was not looked up again"
    time.sleep(0.05)
"""
# Below the 30 s for which gRPC does not look a name up again by default (`runtime/environment.py` changes that).
LOOK_UP_SECS = 20.0


class Pods(ClusterRun):
    """A run whose tasks are known only by names, each in its own namespace.

    Args:
        folder: Existing empty folder of the run.
        hosts: Hosts of the tasks, and of "ps-1", the spare one.
        names: File of host names, which this class writes.
        flags: Flags for every task.
        server: Fork server of all tasks, which find names in that file.
    """

    def __init__(self, folder, hosts, names, flags, server):
        super().__init__(folder, num_ps=1, num_workers=1, flags=flags, server=server)
        self.ps_hosts, self.worker_hosts = ["digits-ps-0:2222"], ["digits-worker-0:2222"]
        self._hosts, self._names = hosts, names
        self._places = {task: task for task in TASKS}
        self._write_names()

    def move(self, task, place):
        """Moves the task's name to another host, on which the test then starts the task."""
        self._places[task] = place
        self._write_names()

    def _start(self, name, arguments):
        netns = self._hosts[self._places[name]].netns
        self.tasks.append(Task(name, arguments, self.folder / f"{name}.out", self._env, self._server, netns))
        return self.tasks[-1]

    def _write_names(self):
        addresses = {
            f"digits-{task}": self._hosts[place].address.partition(":")[0] for task, place in self._places.items()
        }
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items())]
        self._names.write_text("\n".join(lines) + "\n", encoding="utf-8")  # in place: the file itself is mounted


@contextlib.contextmanager
def fork_server(folder, names, monkeypatch):
    """A fork server whose processes find host names in the file `names`."""
    names.touch()
    python = folder / "python"
    python.write_text(PYTHON.format(names=names, python=sys.executable))
    python.chmod(0o755)
    server = ForkServer(os.environ, folder / "forkserver.txt", "pods")
    with contextlib.ExitStack() as servers:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", str(python))
            servers.enter_context(server)
        server.wait_until_ready()
        yield server


def names_of(space):
    """The file of host names in a namespace."""
    return pathlib.Path("/etc/netns") / space / "hosts"


@needs_namespaces
def test_a_worker_looks_up_the_name_of_a_ps_task_again():
    """A worker's server keeps its connection to a ps task, and so the address it looked up, between sessions."""
    with NetnsHosts(ps_rate=None, worker_rate=None) as netns:
        hosts = netns.place(["worker-0", "ps-0"])
        names = names_of(hosts["worker-0"].netns)
        names.parent.mkdir(parents=True)
        wrong, own = (hosts[task].address.partition(":")[0] for task in ("ps-0", "worker-0"))
        try:
            names.write_text(f"127.0.0.1 localhost\n{wrong} digits-ps-0\n", encoding="utf-8")
            command = ["ip", "netns", "exec", hosts["worker-0"].netns, sys.executable, "-c", ASK_AGAIN]
            asked = subprocess.run(
                [*command, str(names), own, str(LOOK_UP_SECS)],
                cwd=ROOT, capture_output=True, text=True, timeout=START_SECS, check=False,
            )  # fmt: skip
        finally:
            shutil.rmtree(names.parent)
    assert asked.returncode == 0, asked.stdout + asked.stderr


@needs_namespaces
def test_a_ps_task_that_comes_back_under_another_address_is_found(tmp_path, monkeypatch):
    flags = ("--recover_timeout_secs=90", "--save_checkpoint_secs=1", "--update=sync", "--max_steps=50", SLOW)
    names = tmp_path / "hosts"
    with (
        NetnsHosts(ps_rate=None, worker_rate=None) as netns,
        fork_server(tmp_path, names, monkeypatch) as server,
    ):
        hosts = netns.place([*TASKS, "ps-1"])
        with Pods(tmp_path, hosts, names, flags, server) as run:
            ps, chief = run.start_all()
            run.wait_for_step(10)
            ps.send(signal.SIGKILL)
            assert ps.wait(END_SECS) == -signal.SIGKILL
            chief.wait_for_log("waiting up to 90 s for it to rejoin", LOST_SECS)
            run.move("ps-0", "ps-1")
            ps = run.start_ps(0)
            assert [task.wait(START_SECS) for task in (chief, ps)] == [0, 0]
            assert run.checkpoint_step() == run.summary()["global_step"] >= 50

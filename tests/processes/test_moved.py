"""A ps task that comes back under another IP address, as pods do: the same name leads to it.

Each task has a network namespace of its own, and names from a file alone (`/etc/netns/<namespace>/hosts`).
"""

from __future__ import annotations

import pathlib
import shutil
import signal

import pytest

from ps_trainer.launch import hosts_iproute
from ps_trainer.launch.hosts_netns import NetnsHosts
from tests.testing.processes import END_SECS, LOST_SECS, START_SECS, ClusterRun, Task

pytestmark = pytest.mark.slow

TASKS = ["ps-0", "worker-0", "worker-1"]
ENTER = "import os, sys; os.execvp('ip', ['ip', 'netns', 'exec', sys.argv[1], sys.executable, *sys.argv[2:]])"


class Pods(ClusterRun):
    """A run whose tasks are known by names only, each in a namespace.

    Args:
        folder: see `ClusterRun`.
        hosts: of the tasks, and of "ps-1", the spare one.
        flags: see `ClusterRun`.
    """

    def __init__(self, folder, hosts, flags):
        super().__init__(folder, num_ps=1, num_workers=2, flags=flags)
        self.ps_hosts, self.worker_hosts = ["digits-ps-0:2222"], ["digits-worker-0:2222", "digits-worker-1:2222"]
        self._hosts = hosts
        self._spaces = {task: host.netns for task, host in hosts.items()}
        self._places = {task: task for task in TASKS}
        for space in self._spaces.values():
            self._file(space).parent.mkdir(parents=True)
        self._write_names()

    def __exit__(self, *exc):
        super().__exit__(*exc)
        for space in self._spaces.values():
            shutil.rmtree(self._file(space).parent)

    def move(self, task, place):
        """From now on the task's name leads to another host, where it will be started."""
        self._places[task] = place
        self._write_names()

    def _start(self, name, arguments):
        command = ["-c", ENTER, self._spaces[self._places[name]], *arguments]
        self.tasks.append(Task(name, command, self.folder / f"{name}.out", self._env))
        return self.tasks[-1]

    def _write_names(self):
        addresses = {
            f"digits-{task}": self._hosts[place].address.partition(":")[0] for task, place in self._places.items()
        }
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items())]
        for space in self._spaces.values():  # in place: `ip netns exec` binds the file itself
            self._file(space).write_text("\n".join(lines) + "\n", encoding="utf-8")

    @staticmethod
    def _file(space):
        return pathlib.Path("/etc/netns") / space / "hosts"


@pytest.mark.skipif(bool(hosts_iproute.probe().problem), reason="no network namespaces here")
def test_a_ps_task_that_comes_back_under_another_address_is_found(tmp_path):
    flags = ("--recover_timeout_secs=90", "--save_checkpoint_secs=1", "--update=sync", "--max_steps=2000")
    with NetnsHosts(ps_rate=None, worker_rate=None) as netns:
        hosts = netns.place([*TASKS, "ps-1"])
        with Pods(tmp_path, hosts, flags) as run:
            ps, chief, worker = run.start_all()
            run.wait_for_step(100)
            ps.send(signal.SIGKILL)
            assert ps.wait(END_SECS) == -signal.SIGKILL
            chief.wait_for_log("waiting up to 90 s for it to come back", LOST_SECS)
            run.move("ps-0", "ps-1")
            ps = run.start_ps(0)
            assert [task.wait(START_SECS) for task in (chief, worker, ps)] == [0, 0, 0]
            assert run.checkpoint_step() == run.summary()["global_step"] >= 2000

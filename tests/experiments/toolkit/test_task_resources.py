"""CPU time and memory of tasks, from a made-up /proc and from this process."""

from __future__ import annotations

import os

import pytest

from ps_trainer.experiments.toolkit.task_resources import TaskResources

TICKS = os.sysconf("SC_CLK_TCK")


class Processes:
    """A folder like /proc, with a time that the test moves."""

    def __init__(self, folder):
        self.folder, self.now = folder, 100.0
        (folder / "stat").write_text("cpu 0\n")

    def set(self, pid, name, cpu_secs, peak_kib):
        own = self.folder / str(pid)
        own.mkdir(exist_ok=True)
        fields = ["S", "1", *["0"] * 9, str(int(cpu_secs * TICKS)), "0", "0"]
        (own / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}")
        (own / "status").write_text(f"Name:\t{name}\nVmHWM:\t{peak_kib} kB\n")

    def resources(self, *pids):
        return TaskResources(self.folder, lambda: self.now, lambda: list(pids))


def test_cpu_and_memory_are_those_of_a_jobs_tasks(tmp_path):
    processes = Processes(tmp_path)
    resources = processes.resources(1, 2, 3, 4, 5)
    for secs in (0, 10):
        processes.now = 100.0 + secs
        processes.set(1, "worker-0", 1 + 0.5 * secs, 2048 + secs * 1024)
        processes.set(2, "worker-1", 0.25 * secs, 1024)
        processes.set(3, "ps-0", 0.1 * secs, 512)
        processes.set(4, "python", 9 * secs, 9_999_999)  # no task; and process 5 has ended
        resources.sample()
    assert resources.cpu_secs("worker", 102.0, 106.0) == pytest.approx(4 * (0.5 + 0.25), abs=0.05)
    assert resources.cpu_secs("ps", 100.0, 110.0) == pytest.approx(1.0)
    assert (resources.peak_mib("worker"), resources.peak_mib("ps")) == (12.0, 0.5)


def test_without_tasks_there_is_no_memory(tmp_path):
    processes = Processes(tmp_path)
    with processes.resources() as resources:
        pass
    assert resources.peak_mib("ps") is None
    assert resources.cpu_secs("ps", 0.0, 1.0) == 0.0


def test_it_does_nothing_without_proc(tmp_path):
    with TaskResources(tmp_path / "none") as resources:
        pass
    assert resources.peak_mib("worker") is None

"""`ThreadMeter` on files that stand for the kernel's."""

from __future__ import annotations

import shutil

import pytest

from benchmarks.thread_cpu import ThreadKind, ThreadMeter


@pytest.fixture
def write(tmp_path):
    """Writes the name and the CPU seconds of a thread."""

    def write(pid, thread, name, secs):
        folder = tmp_path / str(pid) / "task" / str(thread)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "comm").write_text(f"{name}\n")
        (folder / "schedstat").write_text(f"{round(1e9 * secs)} 17 5\n")

    return write


def test_cpu_time_of_a_window_is_summed_by_job_and_name(tmp_path, write):
    now = iter([10.0, 11.0, 12.0])
    meter = ThreadMeter(lambda: next(now), tmp_path)
    jobs = {1: "ps", 2: "worker", 3: "worker"}
    for thread in (1, 4):
        write(1, thread, "python", 1.0)
    write(2, 2, "tf_Compute", 5.0)
    write(3, 3, "tf_Compute", 7.0)
    meter.sample(jobs)
    write(1, 1, "python", 1.5)
    write(1, 4, "python", 1.25)
    write(2, 2, "tf_Compute", 5.5)
    write(3, 3, "tf_Compute", 8.0)
    write(3, 9, "event_engine", 0.125)  # it has begun in the window
    meter.sample(jobs)
    write(3, 3, "tf_Compute", 9.0)
    meter.sample(jobs)
    assert meter.between(10.0, 11.5) == {
        ThreadKind("ps", "python"): pytest.approx(0.75),
        ThreadKind("worker", "tf_Compute"): pytest.approx(2.0),
        ThreadKind("worker", "event_engine"): pytest.approx(0.125),
    }


def test_a_thread_or_process_that_has_ended_keeps_its_time(tmp_path, write):
    now = iter([10.0, 11.0])
    meter = ThreadMeter(lambda: next(now), tmp_path)
    write(1, 1, "python", 1.0)
    write(1, 2, "python", 2.0)
    meter.sample({1: "ps", 2: "worker"})
    shutil.rmtree(tmp_path / "1" / "task" / "2")
    write(1, 1, "python", 1.5)
    meter.sample({1: "ps", 2: "worker"})
    assert meter.between(10.0, 11.0) == {ThreadKind("ps", "python"): pytest.approx(0.5)}

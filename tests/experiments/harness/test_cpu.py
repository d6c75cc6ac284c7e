"""CPU time in a window, against arithmetic."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import threading
import time

import pytest

from ps_trainer.experiments.harness.cpu import CpuMeter, CpuWatch, descendants

CORES = "".join(f"cpu{core} 1 1 1\n" for core in range(4)) + "intr 5\n"


class FakeProc:
    """A process file system of one machine with one task, 42, whose name contains awkward characters."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "42" / "task").mkdir(parents=True)

    def set_secs(self, *, task: float, machine: float) -> None:
        ticks = os.sysconf("SC_CLK_TCK")
        half = int(task * ticks / 2)
        (self.folder / "42" / "stat").write_text(f"42 (a ) b) S 1 2 3 4 5 6 7 8 9 10 {half} {half} 0 0 20\n")
        user, rest = int(machine * ticks / 2), int(machine * ticks / 4)
        # user nice system idle iowait irq softirq steal guest guest_nice
        (self.folder / "stat").write_text(f"cpu  {user} 0 {rest} 99999 88888 0 {rest} 0 77777 0\n" + CORES)


def test_run_delay_of_all_threads_is_a_share_of_the_workers_steps(tmp_path):
    proc = FakeProc(tmp_path)
    now = iter([100.0, 110.0, 120.0])
    meter = CpuMeter(time_fn=lambda: next(now), proc=tmp_path)
    proc.set_secs(task=0.0, machine=0.0)

    def sample(**delays):
        for thread, secs in delays.items():
            (tmp_path / "42" / "task" / thread[1:]).mkdir(exist_ok=True)
            (tmp_path / "42" / "task" / thread[1:] / "schedstat").write_text(f"7 {round(secs * 1e9)} 3\n")
        meter.sample([42])

    sample(t42=5.0, t43=1.0)  # before the window
    sample(t42=5.2, t43=1.4)
    shutil.rmtree(tmp_path / "42" / "task" / "43")  # a thread that has ended
    sample(t42=5.3, t44=0.5)
    # 0.6 s in the first ten seconds and 0.6 s in the second ones, of two workers
    assert meter.between(100.0, 120.0, 2).delayed_share == pytest.approx(1.2 / (20 * 2))
    assert meter.between(105.0, 110.0, 1).delayed_share == pytest.approx(0.3 / 5)


def test_the_run_delay_of_network_threads_is_told_apart(tmp_path):
    proc = FakeProc(tmp_path)
    meter = CpuMeter(time_fn=iter([100.0, 110.0]).__next__, proc=tmp_path)
    proc.set_secs(task=0.0, machine=0.0)
    for thread, name in ((43, "event_engine"), (44, "tf_Compute")):
        (tmp_path / "42" / "task" / str(thread)).mkdir()
        (tmp_path / "42" / "task" / str(thread) / "comm").write_text(f"{name}\n")
    for network, compute in ((1.0, 5.0), (1.8, 5.3)):
        for thread, secs in ((43, network), (44, compute)):
            (tmp_path / "42" / "task" / str(thread) / "schedstat").write_text(f"7 {round(secs * 1e9)} 3\n")
        meter.sample([42])
    use = meter.between(100.0, 110.0, 2)
    assert use.delayed_share == pytest.approx((0.8 + 0.3) / (10 * 2))
    assert use.network_delayed_share == pytest.approx(0.8 / (10 * 2))


def test_without_scheduler_statistics_the_run_delay_is_unknown(tmp_path):
    proc = FakeProc(tmp_path)
    meter = CpuMeter(time_fn=iter([100.0, 110.0]).__next__, proc=tmp_path)
    for _ in range(2):
        proc.set_secs(task=1.0, machine=1.0)
        meter.sample([42])
    assert meter.between(100.0, 110.0).delayed_share is None


def test_cpu_time_in_a_window_is_interpolated_and_split(tmp_path):
    proc = FakeProc(tmp_path)
    now = iter([100.0, 110.0])
    meter = CpuMeter(time_fn=lambda: next(now), proc=tmp_path)
    proc.set_secs(task=4.0, machine=40.0)
    meter.sample([42])
    proc.set_secs(task=14.0, machine=60.0)
    meter.sample([42])
    use = meter.between(104.0, 109.0)
    assert use.tasks_secs == pytest.approx((14.0 - 4.0) * 5 / 10)
    assert use.others_secs == pytest.approx((60.0 - 40.0) * 5 / 10 - (14.0 - 4.0) * 5 / 10)
    assert use.share == pytest.approx((60.0 - 40.0) * 5 / 10 / (5.0 * 4))


def test_reads_this_process_from_the_real_proc():
    meter = CpuMeter()
    before = sum(os.times()[:2])
    meter.sample([os.getpid()])
    deadline = before + 0.3
    while sum(os.times()[:2]) < deadline:
        pass
    meter.sample([os.getpid()])
    use = meter.between(0.0, 1e12)
    assert use.tasks_secs == pytest.approx(sum(os.times()[:2]) - before, abs=0.1)


def test_time_outside_of_the_samples_does_not_count(tmp_path):
    proc = FakeProc(tmp_path)
    now = iter([100.0, 110.0])
    meter = CpuMeter(time_fn=lambda: next(now), proc=tmp_path)
    assert meter.between(0.0, 1.0) is None
    proc.set_secs(task=4.0, machine=40.0)
    meter.sample([42])
    proc.set_secs(task=4.0, machine=48.0)
    meter.sample([42])
    assert meter.between(90.0, 200.0).share == pytest.approx((48.0 - 40.0) / (10.0 * 4))
    assert meter.between(105.0, 105.0) is None
    assert meter.between(300.0, 400.0) is None


def test_an_ended_process_keeps_its_used_time(tmp_path):
    proc = FakeProc(tmp_path)
    now = iter([0.0, 10.0, 20.0])
    meter = CpuMeter(time_fn=lambda: next(now), proc=tmp_path)
    for task, pids in ((4.0, [42]), (7.0, [42]), (9.0, [99])):
        proc.set_secs(task=task, machine=40.0)
        meter.sample(pids)
    assert meter.between(0.0, 20.0).tasks_secs == pytest.approx(7.0 - 4.0)


@pytest.mark.parametrize("has_self", [True, False])
def test_a_child_that_ends_between_two_samples_counts(has_self):
    program = "import os\nwhile sum(os.times()[:2]) < 0.4: pass"
    started = time.time()
    with CpuWatch(sample_secs=3600, has_self=has_self) as watch:
        before = os.times()
        subprocess.run([sys.executable, "-S", "-c", program], check=True)
        after = os.times()
    used = sum(after[2:4]) - sum(before[2:4]) + has_self * (sum(after[:2]) - sum(before[:2]))
    assert used > 0.39  # the program ends after 0.4 s, which the sum of floats may miss
    assert watch.between(started, time.time()).tasks_secs == pytest.approx(used, abs=0.05)


def test_children_of_children_are_found_while_they_live():
    program = "import subprocess, sys; child = subprocess.Popen(['sleep', '60']); print(child.pid, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        grandchild = int(parent.stdout.readline())
        found = descendants(os.getpid())
        assert {parent.pid, grandchild} <= set(found)
        assert os.getpid() not in found
        os.kill(grandchild, 9)
        parent.stdin.write("\n")
    assert parent.pid not in descendants(os.getpid())


def test_a_watch_measures_this_process():
    started = time.time()
    with CpuWatch() as watch:
        before = sum(os.times()[:2])
        while sum(os.times()[:2]) < before + 0.3:
            pass
        used = sum(os.times()[:2]) - before
    use = watch.between(started, time.time())
    assert use.tasks_secs == pytest.approx(used, abs=0.1)
    assert 0 < use.share <= 1


def test_a_watch_of_descendants_counts_neither_this_process_nor_run_delays():
    program = """
import os
while sum(os.times()[:2]) < 0.5:
    pass
print(sum(os.times()[:2]), flush=True)
input()
"""
    started, own_limit = time.time(), sum(os.times()[:2]) + 1.0
    with subprocess.Popen(
        [sys.executable, "-S", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        with CpuWatch(has_self=False, has_delays=False) as watch:
            used = float(child.stdout.readline())
            while sum(os.times()[:2]) < own_limit:
                pass
        child.stdin.write("\n")
    use = watch.between(started, time.time())
    assert use.tasks_secs == pytest.approx(used, abs=0.1)
    assert use.delayed_share is None


def test_a_watch_samples_as_often_as_asked(monkeypatch):
    numbers, are_many = itertools.count(1), threading.Event()
    monkeypatch.setattr(CpuMeter, "sample", lambda *_: are_many.set() if next(numbers) == 1000 else None)
    monkeypatch.setattr("ps_trainer.experiments.harness.cpu.descendants", lambda *_: [])
    with CpuWatch(sample_secs=1e-4):
        assert are_many.wait(120)  # one a second would need 1000 s


def test_without_the_kernels_counters_there_are_no_figures(tmp_path):
    with CpuWatch(proc=tmp_path) as watch:
        pass
    assert watch.between(0.0, 1e12) is None

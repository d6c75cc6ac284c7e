"""Rates and CPU time over a window, against arithmetic."""

from __future__ import annotations

import os

import pytest

from benchmarks.window import CpuMeter, Report, Window, common_window, steps_per_sec, training_reports
from ps_trainer.errors import RunError


def test_takes_only_training_records():
    records = [
        {"kind": "start", "wall_time": 1.0},
        {"kind": "train", "wall_time": 2.0, "global_step": 14, "local_step": 7, "loss": 0.5},
    ]
    assert training_reports(records) == [Report(2.0, 7)]


def test_window_is_the_time_in_which_all_workers_are_warm():
    early = [Report(10.0, 1), Report(20.0, 2)]
    late = [Report(13.0, 1), Report(25.0, 2)]
    assert common_window([early, late], warmup_secs=2.0) == Window(13.0 + 2.0, 20.0)


def test_no_window_before_every_worker_has_reported():
    assert common_window([[Report(10.0, 1)], []], warmup_secs=0.0) is None


def test_window_that_warmup_has_not_left_is_negative():
    assert common_window([[Report(10.0, 1)], [Report(10.0, 1)]], warmup_secs=2.0).secs == -2.0


def test_rate_counts_only_reports_inside_the_window():
    reports = [Report(0.0, 0), Report(5.0, 10), Report(6.0, 40), Report(7.0, 80), Report(9.0, 1000)]
    assert steps_per_sec(reports, Window(4.5, 8.0)) == (80 - 10) / (7.0 - 5.0)


@pytest.mark.parametrize("reports", [[], [Report(5.0, 10)], [Report(5.0, 10), Report(9.0, 20)]])
def test_no_rate_with_less_than_two_reports_inside(reports):
    assert steps_per_sec(reports, Window(4.0, 8.0)) is None


@pytest.mark.parametrize("second", [Report(2.0, 9), Report(2.0, 10), Report(1.0, 11)])
def test_worker_that_starts_over_or_stands_still_is_an_error(second):
    with pytest.raises(RunError, match="do not go forward"):
        steps_per_sec([Report(1.0, 10), second], Window(0.0, 3.0))


class FakeProc:
    """A process file system of one machine with one task, 42, whose name is awkward."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "42").mkdir()

    def set_secs(self, *, task: float, machine: float) -> None:
        ticks = os.sysconf("SC_CLK_TCK")
        half = int(task * ticks / 2)
        (self.folder / "42" / "stat").write_text(f"42 (a ) b) S 1 2 3 4 5 6 7 8 9 10 {half} {half} 0 0 20\n")
        user, rest = int(machine * ticks / 2), int(machine * ticks / 4)
        # user nice system idle iowait irq softirq steal guest guest_nice
        (self.folder / "stat").write_text(f"cpu  {user} 0 {rest} 99999 88888 0 {rest} 0 77777 0\ncpu0 1 1 1\n")


def test_cpu_time_in_a_window_is_interpolated_and_split(tmp_path):
    proc = FakeProc(tmp_path)
    now = iter([100.0, 110.0])
    meter = CpuMeter(clock=lambda: next(now), proc=tmp_path)
    proc.set_secs(task=4.0, machine=40.0)
    meter.sample([42])
    proc.set_secs(task=14.0, machine=60.0)
    meter.sample([42])
    use = meter.between(Window(104.0, 109.0))
    assert use.tasks_secs == pytest.approx((14.0 - 4.0) * 5 / 10)
    assert use.others_secs == pytest.approx((60.0 - 40.0) * 5 / 10 - (14.0 - 4.0) * 5 / 10)


def test_reads_this_process_from_the_real_proc():
    meter = CpuMeter()
    before = sum(os.times()[:2])
    meter.sample([os.getpid()])
    deadline = before + 0.3
    while sum(os.times()[:2]) < deadline:
        pass
    meter.sample([os.getpid()])
    use = meter.between(Window(0.0, 1e12))
    assert use.tasks_secs == pytest.approx(sum(os.times()[:2]) - before, abs=0.1)

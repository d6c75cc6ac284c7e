"""Rates over a window, against arithmetic."""

from __future__ import annotations

import pytest

from benchmarks.window import Report, Window, common_window, steps_per_sec, training_reports
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

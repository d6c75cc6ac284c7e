"""The steps between two reports of a worker, within a join and across a rejoin."""

from __future__ import annotations

import pytest

from ps_trainer.worker_reports import ReportSpan, WorkerReport, span_before


def test_the_first_report_counts_from_the_join():
    assert span_before(WorkerReport(10, 5.0, 2.0), None) == ReportSpan(10, 10 / 2.0)
    assert span_before(WorkerReport(10), None) == ReportSpan(10, None)


@pytest.mark.parametrize("rate", [10.0, None])
def test_a_report_of_the_same_join_counts_the_steps_since_the_previous_one(rate):
    report = WorkerReport(50, 14.0, rate)
    assert span_before(report, WorkerReport(10, 10.0, 5.0)) == ReportSpan(50 - 10, 14.0 - 10.0)


def test_a_worker_that_waited_for_long_has_not_rejoined():
    # 10 steps in the 60 s between the reports: 110 steps at this rate do not fit between them.
    assert span_before(WorkerReport(110, 70.0, 10 / 60), WorkerReport(100, 10.0, 10.0)) == ReportSpan(10, 60.0)


@pytest.mark.parametrize("local_step", [8, 10, 30])
def test_steps_that_fit_between_the_reports_are_of_a_new_join(local_step):
    report = WorkerReport(local_step, 14.0, 10.0)
    assert span_before(report, WorkerReport(10, 10.0, 5.0)) == ReportSpan(local_step, local_step / 10.0)


@pytest.mark.parametrize("local_step", [8, 10])
def test_fewer_steps_are_of_a_new_join_whose_duration_no_report_without_a_rate_tells(local_step):
    assert span_before(WorkerReport(local_step, 14.0), WorkerReport(10, 10.0)) == ReportSpan(local_step, None)


def test_a_clock_that_went_back_gives_no_negative_duration():
    assert span_before(WorkerReport(20, 9.0, 10.0), WorkerReport(10, 10.0, 10.0)) == ReportSpan(10, 0.0)

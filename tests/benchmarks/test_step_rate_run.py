"""A whole run, with tasks that only write reports; rates over a window, compared with arithmetic."""

from __future__ import annotations

import contextlib
import os
import time

import pytest

from benchmarks.contenders import Cell
from benchmarks.step_rate_run import (
    RunTiming,
    StepCount,
    Window,
    common_window,
    measure,
    steps_per_sec,
    training_reports,
)
from ps_trainer.errors import RunError
from tests.benchmarks.fakes import SLEEP, Fake, reporting

CELL = Cell("deep", "async", num_ps=2, num_workers=2)
# Five reports, one second apart, of which the first is warm-up.
TIMING = RunTiming(warmup_secs=1.0, window_secs=3.0, deadline_secs=60.0)
PID = """
import os, pathlib, sys
draft = pathlib.Path(sys.argv[1] + ".draft")
draft.write_text(str(os.getpid()))
draft.rename(sys.argv[1] + ".pid")
"""


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_reports_each_workers_rate_and_their_mean(tmp_path):
    now = time.time()  # CPU time is measured in real time, so the reports lie around now
    workers = [reporting(rate, first_time=now - 1.0) for rate in (10, 30)]
    result = measure(Fake("fake", workers), CELL, TIMING, tmp_path / "run")
    assert result.worker_steps_per_sec == pytest.approx((10.0, 30.0))
    assert result.steps_per_sec == pytest.approx((10.0 + 30.0) / 2)
    assert result.window_secs == pytest.approx(3.0)


def test_other_workers_start_after_the_chiefs_first_report(tmp_path):
    chief_file = "sys.argv[1].replace('report-1', 'report-0')"
    late = f"import os, sys\nassert os.path.getsize({chief_file})\n" + reporting(30)
    slow_chief = "import time; time.sleep(0.5)\n" + reporting(10)
    contender = Fake("fake", [slow_chief, late], is_chief_first=True)
    assert measure(contender, CELL, TIMING, tmp_path / "run").steps_per_sec == pytest.approx(20.0)


@pytest.mark.parametrize("exit_code", [0, 3])
def test_task_that_ends_early_fails_the_run_and_shows_its_log(tmp_path, exit_code):
    ends = f"import sys; print('no more tea', flush=True); sys.exit({exit_code})"
    with pytest.raises(RunError, match="(?s)worker-1 ended before.*worker-1.log.*no more tea"):
        measure(Fake("fake", [reporting(10), ends]), CELL, TIMING._replace(window_secs=1e6), tmp_path / "run")


def test_ps_that_ends_early_fails_the_run(tmp_path):
    contender = Fake("fake", [SLEEP, SLEEP], ps_program="raise SystemExit('no port')")
    with pytest.raises(RunError, match=r"(?s)ps-\d ended before.*no port"):
        measure(contender, CELL, TIMING, tmp_path / "run")


@pytest.mark.parametrize("is_chief_first", [False, True])
def test_run_without_a_window_fails_at_the_deadline(tmp_path, is_chief_first):
    contender = Fake("fake", [SLEEP, SLEEP], is_chief_first=is_chief_first)
    with pytest.raises(RunError, match="no window of 3 s within 0.5 s .worker-0: 0 reports, worker-1: 0 reports"):
        measure(contender, CELL, TIMING._replace(deadline_secs=0.5), tmp_path / "run")


@pytest.mark.parametrize("is_complete", [True, False])
def test_no_process_is_left(tmp_path, is_complete):
    fails = """
import pathlib
while not list(pathlib.Path(sys.argv[1]).parent.glob("report-0*.pid")): pass
sys.exit(1)
"""
    contender = Fake("fake", [PID + reporting(10), PID + (reporting(10) if is_complete else fails)])
    with contextlib.nullcontext() if is_complete else pytest.raises(RunError):
        measure(contender, CELL, TIMING, tmp_path / "run")
    pids = [int(path.read_text()) for path in tmp_path.glob("run/*.pid")]
    assert len(pids) == CELL.num_workers
    assert not any(is_alive(pid) for pid in pids)


def test_proxies_do_not_reach_the_tasks(tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:1")
    check = "import os\nassert not {'http_proxy', 'HTTP_PROXY'} & set(os.environ)\n"
    contender = Fake("fake", [check + reporting(10)] * 2)
    assert measure(contender, CELL, TIMING, tmp_path / "run").steps_per_sec == pytest.approx(10.0)


def test_takes_only_training_records():
    records = [
        {"kind": "start", "wall_time": 1.0},
        {"kind": "train", "wall_time": 2.0, "global_step": 14, "local_step": 7, "loss": 0.5},
    ]
    assert training_reports(records) == [StepCount(2.0, 7)]


def test_window_is_the_time_in_which_all_workers_are_warm():
    early = [StepCount(10.0, 1), StepCount(20.0, 2)]
    late = [StepCount(13.0, 1), StepCount(25.0, 2)]
    assert common_window([early, late], warmup_secs=2.0) == Window(13.0 + 2.0, 20.0)


def test_no_window_before_every_worker_has_reported():
    assert common_window([[StepCount(10.0, 1)], []], warmup_secs=0.0) is None


def test_window_that_ends_within_the_warmup_has_a_negative_length():
    assert common_window([[StepCount(10.0, 1)], [StepCount(10.0, 1)]], warmup_secs=2.0).secs == -2.0


def test_rate_counts_only_reports_inside_the_window():
    reports = [StepCount(0.0, 0), StepCount(5.0, 10), StepCount(6.0, 40), StepCount(7.0, 80), StepCount(9.0, 1000)]
    assert steps_per_sec(reports, Window(4.5, 8.0)) == (80 - 10) / (7.0 - 5.0)


@pytest.mark.parametrize("reports", [[], [StepCount(5.0, 10)], [StepCount(5.0, 10), StepCount(9.0, 20)]])
def test_no_rate_with_less_than_two_reports_inside(reports):
    assert steps_per_sec(reports, Window(4.0, 8.0)) is None


@pytest.mark.parametrize("second", [StepCount(2.0, 9), StepCount(2.0, 10), StepCount(1.0, 11)])
def test_worker_that_restarts_or_stands_still_is_an_error(second):
    with pytest.raises(RunError, match="do not go forward"):
        steps_per_sec([StepCount(1.0, 10), second], Window(0.0, 3.0))

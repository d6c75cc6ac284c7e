"""The hand-written peer, with real servers."""

from __future__ import annotations

import json
import subprocess

import pytest

from benchmarks.contenders import CONTENDERS, MODES, REPOSITORY, Cell, CellJob
from benchmarks.step_rate_run import RunTiming, measure
from ps_trainer.cluster.ports import pick_free_ports
from tests.testing.repetitions import repetitions


@pytest.mark.process
@pytest.mark.parametrize("mode", repetitions(MODES, first=1))  # the test below trains the other mode
def test_two_workers_can_be_measured(tmp_path, mode):
    timing = RunTiming(warmup_secs=0.0, window_secs=1.0, deadline_secs=120.0)
    cell = Cell("wide", mode, num_ps=1, num_workers=2)
    result = measure(CONTENDERS["stock"], cell, timing, tmp_path / "run")
    assert all(rate > 0 for rate in result.worker_steps_per_sec)
    assert result.cpu_secs_per_step > 0
    assert result.window_secs >= 1.0


@pytest.mark.process
def test_started_by_hand_it_ends_and_prints_its_own_rate(tmp_path):
    hosts = tuple(f"127.0.0.1:{port}" for port in pick_free_ports(2))
    job = CellJob(Cell("wide", "async", num_ps=1, num_workers=1), hosts[:1], hosts[1:], tmp_path)
    stock = CONTENDERS["stock"]
    ps = subprocess.Popen(stock.ps_command(job, 0), cwd=REPOSITORY)
    try:
        command = [*stock.worker_command(job, 0), "--steps=20"]
        done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    finally:
        ps.kill()
        ps.wait()
    summary = json.loads(done.stdout)
    assert summary["task"] == "worker-0"
    assert {"steps", "seconds", "steps_per_sec", "cpu_secs_per_step"} <= set(summary)
    reports = [json.loads(line) for line in stock.report_path(job, 0).read_text().splitlines()]
    assert reports[0]["local_step"] == 1

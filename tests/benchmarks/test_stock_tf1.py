"""The hand-written peer, with real servers."""

from __future__ import annotations

import json
import re

import pytest

from benchmarks.contenders import CONTENDERS, MODES, REPOSITORY, Cell, CellJob
from benchmarks.step_rate_run import RunTiming, measure
from ps_trainer.cluster.ports import pick_free_ports
from tests.testing.processes import START_SECS
from tests.testing.user_scripts import ScriptTask

STOCK = CONTENDERS["stock"]
SCRIPT = REPOSITORY / "benchmarks" / "peers" / "stock_tf1.py"


# The test below trains in both modes, and `test_step_rate_run.py` measures two workers that only write reports.
@pytest.mark.full
@pytest.mark.process
@pytest.mark.parametrize("mode", MODES)
def test_two_workers_can_be_measured(tmp_path, mode):
    timing = RunTiming(warmup_secs=0.0, window_secs=1.0, deadline_secs=120.0)
    cell = Cell("wide", mode, num_ps=1, num_workers=2)
    result = measure(STOCK, cell, timing, tmp_path / "run")
    assert all(rate > 0 for rate in result.worker_steps_per_sec)
    assert result.cpu_secs_per_step > 0
    assert result.window_secs >= 1.0


@pytest.mark.process
@pytest.mark.parametrize("mode", MODES)
def test_started_by_hand_it_ends_and_prints_its_own_rate(tmp_path, mode):
    hosts = tuple(f"127.0.0.1:{port}" for port in pick_free_ports(2))
    job = CellJob(Cell("wide", mode, num_ps=1, num_workers=1), hosts[:1], hosts[1:], tmp_path)
    ps = start("ps", STOCK.ps_command(job, 0), tmp_path)
    worker = start("worker", [*STOCK.worker_command(job, 0), "--steps=20"], tmp_path)
    try:
        assert worker.wait(START_SECS) == 0
    finally:
        worker.kill()
        ps.kill()
    # A thread of TensorFlow may write half a line before it.
    (printed,) = re.findall(r'\{"task".*\}', worker.log)
    summary = json.loads(printed)
    assert summary["task"] == "worker-0"
    assert {"steps", "seconds", "steps_per_sec", "cpu_secs_per_step"} <= set(summary)
    reports = [json.loads(line) for line in STOCK.report_path(job, 0).read_text().splitlines()]
    assert reports[0]["local_step"] == 1


def start(name, command, folder):
    """Starts a task of the script in a process forked from one that has imported TensorFlow."""
    python, option, module, *arguments = command
    assert (option, module) == ("-m", "benchmarks.peers.stock_tf1")
    return ScriptTask(name, SCRIPT, arguments, folder / f"{name}.log", {})

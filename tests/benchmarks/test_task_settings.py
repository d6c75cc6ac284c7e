"""Values of settings beside the defaults: commands, environments and rows."""

from __future__ import annotations

import pytest

from benchmarks import task_settings
from benchmarks.contenders import PEERS_MODE, Cell, CellJob
from benchmarks.step_rate_run import Measurement
from benchmarks.task_settings import OtherValue, rows
from ps_trainer.config import TrainConfig

DEFAULTS = OtherValue("default", "")
SLOWER = OtherValue("queues", "64", {"QUEUES": "64"}, flags=("--a=1",), worker_flags=("--b=2",))


def measured(rate, cpu_secs):
    return Measurement((rate, rate), 2.0, cpu_secs, 0.1)


def test_a_row_compares_the_runs_of_each_round():
    runs = [
        [measured(100.0, 0.010), measured(50.0, 0.020), measured(100.0, 0.010)],
        [measured(80.0, 0.012), measured(40.0, 0.026), measured(90.0, 0.011)],
    ]
    default, slower = rows("wide", [DEFAULTS, SLOWER], runs)
    assert (default.cpu_over_default, default.rate_over_default, default.setting) == (1.0, 1.0, "default")
    assert slower.cpu_over_default == pytest.approx(1.2)
    assert (slower.cpu_over_default_min, slower.cpu_over_default_max) == pytest.approx((1.1, 1.3))
    assert slower.rate_over_default == pytest.approx(0.8)
    assert slower.cpu_ms == pytest.approx(12.0)
    assert slower.repetitions == 3


def test_a_round_with_a_failed_run_is_left_out():
    runs = [[None, measured(50.0, 0.020)], [measured(80.0, 0.012), measured(40.0, 0.026)]]
    default, slower = rows("wide", [DEFAULTS, SLOWER], runs)
    assert (default.repetitions, slower.repetitions) == (1, 1)
    assert slower.cpu_over_default == pytest.approx(1.3)
    assert rows("wide", [DEFAULTS, SLOWER], [[None], [measured(1.0, 1.0)]]) == []


def test_flags_reach_the_tasks_that_they_are_for(tmp_path):
    contender = task_settings._Contender(SLOWER)
    job = CellJob(Cell("deep", PEERS_MODE, 1, 2), ("h:1",), ("h:2", "h:3"), tmp_path)
    assert contender.ps_command(job, 0)[-1] == "--a=1"
    assert contender.worker_command(job, 0)[-2:] == ["--a=1", "--b=2"]
    assert contender.environ == {"QUEUES": "64"}


def test_every_flag_of_a_value_is_a_setting_of_a_task():
    for value in task_settings.VALUES:
        for flag in (*value.flags, *value.worker_flags):
            assert flag.lstrip("-").partition("=")[0] in TrainConfig.__dataclass_fields__

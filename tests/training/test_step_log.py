"""Records of single steps, with times that the test moves."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re

import numpy as np
import pytest

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.errors import NanLossError
from ps_trainer.metrics.step_record import StepRecord
from ps_trainer.training.step_log import LoggedProgress, progress_for
from ps_trainer.training.worker_progress import WorkerProgress

BATCH_SIZE = 16
CLUSTER = ClusterConfig(jobs={"ps": ("a:1",), "worker": ("a:2", "a:3")}, job_name="worker", task_index=1)
CONFIG = TrainConfig(step_log=True)


class FakeTime:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def fake_time():
    return FakeTime()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "steps" / "worker-1.jsonl"


@pytest.fixture
def progress(path, fake_time):
    return LoggedProgress(BATCH_SIZE, path, 1, fake_time, lambda: fake_time.now + 1e9)


def step(progress, fake_time, global_step, staleness, loss=0.5, secs=2.0):
    progress.begin_step()
    fake_time.now += secs
    progress.add(np.int64(global_step), np.array(staleness, np.int64), np.float32(loss))


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_record_holds_the_time_of_a_step_and_the_fate_of_its_gradient(progress, fake_time, path):
    step(progress, fake_time, 4, [3])
    fake_time.now += 5.0  # for example a checkpoint
    step(progress, fake_time, 6, [1], loss=0.25)
    progress.close()
    first, second = records(path)
    assert first.pop("cpu_user") >= 0
    assert first.pop("cpu_sys") >= 0
    assert first == {
        "worker": 1,
        "local_step": 1,
        "global_step": 4,
        "staleness": 3,
        "dropped": 0,
        "t_start": 100.0,
        "t_computed": None,
        "t_applied": None,
        "t_end": 102.0,
        "wall_time": 1e9 + 102.0,
        "injected_delay": 0.0,
        "loss": 0.5,
        "examples": BATCH_SIZE,
    }
    assert (second["local_step"], second["t_start"], second["t_end"], second["loss"]) == (2, 107.0, 109.0, 0.25)


def test_a_record_holds_the_computing_time_since_the_previous_record(progress, fake_time, path, monkeypatch):
    for user, system in ((1000.0, 500.0), (1001.25, 500.5)):
        monkeypatch.setattr(os, "times", lambda spent=(user, system): os.times_result((*spent, 0.0, 0.0, 0.0)))
        step(progress, fake_time, 1, [0])
    progress.close()
    _, second = records(path)
    assert (second["cpu_user"], second["cpu_sys"]) == (1.25, 0.5)


def test_times_from_the_step_are_converted_to_the_time_of_the_records(progress, fake_time, path):
    fake_time.now += 2.0
    progress.add(1, np.array([0]), 0.5, [np.float64(1e9 + 100.5), np.float64(1e9 + 101.75)])
    progress.close()
    assert [records(path)[0][name] for name in ("t_computed", "t_applied", "t_end")] == [100.5, 101.75, 102.0]


def test_a_record_holds_the_injected_delay_of_its_step(progress, fake_time, path):
    delays = iter([0.25, 0.75])
    last = [0.0]
    progress.count_delays(lambda: last[0])
    for delay in delays:
        last[0] = delay
        step(progress, fake_time, 1, [0])
    progress.close()
    assert [one["injected_delay"] for one in records(path)] == [0.25, 0.75]


def test_dropped_gradients_and_steps_without_a_push_have_no_staleness(progress, fake_time, path):
    for staleness in ([-1], [], [2, 5], [2, -1]):
        step(progress, fake_time, 1, staleness)
    progress.close()
    got = [(one["staleness"], one["dropped"], one.get("staleness_by_ps")) for one in records(path)]
    assert got == [(None, 1, None), (None, 0, None), (2, 0, [2, 5]), (None, 1, [2, -1])]


def test_a_step_with_a_nan_loss_is_written_too(progress, fake_time, path):
    with pytest.raises(NanLossError):
        step(progress, fake_time, 1, [0], loss=float("nan"))
    progress.close()
    assert records(path)[0]["loss"] is None


def test_a_report_makes_the_file_complete(progress, fake_time, path):
    step(progress, fake_time, 1, [0])
    assert progress.report().local_step == 1
    assert len(records(path)) == 1


def test_counts_progress_like_a_run_without_records(progress, fake_time):
    plain_time = FakeTime()
    plain = WorkerProgress(BATCH_SIZE, plain_time)
    for one, its_time in ((progress, fake_time), (plain, plain_time)):
        for global_step, staleness in ((3, [2]), (4, [-1])):
            step(one, its_time, global_step, staleness)
    assert progress.summary() == plain.summary()


def test_without_a_step_there_is_no_file(progress, path):
    assert progress.report() is None
    progress.close()
    assert not path.exists()


def test_steps_are_logged_where_the_run_asks_for_it_and_keeps_files(tmp_path):
    made = progress_for(CLUSTER, dataclasses.replace(CONFIG, logdir=str(tmp_path)))(BATCH_SIZE)
    made.add(1, np.array([0]), 0.5)
    made.close()
    assert records(tmp_path / "steps" / "worker-1.jsonl")[0]["worker"] == 1
    assert progress_for(CLUSTER, CONFIG) is WorkerProgress
    assert progress_for(CLUSTER, TrainConfig(logdir=str(tmp_path))) is WorkerProgress


def test_the_reference_of_files_names_every_field():
    text = (pathlib.Path(__file__).parents[2] / "docs/reference/files.md").read_text(encoding="utf-8")
    table = text.partition("## Step log")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == set(StepRecord._fields)

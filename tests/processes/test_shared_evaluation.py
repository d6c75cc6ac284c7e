"""Workers that are done help the chief to evaluate, and are killed or interrupted in the middle of it."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from ps_trainer.checkpoints import reader
from ps_trainer.training import components as components_lib
from ps_trainer.training.evaluation import evaluate
from tests.testing.cluster import config_of
from tests.testing.processes import END_SECS, LOST_SECS, START_SECS, wait_until

HERE = "tests.training.shared_components"
SHARE = "evaluating a share of the test examples"


@pytest.fixture
def create_slow_run(create_run, tmp_path):
    """Returns a function that makes a run. Each process notes in `notes` the test batches that it prepares."""
    notes = tmp_path / "notes"
    notes.mkdir()

    def create(num_workers, batch_secs, model="Clicks"):
        options = [f"--dataset_option={option}" for option in (f"secs={batch_secs}", f"notes={notes}")]
        flags = [f"--model={HERE}:{model}", f"--dataset={HERE}:Slow", *options, "--batch_size=4", "--max_steps=10"]
        run = create_run(num_workers=num_workers, step_ms=0, flags=flags)
        run.notes = notes
        return run

    return create


@pytest.fixture
def run(create_slow_run):
    """A run whose evaluation takes 16 s on one worker."""
    return create_slow_run(3, 0.8)


def noted_by(run) -> dict[int, list[int]]:
    """First examples of the batches that each process has prepared, by pid."""
    batches: dict[int, list[int]] = {}
    for note in run.notes.iterdir():
        pid, number = map(int, note.name.split("-"))
        batches.setdefault(pid, []).append(number)
    return batches


def helpers_of(run) -> list[int]:
    """Pids of the workers that have prepared a batch of their share; the chief has prepared the first batch."""
    return [pid for pid, numbers in noted_by(run).items() if 0 not in numbers]


def assert_metrics_of_one_pass(run, model="Clicks"):
    config = config_of(f"{HERE}:{model}", f"{HERE}:Slow", batch_size=4)
    wanted = evaluate(components_lib.load(config, 1), reader.latest(run.logdir / "checkpoints"))
    found = run.summary()["metrics"]
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=name)


def test_a_helper_that_is_killed_in_its_share_changes_no_result(run):
    launcher = run.start_local()
    killed = wait_until(lambda: helpers_of(run), START_SECS, "no worker has begun to help")[0]
    assert killed in run.remaining()
    os.kill(killed, signal.SIGKILL)
    assert launcher.wait(START_SECS) == 0
    assert_metrics_of_one_pass(run)
    assert {worker["status"] for worker in run.summary()["workers"].values()} == {"done"}
    assert len(noted_by(run)) == 3 and run.remaining() == []


def test_a_helper_looks_up_rows_of_a_large_table_on_the_ps_tasks(create_slow_run):
    run = create_slow_run(2, 0.8, "Embedded")
    launcher = run.start_local()
    assert launcher.wait(START_SECS) == 0
    assert_metrics_of_one_pass(run, "Embedded")
    assert len(helpers_of(run)) == 1
    chief, helper = ((run.logdir / "logs" / f"worker-{index}.log").read_text() for index in (0, 1))
    assert "workers 1 have helped with the evaluation" in chief and "does not help" not in helper


def test_ctrl_c_ends_chief_and_helpers(run):
    launcher = run.start_local()
    wait_until(lambda: helpers_of(run), START_SECS, "no worker has begun to help")
    launcher.send(signal.SIGINT)
    assert launcher.wait(END_SECS) == 130
    assert "failed" not in launcher.log
    run.wait_until_gone(END_SECS)


def test_ctrl_c_does_not_wait_for_the_batch_of_the_evaluation(create_slow_run):
    run = create_slow_run(1, 300)
    launcher = run.start_local()
    wait_until(lambda: noted_by(run), START_SECS, "the evaluation has not begun")
    launcher.send(signal.SIGINT)
    assert launcher.wait(END_SECS) == 130
    assert run.summary()["status"] == "interrupted" and "SIGKILL" not in launcher.log
    run.wait_until_gone(END_SECS)


def test_helpers_end_when_the_chief_is_killed(run):
    _, chief, *workers = run.start_all()
    wait_until(lambda: len(helpers_of(run)) == 2, START_SECS, "the workers have not begun to help")
    chief.kill()
    assert [worker.wait(LOST_SECS) for worker in workers] == [0, 0]
    assert all(SHARE in worker.log for worker in workers)

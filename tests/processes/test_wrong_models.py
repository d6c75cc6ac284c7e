"""A model that does what the run does itself: one line with the fix and exit code 2, before a task joins the run."""

from __future__ import annotations

import pytest

from tests.testing.processes import START_SECS

USAGE = 2
FIXES = {
    "Optimizer": "leave the optimizer and minimize out, return the loss, and choose the optimizer by --optimizer",
    "BareLoss": "build returned a tensor alone; return layers.ModelOutput(loss, predictions, metrics)",
    "Placeholder": "build uses the placeholder x, and no step has a feed_dict; take the tensors from `batch`",
    "Variable": "model variables w were created by tf.Variable; create them by tf.get_variable",
}
_MODULE = "tests.processes.wrong_models"


@pytest.mark.parametrize("model", FIXES)
def test_local_ends_before_it_starts_a_task(create_run, model):
    run = create_run()
    launcher = run.start_local(f"--model={_MODULE}:{model}")
    assert launcher.wait(START_SECS) == USAGE
    (error,) = [line for line in launcher.log.splitlines() if line.startswith("error: ")]
    assert FIXES[model] in error
    assert "Traceback" not in launcher.log
    assert not run.logdir.exists()


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--hook=nope:X", "--hook=nope:X: no module named 'nope' on the Python path"),
        ("--model=os:path", "--model=os:path: path is not a model: it has no method `build`"),
    ],
)
def test_local_ends_before_it_starts_a_task_for_a_class_that_is_none(create_run, flag, message):
    run = create_run()
    launcher = run.start_local(flag)
    assert launcher.wait(START_SECS) == USAGE
    assert f"error: {message}" in launcher.log
    assert "worker-0" not in launcher.log
    assert not run.logdir.exists()


@pytest.mark.parametrize("model", ["Optimizer", "BareLoss"])
def test_a_worker_ends_before_it_joins_the_run(create_run, model):
    run = create_run(num_workers=1)
    worker = run.start_worker(0, f"--model={_MODULE}:{model}")  # no ps task is there: it ends without one
    assert worker.wait(START_SECS) == USAGE
    assert FIXES[model] in worker.log.splitlines()[-1]
    assert "Traceback" not in worker.log


def test_a_table_in_a_plain_variable_is_a_warning_with_the_bytes(create_run):
    run = create_run(flags=("--max_steps=3", f"--model={_MODULE}:PlainTable"))
    launcher = run.start_local()
    assert launcher.wait(START_SECS) == 0
    warning = "rows of table by a gather, but these are plain variables, so the whole 2.56 MB travel to the worker"
    assert launcher.log.count(warning) == 1
    assert "create them by layers.embedding" in launcher.log
    logs = {path.stem: path.read_text().count(warning) for path in (run.logdir / "logs").glob("worker-*.log")}
    assert logs == {"worker-0": 1, "worker-1": 0}

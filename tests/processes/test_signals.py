"""Ctrl-C and SIGTERM to the launcher and to each role: a checkpoint, the right exit code, and no process left."""

from __future__ import annotations

import re
import signal

import pytest

from tests.processes.hooks import FOLDER_VARIABLE
from tests.testing.processes import END_SECS, START_SECS, UNLIMITED, wait_until
from tests.testing.repetitions import repetitions

FAILED = 1


@pytest.mark.parametrize("signum", repetitions([signal.SIGINT, signal.SIGTERM]))
def test_signal_to_the_launcher_ends_everything_and_the_run_can_be_resumed(create_run, signum):
    run = create_run(is_fresh=True, num_workers=1)
    launcher = run.start_local(UNLIMITED)
    run.wait_for_step(10)
    launcher.send(signum)
    assert launcher.wait(END_SECS) == 128 + signum
    assert run.remaining() == []
    assert "failed" not in launcher.log
    assert re.search(r"ps-0 .*stopped", launcher.log)
    step = run.checkpoint_step()
    assert step >= 10
    assert run.summary()["status"] == "interrupted"
    if signum == signal.SIGTERM:
        return  # one resumed run is enough
    resumed = create_run(num_workers=1)  # forked: a second fresh launcher would import TensorFlow again
    resumed.logdir = run.logdir
    assert resumed.start_local(f"--max_steps={step + 5}").wait(START_SECS) == 0
    assert run.time_of_state("worker-0", rf"^restored .*model\.ckpt-{step}, at step {step}$")
    assert run.checkpoint_step() == run.summary()["global_step"] == step + 5


@pytest.mark.parametrize(("update", "signum"), repetitions([("async", signal.SIGTERM), ("sync", signal.SIGINT)]))
def test_signal_to_the_chief_ends_the_job_with_a_checkpoint(create_run, update, signum):
    run = create_run()
    ps, chief, worker = run.start_all(UNLIMITED, f"--update={update}")
    run.wait_for_step(10)
    chief.send(signum)
    assert chief.wait(END_SECS) == 128 + signum
    assert run.checkpoint_step() >= 10
    assert worker.wait(END_SECS) == FAILED
    assert f"the chief ended: worker 0 interrupted: ended by {signal.Signals(signum).name}" in worker.log
    assert ps.wait(END_SECS) == FAILED
    assert "worker 0 interrupted" in ps.log


@pytest.mark.parametrize(
    ("update", "signum"), repetitions([("async", signal.SIGINT), ("sync", signal.SIGTERM)], first=1)
)
def test_signal_to_a_ps_ends_the_job_with_a_checkpoint(create_run, update, signum):
    run = create_run()
    ps, chief, worker = run.start_all(UNLIMITED, f"--update={update}")
    run.wait_for_step(10)
    ps.send(signum)
    assert ps.wait(END_SECS) == 128 + signum
    assert chief.wait(END_SECS) == worker.wait(END_SECS) == FAILED
    for task in (chief, worker):
        assert f"the job ends because ps-0 was ended by {signal.Signals(signum).name}" in task.log
    assert run.checkpoint_step() >= 10


def test_signal_to_an_async_worker_ends_only_that_worker(create_run, tmp_path):
    run = create_run(
        flags=(UNLIMITED, "--update=async", "--hook=tests.processes.hooks:StopOnRequest"),
        env={FOLDER_VARIABLE: str(tmp_path)},
    )
    ps, chief, worker = run.start_all()
    run.wait_for_step(10)
    worker.send(signal.SIGTERM)
    assert worker.wait(END_SECS) == 128 + signal.SIGTERM
    run.wait_for_step(run.last_step(0) + 10, workers=[0])
    (tmp_path / "stop").touch()
    assert chief.wait(START_SECS) == 0
    assert run.summary()["status"] == "done"
    assert ps.wait(END_SECS) == 128 + signal.SIGTERM
    assert "worker 0 done, worker 1 interrupted" in ps.log


def test_signal_to_a_sync_worker_ends_the_job_with_a_checkpoint(create_run):
    run = create_run()
    ps, chief, worker = run.start_all(UNLIMITED, "--update=sync")
    run.wait_for_step(10)
    worker.send(signal.SIGTERM)
    assert worker.wait(END_SECS) == 128 + signal.SIGTERM
    assert chief.wait(END_SECS) == FAILED
    assert "worker 1 interrupted, and update rule sync needs all" in chief.log
    assert ps.wait(END_SECS) == FAILED
    assert run.checkpoint_step() >= 10


@pytest.mark.parametrize("model", ["EndlessBuild", "EndlessValues"])
def test_ctrl_c_during_the_set_up_waits_for_no_part_of_it(create_run, tmp_path, model):
    run = create_run(
        flags=(UNLIMITED, f"--model=tests.processes.slow_starts:{model}"), env={FOLDER_VARIABLE: str(tmp_path)}
    )
    if is_older_folder := model == "EndlessBuild":
        run.logdir.mkdir()
    launcher = run.start_local()
    wait_until((tmp_path / "held").exists, START_SECS, "no task is in its set-up")
    launcher.send(signal.SIGINT)
    assert launcher.wait(END_SECS) == 130
    assert run.remaining() == []
    assert "SIGKILL" not in launcher.log and "failed" not in launcher.log
    assert run.logdir.exists() == is_older_folder
    if not is_older_folder:
        return
    logs = [path.read_text() for path in (run.logdir / "logs").glob("*.log")]
    assert logs and not any("did not stop within" in log for log in logs)
    assert run.summary()["status"] == "interrupted"
    assert not list((run.logdir / "checkpoints").glob("*.index"))

"""Tasks that are missing, wrong, or do not fit together: an error message names the problem, and no task hangs."""

from __future__ import annotations

import contextlib
import signal
import socket

import pytest

from tests.testing.processes import END_SECS, START_SECS, UNLIMITED

FAILED, USAGE = 1, 2
SHORT_WAIT = "--start_timeout_secs=5"


def end(ps):
    """Ends a ps task that still waits for workers."""
    ps.send(signal.SIGTERM)
    assert ps.wait(END_SECS) == 128 + signal.SIGTERM


def test_tasks_that_wait_in_vain_name_the_missing_tasks(create_run):
    # Two halves of different clusters run side by side to save time.
    without_ps, without_workers = create_run(), create_run()
    worker = without_ps.start_worker(1, SHORT_WAIT)
    ps = without_workers.start_ps(0, SHORT_WAIT)
    assert worker.wait(START_SECS) == FAILED
    assert f"ps-0 ({without_ps.ps_hosts[0]}): no connection" in worker.log
    assert ps.wait(START_SECS) == FAILED
    assert "ps-0: no worker joined within 5 s" in ps.log


def test_sync_names_the_worker_that_did_not_come(create_run):
    run = create_run(flags=("--update=sync",))
    ps = run.start_ps()
    ps.wait_for_log("serving on")  # the start of the ps task must not use up the chief's short wait
    chief = run.start_worker(0, SHORT_WAIT)
    assert chief.wait(START_SECS) == FAILED
    assert "update rule sync needs 2 workers; worker-1 did not join within" in chief.log
    end(ps)


@pytest.mark.parametrize("job_name", ["ps", "worker"])
def test_port_in_use_is_reported_before_a_task_starts(create_run, job_name):
    run = create_run(num_workers=1, is_fresh=True)
    (address,) = run.ps_hosts if job_name == "ps" else run.worker_hosts
    port = int(address.rpartition(":")[2])
    with contextlib.closing(socket.create_server(("", port))):
        task = run.start_ps() if job_name == "ps" else run.start_worker(0)
        assert task.wait(START_SECS) == USAGE
    assert task.log.startswith(f"error: port {port} of {address} is in use")
    assert not run.logdir.exists()


def test_worker_with_other_settings_than_the_chief_names_the_flags(create_run):
    run = create_run(flags=("--update=sync", "--max_steps=none", "--sharding=dynamic", "--num_epochs=2"))
    ps, chief = run.start_ps(), run.start_worker(0)
    worker = run.start_worker(1, "--learning_rate=0.2", "--batch_size=16", "--num_epochs=1")
    assert worker.wait(START_SECS) == USAGE
    assert "worker-1 was started with other settings than the chief: --batch_size: chief 32, worker-1 16" in worker.log
    assert "give it --batch_size=32" in worker.log
    assert "--num_epochs: chief 2, worker-1 1" in worker.log
    assert "--learning_rate: chief 0.1, worker-1 0.2" in worker.log
    assert chief.wait(START_SECS) == FAILED
    assert ps.wait(END_SECS) == FAILED


def test_worker_of_another_cluster_is_rejected(create_run):
    run = create_run()
    ps = run.start_ps()
    run.worker_hosts = run.worker_hosts[:1]
    worker = run.start_worker(0)
    assert worker.wait(START_SECS) == USAGE
    assert f"ps-0 ({run.ps_hosts[0]}) belongs to another cluster" in worker.log
    assert "give every task the same --ps_hosts and --worker_hosts" in worker.log
    end(ps)


def test_nan_loss_fails_the_run_and_the_launcher_reports_it(create_run):
    run = create_run(flags=("--model=mlp", "--learning_rate=1e30", "--max_steps=1000"))
    launcher = run.start_local()
    assert launcher.wait(START_SECS) == FAILED
    assert "the loss is nan at global step" in launcher.log
    assert "lower --learning_rate" in launcher.log
    assert run.remaining() == []
    assert run.summary()["status"] in ("failed", "interrupted")  # the chief noticed it, or the launcher ended the chief


def test_chief_saves_no_checkpoint_when_another_workers_loss_is_nan(create_run):
    run = create_run(flags=(UNLIMITED, "--hook=tests.processes.hooks:SpoiledLoss"))
    launcher = run.start_local()
    assert launcher.wait(START_SECS) == FAILED
    assert "worker-1: failed (exit 1)" in launcher.log
    chief_log = (run.logdir / "logs" / "worker-0.log").read_text()
    assert "no checkpoint was saved: worker 1 reported a NaN loss" in chief_log
    assert list((run.logdir / "checkpoints").glob("*.index")) == []


def test_data_that_a_worker_rejects_end_with_one_error_and_without_a_folder(create_run, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.txt").write_text("too short\n")
    run = create_run()
    launcher = run.start_local("--model=gpt", "--dataset=text", f"--data_dir={tmp_path}/data")
    assert launcher.wait(START_SECS) == USAGE
    assert launcher.log.splitlines()[-1].startswith("error: the texts have 10 chars to train on and 10 to test on")
    assert not run.logdir.exists() and run.remaining() == []

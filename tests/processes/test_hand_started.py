"""Tasks started by hand, each a process: they may start in any order, and end by themselves."""

from __future__ import annotations

import json
import os
import signal

import pytest

from ps_trainer.launch.forkserver import ForkServer
from tests.processes.hooks import FOLDER_VARIABLE
from tests.testing.processes import END_SECS, START_SECS, UNLIMITED, ClusterRun
from tests.testing.repetitions import repetitions

# Each task starts when the previous one reports that it waits, so the starts are some seconds apart.
WAITING = {"ps-0": "serving on", "worker-0": "waiting for the ps", "worker-1": "waiting for the (ps|chief)"}
ORDERS = {
    "ps last": ("worker-1", "worker-0", "ps-0"),
    "chief last": ("ps-0", "worker-1", "worker-0"),
}
JOIN_SECS = 10.0  # far from the usual time (under 1 s) and from TensorFlow's own poll (30 s)


def start_one_by_one(run, order, *flags):
    for name in order:
        job_name, index = name.split("-")
        start = run.start_ps if job_name == "ps" else run.start_worker
        task = start(int(index), *flags)
        if name != order[-1]:
            task.wait_for_log(WAITING[name])


@pytest.mark.parametrize(("update", "order"), repetitions([("async", "ps last"), ("sync", "chief last")]))
def test_tasks_started_in_any_order_train_and_end_by_themselves(create_run, update, order):
    run = create_run()
    start_one_by_one(run, ORDERS[order], f"--update={update}", "--max_steps=20")
    codes = {task.name: task.wait(START_SECS) for task in run.tasks}
    assert codes == {"ps-0": 0, "worker-0": 0, "worker-1": 0}
    summary = run.summary()
    assert summary["status"] == "done"
    # async: up to num_workers - 1 steps are in flight when max_steps is reached
    assert summary["global_step"] in ((20,) if update == "sync" else (20, 21))
    assert set(summary["workers"]) == {"0", "1"}
    assert run.checkpoint_step() == summary["global_step"]
    config = json.loads((run.logdir / "config.json").read_text())
    assert config["cluster"] == {"ps": run.ps_hosts, "worker": run.worker_hosts}
    assert config["train"]["update"] == update
    ready = run.time_of_state("worker-0", "initialised, at step 0")
    assert run.time_of_state("worker-1", "building the graph") - ready < JOIN_SECS


def test_worker_joins_training_that_has_begun(create_run):
    run = create_run(flags=("--update=async", "--join_wait_secs=0", UNLIMITED))
    run.start_ps()
    chief = run.start_worker(0)
    run.wait_for_step(1, workers=[0])
    late = run.start_worker(1)
    late.wait_for_log("waiting for the chief")
    run.wait_for_step(run.last_step(0) + 1)
    waited = run.time_of_state("worker-1", "^training$") - run.time_of_state("worker-1", "waiting for the chief")
    assert waited < JOIN_SECS
    chief.send(signal.SIGTERM)
    run.wait_until_gone(END_SECS)


def test_http_proxy_in_the_environment_does_not_matter(tmp_path):
    proxy = "http://127.0.0.1:9"  # no process listens there
    env = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), proxy)
    # A fork server of its own, because gRPC reads its settings when it is loaded.
    with (
        ForkServer({**os.environ, **env}, tmp_path / "forkserver.txt", "local") as server,
        ClusterRun(tmp_path, num_workers=1, env=env, server=server) as run,
    ):
        server.wait_until_ready()
        codes = [task.wait(START_SECS) for task in run.start_all("--max_steps=20")]
        assert codes == [0, 0]
        assert run.summary()["global_step"] == 20


def test_ps_that_keeps_serving_serves_equal_runs_equally(create_run):
    runs = [create_run(num_workers=1, flags=("--max_steps=20", "--seed=3")) for _ in range(2)]
    runs[1].ps_hosts, runs[1].worker_hosts = runs[0].ps_hosts, runs[0].worker_hosts
    ps = runs[0].start_ps(0, "--keep_serving")
    for run in runs:
        assert run.start_worker(0).wait(START_SECS) == 0
        assert ps.exit_code is None
    first, second = (run.summary() for run in runs)
    assert second["global_step"] == first["global_step"] == 20
    assert second["metrics"] == first["metrics"]
    ps.send(signal.SIGTERM)
    assert ps.wait(END_SECS) == 128 + signal.SIGTERM


def test_users_hook_sees_every_step_and_may_end_the_run(create_run, tmp_path):
    run = create_run(
        num_workers=1,
        flags=(UNLIMITED, "--hook=tests.processes.hooks:StopOnRequest"),
        env={FOLDER_VARIABLE: str(tmp_path)},
    )
    tasks = run.start_all()
    run.wait_for_step(1)
    (tmp_path / "stop").touch()
    assert [task.wait(START_SECS) for task in tasks] == [0, 0]
    (calls,) = tmp_path.glob("calls-*")
    steps = run.summary()["workers"]["0"]["local_steps"]
    assert steps >= 1
    assert calls.read_text() == f"{steps} {steps}"
    assert "by a hook's request" in tasks[1].log

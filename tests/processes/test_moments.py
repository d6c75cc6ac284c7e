"""Tasks that are lost before training begins or after its end: once restarted, they rejoin or finish the run."""

from __future__ import annotations

import re
import signal

import pytest

from tests.processes.hooks import FOLDER_VARIABLE
from tests.testing.processes import END_SECS, LOST_SECS, START_SECS, wait_until
from tests.testing.repetitions import repetitions

FAILED = 1
RECOVER = "--recover_timeout_secs=90"


def wait_for_state(run, task_name, pattern):
    """Waits until the task has reported a state that matches."""
    wait_until(
        lambda: any(re.search(pattern, line["state"]) for line in run.metrics(task_name, "state")),
        START_SECS,
        f"{task_name} has reported no state {pattern!r}",
    )


@pytest.mark.parametrize("update", repetitions(["async", "sync", "all_reduce"]))
@pytest.mark.parametrize("role", ["chief", "worker", "ps"])
def test_a_task_killed_while_joining_is_restarted_and_the_run_ends_well(create_run, update, role):
    num_ps = 2 if role == "ps" else 1
    run = create_run(num_ps=num_ps, flags=(RECOVER, "--max_steps=30", f"--update={update}", "--join_wait_secs=60"))
    tasks = {f"ps-{index}": run.start_ps(index) for index in range(num_ps)}
    if role == "chief":  # started alone, so that it waits for the worker once it has set up the run
        tasks["chief"] = run.start_worker(0)
        wait_for_state(run, "worker-0", "waiting for worker-1")
        killed = "chief"
    else:
        tasks["worker"] = run.start_worker(1)
        wait_for_state(run, "worker-1", "waiting for the chief")
        killed = "worker" if role == "worker" else "ps-1"
    tasks[killed].send(signal.SIGKILL)
    assert tasks[killed].wait(END_SECS) == -signal.SIGKILL
    start = {
        "chief": lambda: run.start_worker(0),
        "worker": lambda: run.start_worker(1),
        "ps-1": lambda: run.start_ps(1),
    }
    tasks[killed] = start[killed]()
    missing = "worker" if role == "chief" else "chief"
    tasks[missing] = start[missing]()
    assert {name: task.wait(START_SECS) for name, task in tasks.items()} == dict.fromkeys(tasks, 0)
    assert {worker["status"] for worker in run.summary()["workers"].values()} == {"done"}
    assert run.summary()["global_step"] >= 30


class TestAtTheEnd:
    """The chief has trained to the end, and waits for the long last step of worker 1."""

    @pytest.fixture
    def start(self, create_run, tmp_path):
        def start(step_secs=10):
            run = create_run(
                flags=(
                    *(RECOVER, "--max_steps=60", "--update=async"),
                    f"--straggler=det:mean_ms={1000 * step_secs},worker=1",
                    "--hook=tests.processes.hooks:HoldSteps",
                ),
                env={FOLDER_VARIABLE: str(tmp_path)},
            )
            (tmp_path / "hold").touch()
            ps, chief, worker = run.start_all()
            wait_until((tmp_path / "worker-1-steps").exists, START_SECS, "worker 1 has begun no step")
            (tmp_path / "hold").unlink()
            wait_for_state(run, "worker-0", "waiting for worker 1")
            return run, ps, chief, worker

        return start

    def test_a_killed_worker_is_not_waited_for(self, start):
        run, ps, chief, worker = start(step_secs=600)  # killed before its step is over
        worker.send(signal.SIGKILL)
        assert chief.wait(LOST_SECS) == 0
        assert run.summary()["workers"]["1"]["status"] in ("lost", "failed")
        assert run.checkpoint_step() == run.summary()["global_step"] >= 60
        assert ps.wait(END_SECS) == FAILED
        assert "worker 1 failed" in ps.log

    def test_a_killed_chief_closes_the_run_when_it_is_back(self, start):
        run, ps, chief, worker = start()
        chief.send(signal.SIGKILL)
        assert chief.wait(END_SECS) == -signal.SIGKILL
        assert worker.wait(START_SECS) == 0
        assert ps.exit_code is None
        chief = run.start_worker(0)
        assert chief.wait(START_SECS) == 0
        assert ps.wait(END_SECS) == 0
        summary = run.summary()
        assert {worker["status"] for worker in summary["workers"].values()} == {"done"}
        assert run.checkpoint_step() == summary["global_step"] >= 60

    def test_a_killed_ps_is_waited_for_and_its_lost_steps_are_repeated(self, start):
        run, ps, chief, worker = start()
        ps.send(signal.SIGKILL)
        assert ps.wait(END_SECS) == -signal.SIGKILL
        ps = run.start_ps()
        assert [task.wait(START_SECS) for task in (chief, worker, ps)] == [0, 0, 0]
        assert run.checkpoint_step() == run.summary()["global_step"] >= 60


def test_a_killed_evaluator_is_restarted_and_evaluates_the_rest(create_run):
    run = create_run(flags=(RECOVER, "--save_checkpoint_secs=1", "--keep_checkpoints=100"))
    launcher = run.start_local(
        "--num_evaluators=1", "--max_steps=80", "--max_restarts=1", "--fault=kill:evaluator:0@step=10",
    )  # fmt: skip
    assert launcher.wait(START_SECS) == 0
    summary = run.summary()
    assert summary["restarts"] == {"evaluator-0": 1}
    assert {worker["status"] for worker in summary["workers"].values()} == {"done"}
    evaluated = [line["global_step"] for line in run.metrics("evaluator-0", "eval")]
    assert evaluated[-1] == run.checkpoint_step() == summary["global_step"]

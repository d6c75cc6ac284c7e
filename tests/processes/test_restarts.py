"""Tasks that die and are restarted by the launcher: the run ends well, and every step is accounted for."""

from __future__ import annotations

import json
import re

import pytest

from benchmarks import accounting, leftovers
from tests.testing.processes import END_SECS, START_SECS
from tests.testing.repetitions import representatives

RECOVER = "--recover_timeout_secs=90"
SAVE_SLACK_SECS = 15.0  # allowance for a save on a busy machine


def own_restarts(run, task):
    """The restarts of a task that count against its limit, as the launcher reported them."""
    return re.findall(rf"{task} .*restarted in .* \(restart \d of 2\)", run.tasks[0].log)


# (update rule, fault, restarted task)
FAULTS = [
    ("async", "kill:ps:0@step=20", "ps-0"),  # this ps task holds global_step
    ("async", "kill:chief@step=20", "worker-0"),
    ("sync", "kill:worker:1@step=20", "worker-1"),
    ("async", "raise:worker:1@step=20", "worker-1"),
    ("sync_replicas", "kill:worker:1@step=20", "worker-1"),  # all roll back to a checkpoint
    ("sync_replicas", "kill:chief@step=20", "worker-0"),
    ("all_reduce", "kill:worker:1@step=20", "worker-1"),  # all other workers end with it
    ("all_reduce", "kill:ps:0@step=20", "ps-0"),
    ("sync", "kill:ps:1@step=20", "ps-1"),
    ("sync", "term:worker:1@step=20", "worker-1"),
    ("ssp", "term:ps:1@step=20", "ps-1"),  # its state is lost: all roll back to a checkpoint
    ("sync", "kill:chief@step=20", "worker-0"),
    ("sync", "term:chief@step=20", "worker-0"),
]
# `test_recovery.py` and the test below lose a ps task, the chief or a worker of `sync`, `test_two_faults.py` two tasks.
# `test_faults.py` restarts all workers of `all_reduce`. A signal ends a task of any rule in the same way.
CHOSEN = representatives(FAULTS, [FAULTS[4]])


@pytest.mark.parametrize(("update", "fault", "restarted"), CHOSEN)
def test_run_continues_and_ends_well(create_run, update, fault, restarted):
    run = create_run(num_ps=2 if "ps:1" in fault else 1, flags=(RECOVER,))
    max_steps = 50
    if update == "async":  # others continue: they must not end before the killed task is back
        max_steps = 140 if restarted == "worker-1" else 90
    launcher = run.start_local(
        f"--max_steps={max_steps}",
        f"--update={update}",
        "--max_restarts=2",
        f"--fault={fault}",
        "--step_log",
        "--save_checkpoint_secs=1",
    )
    assert launcher.wait(START_SECS) == 0
    summary = run.summary()
    assert summary["status"] == "done"
    assert max_steps <= summary["global_step"] <= max_steps + run.num_workers - 1
    assert summary["restarts"][restarted] >= 1
    assert len(own_restarts(run, restarted)) == 1, "more than one restart counts against the task"
    assert summary["faults"][0]["global_step"] >= 20
    assert {worker["status"] for worker in summary["workers"].values()} == {"done"}
    books = accounting.read(run.logdir, summary["global_step"], is_joined=update not in ("async", "ssp"))
    assert books.is_balanced(run.num_workers, num_kills=1), books
    assert all(rollback.secs < 1 + SAVE_SLACK_SECS for rollback in books.rollbacks), books
    assert leftovers.processes(run.logdir, END_SECS) == []
    made_again = [json.loads(line)["global_step"] for line in (run.logdir / "steps" / "worker-1.jsonl").open()]
    assert made_again[-1] >= max_steps - 10, "worker 1 did not take part until the end"


def test_a_workers_own_state_survives_a_kill_of_another_worker(create_run):
    run = create_run(flags=(RECOVER,))
    launcher = run.start_local(
        "--max_steps=50", "--update=sync", "--gradient_transform=error_feedback",
        "--gradient_transform=top_k:ratio=0.01", "--max_restarts=2", "--fault=kill:worker:1@step=20",
        "--save_checkpoint_secs=1", "--step_log",
    )  # fmt: skip
    assert launcher.wait(START_SECS) == 0
    assert run.summary()["restarts"]["worker-1"] >= 1
    logs = [(run.logdir / "logs" / f"worker-{index}.log").read_text() for index in (0, 1)]
    own_state = "starts without its own state|continuing with this worker's own state"
    assert not re.findall(own_state, logs[0]), "worker 0 has left its session"
    assert [line["state"] for line in run.metrics("worker-0", "state")].count("training") == 1
    # Worker 1's own state died with it: its file, if any, is from an earlier push.
    assert len(re.findall("starts without its own state", logs[1])) == 1

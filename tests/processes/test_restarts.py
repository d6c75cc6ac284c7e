"""Tasks that die and are started again by the launcher: the run goes on and is done, with no step unaccounted for."""

from __future__ import annotations

import json
import re

import pytest

from benchmarks import accounting, leftovers
from tests.testing.processes import END_SECS, START_SECS
from tests.testing.repetitions import repetitions

RECOVER = "--recover_timeout_secs=90"
SAVE_SLACK_SECS = 15.0  # for a save on a machine with much other work
SLOW = "--straggler=det:mean_ms=20"  # steps take long beside a restart, and leave it the CPU


def own_restarts(run, task):
    """The restarts of a task that count, as the launcher has told them."""
    return re.findall(rf"{task} .*started again in .* \(restart \d of 2\)", run.tasks[0].log)


@pytest.mark.parametrize(
    ("update", "fault", "restarted"),
    repetitions(
        [
            ("async", "kill:ps:0@step=100", "ps-0"),  # it holds global_step
            ("async", "kill:chief@step=100", "worker-0"),
            ("sync", "kill:worker:1@step=100", "worker-1"),
            ("async", "raise:worker:1@step=100", "worker-1"),
            ("all_reduce", "kill:worker:1@step=100", "worker-1"),  # and with it all others
            ("all_reduce", "kill:ps:0@step=100", "ps-0"),
            ("sync", "kill:ps:1@step=100", "ps-1"),
            ("sync", "term:worker:1@step=100", "worker-1"),
            ("ssp", "term:ps:1@step=100", "ps-1"),  # its state goes with it, after a checkpoint: all begin from there
            ("sync", "kill:chief@step=100", "worker-0"),
            ("sync", "term:chief@step=100", "worker-0"),
        ]
    ),
)
def test_run_goes_on_and_is_done(create_run, update, fault, restarted):
    run = create_run(num_ps=2, flags=(RECOVER, SLOW))
    max_steps = 200
    if update == "async":  # others go on: they must not be at the end before it is back
        max_steps = 700 if restarted == "worker-1" else 450
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
    assert len(own_restarts(run, restarted)) == 1, "it was to blame once only"
    assert summary["faults"][0]["global_step"] >= 100
    assert {worker["status"] for worker in summary["workers"].values()} == {"done"}
    books = accounting.read(run.logdir, summary["global_step"], is_joined=update not in ("async", "ssp"))
    assert books.is_balanced(run.num_workers, num_kills=1), books
    assert all(rollback.secs < 1 + SAVE_SLACK_SECS for rollback in books.rollbacks), books
    assert leftovers.processes(run.logdir, END_SECS) == []
    made_again = [json.loads(line)["global_step"] for line in (run.logdir / "steps" / "worker-1.jsonl").open()]
    assert made_again[-1] >= max_steps - 10, "worker 1 was not there at the end"


def test_what_a_worker_alone_knows_outlives_a_kill_of_another_one(create_run):
    run = create_run(flags=(RECOVER, SLOW))
    launcher = run.start_local(
        "--max_steps=200", "--update=sync", "--gradient_transform=error_feedback",
        "--gradient_transform=top_k:ratio=0.01", "--max_restarts=2", "--fault=kill:worker:1@step=100",
        "--save_checkpoint_secs=1", "--step_log",
    )  # fmt: skip
    assert launcher.wait(START_SECS) == 0
    assert run.summary()["restarts"]["worker-1"] >= 1
    logs = [(run.logdir / "logs" / f"worker-{index}.log").read_text() for index in (0, 1)]
    own_state = "starts without its own state|continuing with this worker's own state"
    assert not re.findall(own_state, logs[0]), "worker 0 has left its session"
    assert [line["state"] for line in run.metrics("worker-0", "state")].count("training") == 1
    # What worker 1 knew died with it: its file, if any, is of an earlier push.
    assert len(re.findall("starts without its own state", logs[1])) == 1

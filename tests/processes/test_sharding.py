"""The examples that workers read when tasks are killed: none is lost, and at most one batch is read twice."""

from __future__ import annotations

import collections
import json

import pytest

from ps_trainer.checkpoints import reader as checkpoint_lib
from tests.testing.processes import START_SECS

NUM_EPOCHS, NUM_EXAMPLES, BATCH_SIZE = 2, 1437, 32


@pytest.mark.parametrize(
    ("update", "fault", "most_seen_twice"),
    [
        ("async", "kill:worker:1@step=30", BATCH_SIZE),  # another worker reads the rest of its shard
        ("sync", "kill:ps:0@step=30", 0),  # counts since the checkpoint are rolled back with the parameters
    ],
)
def test_every_example_is_seen_although_a_task_is_killed(create_run, update, fault, most_seen_twice):
    run = create_run(step_ms=40, flags=("--recover_timeout_secs=90",))
    launcher = run.start_local(
        f"--update={update}", "--sharding=dynamic", f"--num_epochs={NUM_EPOCHS}", "--max_steps=none",
        "--save_checkpoint_steps=10", f"--fault={fault}", "--max_restarts=2",
    )  # fmt: skip
    assert launcher.wait(START_SECS) == 0
    summary = run.summary()
    assert summary["status"] == "done"
    coverage = summary["coverage"]
    assert list(coverage) == [str(epoch) for epoch in range(NUM_EPOCHS)]
    for epoch in coverage.values():
        assert sum(epoch.values()) == NUM_EXAMPLES
        assert epoch["never"] == epoch["more"] == 0
    assert sum(epoch["twice"] for epoch in coverage.values()) <= most_seen_twice
    assert len(summary["faults"]) == 1


def test_a_thawed_worker_drops_examples_that_others_were_given(create_run):
    run = create_run(step_ms=40, flags=("--recover_timeout_secs=90",))
    launcher = run.start_local(
        "--update=async", "--sharding=dynamic", "--num_epochs=3", "--max_steps=none", "--heartbeat_timeout_secs=3",
        "--fault=freeze:worker:1@step=30,secs=8",
    )  # fmt: skip
    assert launcher.wait(START_SECS) == 0
    coverage = run.summary()["coverage"].values()
    assert len(run.summary()["faults"]) == 1
    assert all(epoch["never"] == epoch["more"] == 0 for epoch in coverage)
    # The frozen worker's step ends when the worker thaws.
    assert sum(epoch["twice"] for epoch in coverage) <= BATCH_SIZE
    assert "shards of this worker were given to others" in (run.logdir / "logs" / "worker-1.log").read_text()


NUM_BATCHES = NUM_EPOCHS * (NUM_EXAMPLES // 2) // BATCH_SIZE
STATIC = (
    f"--num_epochs={NUM_EPOCHS}", "--max_steps=none", "--step_log", "--max_restarts=2",
    "--learning_rate=1e-30",  # so that the loss of a step identifies its batch
)  # fmt: skip


def losses(run, worker):
    """(global_step, loss) of each step of a worker, from all of its processes."""
    lines = (run.logdir / "steps" / f"worker-{worker}.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return [(record["global_step"], record["loss"]) for record in records if "loss" in record]


def position(run):
    return checkpoint_lib.latest(run.logdir / "checkpoints")["data/position"].tolist()


def test_a_restarted_worker_reads_on(create_run):
    run = create_run(step_ms=40, flags=("--recover_timeout_secs=90",))
    launcher = run.start_local("--update=async", "--fault=kill:worker:1@step=30", *STATIC)
    assert launcher.wait(START_SECS) == 0
    assert len(run.summary()["faults"]) == 1
    assert position(run) == [NUM_BATCHES * BATCH_SIZE] * 2
    assert 2 * NUM_BATCHES <= run.summary()["global_step"] <= 2 * NUM_BATCHES + 1
    read = [loss for _, loss in losses(run, 1)]
    assert NUM_BATCHES - 1 <= len(read) <= NUM_BATCHES + 1
    assert len(set(read)) >= NUM_BATCHES - 1


def test_reading_positions_are_rolled_back_with_the_parameters(create_run):
    run = create_run(step_ms=40, flags=("--recover_timeout_secs=90",))
    launcher = run.start_local("--update=sync", "--fault=kill:ps:0@step=33", "--save_checkpoint_steps=10", *STATIC)
    assert launcher.wait(START_SECS) == 0
    assert position(run) == [NUM_BATCHES * BATCH_SIZE] * 2
    assert run.summary()["global_step"] == NUM_BATCHES
    for worker in range(2):
        by_step = collections.defaultdict(set)
        for step, loss in losses(run, worker):
            by_step[step].add(loss)
        assert sorted(by_step) == list(range(1, NUM_BATCHES + 1))
        assert all(len(read) == 1 for read in by_step.values())  # the repeated steps read the same batches
        assert len({read for (read,) in by_step.values()}) == NUM_BATCHES
        assert len(losses(run, worker)) > NUM_BATCHES

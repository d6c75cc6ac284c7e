"""`--sharding=dynamic` when tasks are really killed: no example is lost, and at most a batch is seen twice."""

from __future__ import annotations

import pytest

from tests.testing.processes import START_SECS

pytestmark = pytest.mark.slow

NUM_EPOCHS, NUM_EXAMPLES, BATCH_SIZE = 3, 1437, 32
SLOW = "--straggler=det:mean_ms=20"  # so that nobody is done before the fault


@pytest.mark.parametrize(
    ("update", "fault", "most_seen_twice"),
    [
        ("async", "kill:worker:1@step=30", BATCH_SIZE),  # another one reads what it had
        ("sync", "kill:ps:0@step=30", 0),  # what was counted since the checkpoint is rolled back with the parameters
    ],
)
def test_every_example_is_seen_though_a_task_is_killed(create_run, update, fault, most_seen_twice):
    run = create_run(flags=("--recover_timeout_secs=90",))
    launcher = run.start_local(
        f"--update={update}", "--sharding=dynamic", f"--num_epochs={NUM_EPOCHS}", "--max_steps=none",
        "--save_checkpoint_steps=10", f"--fault={fault}", "--max_restarts=2", SLOW,
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

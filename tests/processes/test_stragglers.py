"""Deliberately slow workers, as real processes."""

from __future__ import annotations

import json
import signal

import pytest

from tests.testing.processes import END_SECS, START_SECS, UNLIMITED

USAGE = 2


def test_a_worker_in_a_long_delay_blocks_no_other_and_obeys_a_signal(create_run):
    run = create_run(
        flags=(UNLIMITED, "--step_log", "--straggler=det:mean_ms=50", "--straggler=exp:mean_ms=1e9,worker=1")
    )
    ps, chief, worker = run.start_all()
    worker.wait_for_log("training")
    run.wait_for_step(20, workers=[0])
    worker.send(signal.SIGTERM)
    assert worker.wait(END_SECS) == 128 + signal.SIGTERM
    chief.send(signal.SIGTERM)
    assert chief.wait(END_SECS) == 128 + signal.SIGTERM
    steps = [json.loads(line) for line in (run.logdir / "steps" / "worker-0.jsonl").read_text().splitlines()]
    whole = [step for step in steps if step["injected_delay"] > 0]  # a signal may have cut the last delay short
    assert len(whole) >= 19
    for step in whole:
        assert 0.05 * (1 - 0.02) <= step["injected_delay"] <= 0.05 * (1 + 0.02)
        assert step["t_computed"] - step["t_start"] >= step["injected_delay"]
        assert step["t_computed"] <= step["t_applied"] <= step["t_end"]
    assert run.metrics("worker-0", "train")[0]["injected_delay_mean"] == pytest.approx(0.05, rel=0.02)
    assert ps.wait(START_SECS) == 128 + signal.SIGTERM


def test_the_launcher_rejects_a_delay_for_a_worker_that_does_not_exist(create_run):
    run = create_run()
    launcher = run.start_local("--straggler=exp:worker=2")
    assert launcher.wait(START_SECS) == USAGE
    assert "--straggler exp:worker=2: worker 2 does not exist with num_workers=2; give worker=1 or less" in launcher.log
    assert not run.logdir.exists()

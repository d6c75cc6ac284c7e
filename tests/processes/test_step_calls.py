"""Tasks that are killed while a worker makes many steps in one call."""

from __future__ import annotations

import json
import signal

from tests.testing.processes import END_SECS, LOST_SECS, START_SECS, UNLIMITED, wait_until

FLAGS = (
    *("--steps_per_call=10000", "--report_secs=1000", "--step_log", "--update=async", "--learning_rate=0.02"),
    *("--recover_timeout_secs=90", "--save_checkpoint_secs=2", "--join_wait_secs=1"),
)


def steps_of(run, worker):
    """global_step of each step that a worker has logged."""
    path = run.logdir / "steps" / f"worker-{worker}.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line)["global_step"] for line in lines]


def wait_for_steps(run, worker, count):
    wait_until(lambda: len(steps_of(run, worker)) >= count, START_SECS, f"worker {worker} has made {count} steps")


def test_a_call_survives_a_killed_worker_and_ends_with_a_killed_ps_or_a_signal(create_run):
    run = create_run(step_ms=0, flags=FLAGS)
    ps, chief, worker = run.start_all(UNLIMITED)
    for index in (0, 1):
        wait_for_steps(run, index, 50)
    worker.send(signal.SIGKILL)
    assert worker.wait(END_SECS) == -signal.SIGKILL
    wait_for_steps(run, 0, len(steps_of(run, 0)) + 200)
    saved = run.wait_for_checkpoint()
    ps.send(signal.SIGKILL)
    chief.wait_for_log("waiting up to 90 s for it to rejoin", LOST_SECS)
    before = len(steps_of(run, 0))
    run.start_ps(0, UNLIMITED)
    chief.wait_for_log(r"restored .*model.ckpt-", LOST_SECS)
    wait_for_steps(run, 0, before + 50)
    (event,) = [event for event in run.metrics("worker-0", "event") if event["event"] == "recovered"]
    assert event["global_step"] >= saved
    chief.send(signal.SIGTERM)
    assert chief.wait(END_SECS) == 128 + signal.SIGTERM
    # The chief alone made these steps. Each is in the log, and the checkpoint is of the last one.
    after = steps_of(run, 0)[before:]
    assert after == list(range(event["global_step"] + 1, run.checkpoint_step() + 1))

"""Tasks that are killed while a worker makes many steps in one call."""

from __future__ import annotations

import signal

from tests.testing.processes import END_SECS, LOST_SECS, UNLIMITED

FLAGS = (
    *("--steps_per_call=10000", "--report_secs=1000", "--step_log", "--update=async", "--learning_rate=0.02"),
    *("--recover_timeout_secs=90", "--save_checkpoint_secs=2", "--join_wait_secs=1"),
)


def test_a_call_survives_a_killed_worker_and_ends_with_a_killed_ps_or_a_signal(create_run):
    run = create_run(step_ms=0, flags=FLAGS)
    ps, chief, worker = run.start_all(UNLIMITED)
    for index in (0, 1):
        run.wait_for_logged_steps(index, 50)
    worker.send(signal.SIGKILL)
    assert worker.wait(END_SECS) == -signal.SIGKILL
    run.wait_for_logged_steps(0, len(run.logged_steps(0)) + 200)
    saved = run.wait_for_checkpoint()
    ps.send(signal.SIGKILL)
    chief.wait_for_log("waiting up to 90 s for it to rejoin", LOST_SECS)
    before = len(run.logged_steps(0))
    run.start_ps(0, UNLIMITED)
    chief.wait_for_log(r"restored .*model.ckpt-", LOST_SECS)
    run.wait_for_logged_steps(0, before + 50)
    (event,) = [event for event in run.metrics("worker-0", "event") if event["event"] == "recovered"]
    assert event["global_step"] >= saved
    chief.send(signal.SIGTERM)
    assert chief.wait(END_SECS) == 128 + signal.SIGTERM
    # The chief alone made these steps. Each is in the log, and the checkpoint is of the last one.
    after = [step["global_step"] for step in run.logged_steps(0)[before:]]
    assert after == list(range(event["global_step"] + 1, run.checkpoint_step() + 1))

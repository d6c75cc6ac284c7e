"""Workers' own state when a ps task is lost and the run returns to a checkpoint that was saved by the clock."""

from __future__ import annotations

import signal

import pytest

from tests.testing.processes import END_SECS, LOST_SECS, START_SECS, UNLIMITED, wait_until
from tests.testing.repetitions import repetitions

COMPRESSION = ("--gradient_transform=error_feedback", "--gradient_transform=top_k:ratio=0.05")


@pytest.mark.parametrize(
    "flags",
    repetitions(
        [
            ("--update=async", *COMPRESSION),
            ("--update=sync", *COMPRESSION),
            ("--update=easgd", "--update_option=period=4"),
            ("--update=local_sgd", "--update_option=period=4"),
        ],
        every=4,
        first=3,
    ),
    ids=lambda flags: flags[0].partition("=")[2],
)
def test_after_the_loss_of_a_ps_each_worker_loads_its_own_state_of_the_checkpoint(create_run, flags):
    run = create_run(num_ps=2, flags=("--recover_timeout_secs=90", "--save_checkpoint_secs=1", "--learning_rate=0.02"))
    ps_0, ps_1, *workers = run.start_all(UNLIMITED, *flags)
    run.wait_for_step(10)
    saved = run.wait_for_checkpoint()
    wait_until(lambda: run.checkpoint_step() > saved, START_SECS, "the chief has not saved")
    ps_1.send(signal.SIGKILL)
    assert ps_1.wait(END_SECS) == -signal.SIGKILL
    ps_1 = run.start_ps(1, UNLIMITED, *flags)
    for worker in workers:
        worker.wait_for_log(r"continuing with this worker's own state after [1-9]\d* pushes, from ", LOST_SECS)
        assert "begins without" not in worker.log
    workers[0].send(signal.SIGTERM)
    assert all(task.wait(END_SECS + 15) != 0 for task in (ps_0, ps_1, *workers))

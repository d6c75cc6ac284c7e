"""A real worker's metrics of bytes on the wire: each step carries the parameters once each way."""

from __future__ import annotations

import pytest

from tests.testing.processes import START_SECS
from tests.testing.repetitions import repetitions

# Two convolutions and two dense layers on images of 8x8, halved twice by pooling.
CNN_PARAMETERS = (3 * 3 * 1 * 32 + 32) + (3 * 3 * 32 * 64 + 64) + (2 * 2 * 64 * 64 + 64) + (64 * 10 + 10)
FLOAT_BYTES = 4
NAMES = ("push_bytes_per_step", "pull_bytes_per_step")


@pytest.mark.parametrize(("num_ps", "num_workers"), repetitions([(1, 1), (2, 2)], first=1))
def test_a_step_carries_the_parameters_once_each_way(create_run, num_ps, num_workers):
    run = create_run(num_ps=num_ps, num_workers=num_workers, step_ms=0)
    launcher = run.start_local("--model=cnn", "--max_steps=100")
    assert launcher.wait(START_SECS) == 0
    workers = run.summary()["workers"]
    reports = run.metrics("worker-0", "train")
    least = FLOAT_BYTES * CNN_PARAMETERS
    assert len(workers) == num_workers
    for figures in workers.values():
        assert figures["push_bytes_computed"] == least
        # The first pull belongs to no step. On a busy machine one of the workers may make only few of the steps.
        num_transfers = figures["local_steps"] + 1
        for name in NAMES:
            assert least < figures[name] < 1.05 * least * num_transfers / figures["local_steps"]
    assert reports and all(set(NAMES) <= set(report) for report in reports)

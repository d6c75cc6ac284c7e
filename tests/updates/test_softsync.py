"""`softsync` against its equation in scripted order, its staleness, and the options that it rejects."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.errors import OptionError
from ps_trainer.updates.base import RunPlan
from ps_trainer.updates.options import SoftSyncOptions
from ps_trainer.updates.softsync import SoftSync
from tests.testing.cluster import InProcessCluster, config_of
from tests.testing.gradient_groups import check_script
from tests.testing.repetitions import repetitions

NUM_WORKERS = 3


@pytest.mark.full  # `k_batch_async` is the same rule, and `test_k_family.py` has a script of it
@pytest.mark.parametrize(
    ("splits", "size", "staleness"),
    [(1, 3, [[0, 0, 1, 0], [0, 0, 1], [1, 1]]), (2, 2, [[0, 0, 1, 1], [1, 0, 1], [2, 1]]), (3, 1, None)],
)
@pytest.mark.parametrize("layout", ["packed", "per_variable"])
def test_an_update_is_the_average_of_n_over_splits_gradients_rounded_up(cluster, splits, size, staleness, layout):
    wanted = check_script(
        cluster, "dense", [0, 0, 1, 1, 2, 0, 1, 2, 0], required=lambda clock: size, is_fresh_only=False,
        waits=False, update="softsync", update_option=(f"splits={splits}",), layout=layout,
    )  # fmt: skip
    if staleness is not None:
        assert wanted.staleness == staleness


@pytest.mark.parametrize("splits", repetitions([1, 3], first=1))
def test_mean_staleness_is_near_the_number_of_splits(splits):
    steps = 400 * splits // 3  # of 400 gradients
    config = config_of(
        "Dense", "Rows", update="softsync", update_option=(f"splits={splits}",), batch_size=4, max_steps=steps
    )
    with InProcessCluster(1, NUM_WORKERS) as cluster:
        outcomes = cluster.run(config)
    reached = [outcome.progress.global_steps for outcome in outcomes]
    begun, ended = max(map(min, reached)), min(map(max, reached))  # all workers took part between these two
    staleness = np.concatenate(
        [
            value
            for outcome in outcomes
            for step, value in zip(outcome.progress.global_steps, outcome.progress.staleness_values, strict=True)
            if begun < step < ended
        ]
    )
    # The other 2 workers' gradients in flight make 2 / c updates, c = 3 / splits.
    assert np.mean(staleness[staleness >= 0]) == pytest.approx(2 * splits / 3, abs=0.25)
    assert outcomes[0].worker.final_values["global_step"] == steps
    used = sum(worker.gradients_used for worker in outcomes[0].worker.summary.workers.values())
    assert used == steps * 3 // splits


def test_a_worker_never_waits_so_one_without_data_may_wait_for_shards():
    assert not SoftSync(SoftSyncOptions()).waits_for_others


def test_more_splits_than_workers_are_rejected():
    with pytest.raises(OptionError, match="splits=4 exceeds num_workers=3.*--update=async"):
        SoftSync(SoftSyncOptions(splits=4)).check(RunPlan(num_workers=3))
    SoftSync(SoftSyncOptions(splits=3)).check(RunPlan(num_workers=3))

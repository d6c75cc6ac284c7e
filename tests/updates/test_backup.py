"""`backup` against its equation in scripted order, and beside `sync` with the same number of backup workers."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.errors import OptionError
from ps_trainer.updates.backup import Backup
from ps_trainer.updates.base import RunPlan
from ps_trainer.updates.options import BackupOptions
from tests.testing.cluster import InProcessCluster, config_of, wait_until
from tests.testing.gradient_groups import check_script
from tests.testing.repetitions import repetitions
from tests.testing.script import Turnstile

NUM_WORKERS = 3


# `sync` with replicas_to_aggregate=2 is the same rule in the same code; `test_synchronous.py` has the other settings.
@pytest.mark.parametrize("model", repetitions(["dense", "sparse"], first=1))
@pytest.mark.parametrize("layout", repetitions(["packed", "per_variable"], first=1))
def test_an_update_is_the_average_of_the_first_gradients_of_its_step(cluster, model, layout):
    # Worker 1 is late for step 1, worker 0 for steps 2 and 3; a late worker continues with the newest parameters.
    script = [0, 2, 1, 2, 1, 0, 2, 1, 0, 0, 2]
    wanted = check_script(
        cluster, model, script, required=lambda clock: 2, is_fresh_only=True, waits=True, update="backup",
        update_option=("backup_workers=1",), layout=layout,
    )  # fmt: skip
    assert wanted.staleness == [[0, -1, -1, 0], [-1, 0, 0], [0, 0, 0, 0]]


@pytest.mark.full  # `test_k_family.py` shows that it is the same policy in the same code
@pytest.mark.parametrize("optimizer", ["momentum", "adam", "ftrl"])
def test_without_backup_workers_it_equals_sync(optimizer):
    config = {"optimizer": optimizer, "learning_rate": 0.05, "batch_size": 4, "max_steps": 6}
    options = ("backup_workers=0",)
    with InProcessCluster(1, 2) as cluster:
        sync = cluster.run(config_of("Embedded", "Rows", update="sync", **config))
        backup = cluster.run(config_of("Embedded", "Rows", update="backup", update_option=options, **config))
    for one, other in zip(sync, backup, strict=True):
        np.testing.assert_allclose(one.losses, other.losses, rtol=0, atol=2e-6)
    for name, value in sync[0].worker.final_values.items():
        np.testing.assert_allclose(backup[0].worker.final_values[name], value, rtol=0, atol=2e-6, err_msg=name)


def run_with_worker_2_standing(cluster, update, option, steps):
    """Steps made, gradients used and gradients dropped by worker, when worker 2 makes no step before the end."""
    config = config_of(
        "tests.testing.script:Linear", "Rows", update=update, update_option=(option,), batch_size=2, max_steps=steps
    )
    with Turnstile(cluster) as gate:
        gate.start(config)
        for worker in range(3):
            gate.wait_arrived(worker, 1)
        for _ in range(5 * steps):
            gate.release(0)
            gate.release(1)
        wait_until(lambda: gate.values()["global_step"] == steps)
        gate.open()
        outcomes = [cluster.finish(call) for call in gate.calls.values()]
    workers = outcomes[0].worker.summary.workers
    return [
        [workers[worker].figures.local_steps for worker in range(3)],
        [workers[worker].gradients_used for worker in range(3)],
        [workers[worker].gradients_dropped for worker in range(3)],
    ]


@pytest.mark.parametrize(
    ("update", "option"), repetitions([("backup", "backup_workers=1"), ("sync", "replicas_to_aggregate=2")])
)
def test_no_other_worker_gets_a_slow_workers_turns(cluster, update, option):
    made, used, dropped = run_with_worker_2_standing(cluster, update, option, steps=20)
    assert made == [20, 20, 1]  # one turn per step and worker
    assert used == [20, 20, 0]
    assert dropped == [0, 0, 1]


@pytest.mark.parametrize("num_workers", repetitions([3, 4]))
def test_equal_workers_lose_the_share_of_the_backup_workers(num_workers):
    steps, backup = 150, 1
    config = config_of(
        "Dense", "Rows", update="backup", update_option=(f"backup_workers={backup}",), batch_size=4, max_steps=steps
    )
    with InProcessCluster(1, num_workers) as cluster:
        outcomes = cluster.run(config)
    workers = outcomes[0].worker.summary.workers.values()
    used = sum(worker.gradients_used for worker in workers)
    pushed = sum(worker.figures.local_steps for worker in workers)
    assert used == steps * (num_workers - backup)  # exactly, not at least
    # A worker makes one push per step unless it is late by more than a whole step.
    assert pushed <= steps * num_workers
    assert (pushed - used) / pushed == pytest.approx(backup / num_workers, abs=0.1)
    # Every gradient in an update was computed from that update's own parameters.
    assert {value for outcome in outcomes for value in np.ravel(outcome.progress.staleness_values)} == {0, -1}


def test_backup_workers_must_leave_a_worker_to_wait_for():
    rule = Backup(BackupOptions(backup_workers=3))
    with pytest.raises(OptionError, match="backup_workers=3 leaves none of num_workers=3.*at most 2"):
        rule.check(RunPlan(num_workers=3))
    rule.check(RunPlan(num_workers=4))
    assert rule.min_workers(4) == 1

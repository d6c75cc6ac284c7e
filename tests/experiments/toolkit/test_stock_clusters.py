"""The hand-written TF1 script: it trains as one process does, and drops what comes late."""

from __future__ import annotations

import pytest

from ps_trainer.errors import RunError
from ps_trainer.experiments.toolkit.stock_clusters import StockCluster
from tests.testing import plain_loop

SETTINGS = {"model": "softmax", "dataset": "digits", "batch_size": 8, "learning_rate": 0.1, "seed": 5}


def test_one_worker_has_the_losses_of_one_process(tmp_path):
    training = StockCluster(num_workers=1, num_updates=12, settings=SETTINGS).train(tmp_path)
    alone = plain_loop.train(plain_loop.config_of({**SETTINGS, "max_steps": 12}))
    assert [step.loss for step in training.steps] == pytest.approx([step["loss"] for step in alone], abs=1e-5)
    assert [step.global_step for step in training.steps] == list(range(1, 13))
    assert training.summary["workers"]["0"] == {"pushes": 12, "gradients_dropped": 0}


def test_with_a_backup_worker_the_token_queue_drops_a_third(tmp_path):
    delays = ["exp:mean_ms=30"]
    settings = {**SETTINGS, "replicas_to_aggregate": 2, "straggler": delays}
    training = StockCluster(num_workers=3, num_updates=30, settings=settings).train(tmp_path)
    assert max(step.global_step for step in training.steps) >= 30
    assert {step.worker for step in training.steps} == {0, 1, 2}
    assert all(step.t_end - step.t_start >= step.injected_delay for step in training.steps)
    counts = training.summary["workers"].values()
    # Three tokens for each update, of which two gradients are used, and a few more before the first.
    assert 80 <= sum(one["pushes"] for one in counts) <= 110
    assert 50 <= sum(one["pushes"] - one["gradients_dropped"] for one in counts) <= 75


def test_a_failed_task_ends_the_run_with_the_end_of_its_log(tmp_path):
    settings = {**SETTINGS, "model": "no_such_model"}
    with pytest.raises(RunError, match=r"(?s)worker-0 failed.*no_such_model"):
        StockCluster(num_workers=1, num_updates=5, settings=settings).train(tmp_path)

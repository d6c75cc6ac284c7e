"""Staleness, ends and isolation of the update rules, on real servers."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.errors import OptionError, StartTimeoutError
from ps_trainer.updates.base import RunPlan
from ps_trainer.updates.options import SyncOptions
from ps_trainer.updates.synchronous import Sync
from tests.testing.cluster import InProcessCluster, config_of, held, wait_until
from tests.testing.repetitions import repetitions

LEARNING_RATE = 0.1  # the default of `config_of`


@pytest.mark.parametrize("num_workers", repetitions([2, 3], first=1))
@pytest.mark.parametrize("num_ps", repetitions([1, 2]))  # each ps task counts for itself
def test_mean_staleness_of_async_workers_is_their_number_less_one(num_workers, num_ps):
    with InProcessCluster(num_ps, num_workers) as cluster:
        outcomes = cluster.run(config_of("Dense", "Rows", update="async", batch_size=4, max_steps=600))
    # Some workers train alone in the first and the last steps, so these are not of the steady state.
    first = max(outcome.progress.global_steps[0] for outcome in outcomes)
    last = min(outcome.progress.global_steps[-1] for outcome in outcomes)
    values = [
        staleness
        for outcome in outcomes
        for step, staleness in zip(outcome.progress.global_steps, outcome.progress.staleness_values, strict=True)
        if first < step <= last
    ]
    assert len(values) > 200
    assert abs(np.mean(values) - (num_workers - 1)) <= 0.05 * num_workers


def test_async_counts_every_gradient_in_global_step():
    with InProcessCluster(1, 2) as cluster:
        outcomes = cluster.run(config_of("Dense", "Rows", update="async", batch_size=4, max_steps=100))
    steps = sorted(step for outcome in outcomes for step in outcome.progress.global_steps)
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) - 100 <= 1  # the other worker's step in flight


@pytest.mark.full  # the script of `test_synchronous.py` and the conformance suite show both
def test_sync_staleness_is_zero_and_no_gradient_is_dropped():
    with InProcessCluster(2, 2) as cluster:
        outcomes = cluster.run(config_of("Dense", "Rows", update="sync", batch_size=4, max_steps=40))
    for outcome in outcomes:
        assert outcome.progress.global_steps == list(range(1, 41))
        assert set(np.concatenate(outcome.progress.staleness_values)) == {0}


@pytest.mark.full  # the conformance suite does the same with `backup`, which is the same rule
@pytest.mark.parametrize("num_ps", [1, 2])
def test_with_backup_workers_an_update_is_the_average_of_the_gradients_counted_as_used(num_ps):
    config = config_of(
        "CreditRows", "Rows", update="sync", update_option=("replicas_to_aggregate=2",), batch_size=4, max_steps=60
    )
    with InProcessCluster(num_ps, 3) as cluster:
        outcomes = cluster.run(config)
    workers = [outcomes[0].worker.summary.workers[worker] for worker in range(3)]
    used = [worker.gradients_used for worker in workers]
    assert sum(used) == 60 * 2
    assert used == [worker.figures.local_steps - worker.gradients_dropped for worker in workers]
    for credits in credits_of(outcomes):
        np.testing.assert_allclose(2 * credits, used, rtol=0, atol=1e-3)


# `test_synchronous.py` compares such a run of `sync` with NumPy.
@pytest.mark.parametrize("update", repetitions(["async", "sync"]))
@pytest.mark.parametrize("first", repetitions([0, 1]))
def test_a_worker_that_runs_out_of_data_first_blocks_no_other_and_is_not_averaged(update, first):
    lengths = [40, 40]
    lengths[first] = 10
    config = config_of(
        "Credits", "Rows", [f"lengths={lengths[0]},{lengths[1]}"], update=update, batch_size=4, max_steps=None,
        num_epochs=100,
    )  # fmt: skip
    with InProcessCluster(1, 2) as cluster:
        outcomes = cluster.run(config)
    assert [outcome.code for outcome in outcomes] == [0, 0]
    assert [len(outcome.losses) for outcome in outcomes] == lengths
    assert outcomes[0].worker.final_values["global_step"] == (50 if update == "async" else 40)
    assert_moved_by_each_gradient_or_their_average(outcomes, update, together=10)


@pytest.mark.full  # under `async` the conformance suite has such a run, under `sync` `test_synchronous.py`
@pytest.mark.parametrize("update", ["async", "sync"])
def test_uneven_ends_of_an_embedding_model(update):
    config = config_of(
        "CreditRows", "Rows", ["lengths=5,15"], update=update, batch_size=4, max_steps=None, num_epochs=100
    )
    with InProcessCluster(2, 2) as cluster:
        outcomes = cluster.run(config)
    assert outcomes[0].worker.final_values["global_step"] == (20 if update == "async" else 15)
    assert_moved_by_each_gradient_or_their_average(outcomes, update, together=5)


def test_a_run_after_another_with_other_settings_does_not_inherit_its_state():
    with InProcessCluster(1, 1) as cluster:
        cluster.run(config_of("Dense", "Rows", update="sync", batch_size=4, max_steps=10))
        outcomes = cluster.run(config_of("Embedded", "Rows", update="sync", batch_size=4, max_steps=5))
    assert outcomes[0].progress.global_steps == [1, 2, 3, 4, 5]


def test_more_replicas_to_aggregate_than_workers_are_rejected():
    rule = Sync(SyncOptions(replicas_to_aggregate=5))
    with pytest.raises(OptionError, match="replicas_to_aggregate=5 exceeds num_workers=4"):
        rule.check(RunPlan(4))
    rule.check(RunPlan(5))


def test_workers_with_other_settings_than_the_chief_are_rejected():
    same = {"update": "async", "batch_size": 4, "max_steps": 50, "join_wait_secs": 5.0}
    chief_config = config_of("Dense", "Rows", **same)
    other_config = config_of("Dense", "Rows", **same, learning_rate=0.5)
    with InProcessCluster(1, 2) as cluster:
        chief = cluster.start(chief_config, 0)
        other = cluster.finish_call(cluster.start(other_config, 1))
        assert isinstance(other.error, OptionError)
        assert "--learning_rate: chief 0.1, worker-1 0.5" in str(other.error)
        assert cluster.finish_call(chief).result == 0


def test_sync_with_backup_workers_starts_without_a_missing_worker_and_admits_it_later():
    config = config_of(
        "Dense", "Rows", update="sync", update_option=("replicas_to_aggregate=2",), batch_size=4, max_steps=200,
        join_wait_secs=0.5,
    )  # fmt: skip
    with InProcessCluster(1, 3) as cluster:
        calls = [cluster.start(config, index) for index in (0, 1)]
        wait_until(lambda: len(calls[0].made[-1].losses) > 20)
        # An update needs two of three gradients. Without the chief's, none is made before the late worker joins.
        with held(calls[0].made[-1]):
            calls.append(cluster.start(config, 2))
            wait_until(lambda: calls[2].made and len(calls[2].made[-1].losses) > 20)
        outcomes = [cluster.finish(call) for call in calls]
    assert [outcome.code for outcome in outcomes] == [0, 0, 0]
    assert len(outcomes[2].losses) > 20
    used = [worker.gradients_used for worker in outcomes[0].worker.summary.workers.values()]
    assert min(used) > 20
    assert sum(used) == 2 * 200


def test_sync_without_backup_workers_names_the_worker_that_does_not_come():
    config = config_of("Dense", "Rows", update="sync", batch_size=4, max_steps=10, start_timeout_secs=2.0)
    with InProcessCluster(1, 2) as cluster:
        call = cluster.finish_call(cluster.start(config, 0))
    assert isinstance(call.error, StartTimeoutError)
    assert "worker-1 did not join" in str(call.error)


def credits_of(outcomes):
    """For each variable of the model `Credits`: the number of whole gradients by which each worker has moved it."""
    values = outcomes[0].worker.final_values
    vectors = [value.ravel() for name, value in values.items() if name != "global_step"]
    return [-value[: len(outcomes)] / LEARNING_RATE for value in vectors]


def assert_moved_by_each_gradient_or_their_average(outcomes, update, together):
    """Under `sync` the first `together` gradients of both workers count half, the later ones in full."""
    steps = np.array([len(outcome.losses) for outcome in outcomes])
    wanted = steps if update == "async" else steps - together / 2
    for credits in credits_of(outcomes):
        np.testing.assert_allclose(credits, wanted, rtol=0, atol=1e-3)

"""Rules that collect gradients when workers fail, come late, are released, or run out of data."""

from __future__ import annotations

import numpy as np
import pytest

from tests.testing.cluster import InProcessCluster

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from ps_trainer.errors import Interrupted, PeerFailedError
from ps_trainer.runtime.run_record import Status
from ps_trainer.training import components as components_lib
from ps_trainer.updates.base import RELEASED
from tests.testing.cluster import config_of, wait_until
from tests.testing.gradient_groups import GroupScript
from tests.testing.repetitions import repetitions, representatives
from tests.testing.script import Turnstile

NUM_WORKERS = 3


@pytest.fixture(scope="module")
def cluster():
    with InProcessCluster(2, NUM_WORKERS) as cluster:
        cluster.num_ps = 2
        yield cluster


@pytest.fixture
def own_cluster():
    """One ps task; tests/processes/test_two_faults.py reports a lost worker to two."""
    with InProcessCluster(1, NUM_WORKERS) as cluster:
        yield cluster


@pytest.mark.parametrize("update", repetitions(["backup", "k_async"]))
def test_released_workers_make_no_step(cluster, update):
    with Turnstile(cluster) as gate:
        run = GroupScript(cluster, gate, "dense", update=update, update_option=OPTIONS[update], max_steps=50)
        run.push(0, [])
        run.push(1, [])  # both wait for worker 2
        for call in gate.calls.values():
            call.stop.request(Interrupted(15))
        run.service().release()
        for worker in (0, 1):
            call = cluster.finish_call(gate.calls[worker])
            assert isinstance(call.error, Interrupted | PeerFailedError)
            assert RELEASED not in call.made[-1].global_steps and gate.steps(worker) == 0
        gate.open()
        cluster.finish_call(gate.calls[2])


OPTIONS = {"backup": ("backup_workers=0",), "k_async": ("k=3",)}


def broken_components(config):
    """Components whose data end with an error at the first batch."""
    components = components_lib.load(config, NUM_WORKERS)
    train = components.dataset.train

    def broken(**kwargs):
        examples = train(**kwargs)
        return examples.map(lambda batch: batch | {"x": tf.debugging.check_numerics(batch["x"] / 0.0, "broken")})

    components.dataset.train = broken
    return components


# (update, options, whether the others continue)
FAILURES = [
    ("backup", ("backup_workers=1",), True),
    ("backup", ("backup_workers=0",), False),
    ("k_sync", ("k=2",), True),
    ("k_async", ("k=3",), False),
    ("k_batch_sync", ("k=3",), True),
    ("softsync", (), True),
    ("ssp", ("staleness=1",), True),
]
# `k_sync` has the groups of `backup`; the chief ends a run of `k_async` as one of `backup`, by `min_workers`.
# The groups of `k_batch_sync` and `softsync` need no worker in particular.
SHOWN = ("backup", "ssp")
CHOSEN = representatives(FAILURES, [failure for failure in FAILURES if failure[0] in SHOWN])


@pytest.mark.parametrize("failure", CHOSEN, ids=lambda failure: "-".join(map(str, failure)))
def test_a_rule_continues_without_a_failed_worker_while_enough_are_left(own_cluster, failure):
    (update, options, goes_on), cluster = failure, own_cluster
    config = config_of("Dense", "Rows", update=update, update_option=options, batch_size=4, max_steps=40)
    calls = [cluster.start(config, worker) for worker in (0, 1)]
    calls.append(cluster.start(config, 2, components=broken_components(config)))
    if not goes_on:  # a process's main thread aborts blocked calls of a job that must stop; this test has none
        wait_until(lambda: calls[0].stop.is_requested)
        calls[0].stop.call("release")
    for call in calls:
        cluster.finish_call(call)
    assert isinstance(calls[2].error, tf.errors.InvalidArgumentError)
    if goes_on:
        assert [call.error for call in calls[:2]] == [None, None]
        assert calls[0].worker.final_values["global_step"] >= 40
        assert calls[0].worker.summary.workers[2].status is Status.FAILED
    else:
        assert isinstance(calls[0].error, PeerFailedError)
        assert f"worker 2 failed, and update rule {update} needs all" in str(calls[0].error)


@pytest.mark.full  # `test_rules.py` admits a late worker under `sync`, which is the same rule
def test_a_late_worker_takes_part(own_cluster):
    config = config_of(
        "Dense", "Rows", ["lengths=100000,100000,30"], update="k_sync", update_option=("k=2",), batch_size=4,
        max_steps=None, num_epochs=4000, join_wait_secs=0.5, straggler=("det:mean_ms=5",),
    )  # fmt: skip
    calls = [own_cluster.start(config, worker) for worker in (0, 1)]
    wait_until(lambda: all(call.made and len(call.made[-1].losses) > 20 for call in calls))
    late = own_cluster.finish(own_cluster.start(config, 2))
    assert late.code == 0, late.error
    assert late.progress.global_steps[0] > 20
    assert len(late.losses) == 30
    assert set(np.ravel(late.progress.staleness_values)) <= {0, -1}
    for call in calls:
        call.stop.request(Interrupted(15))
    calls[0].stop.call("release")
    for call in calls:
        assert isinstance(own_cluster.finish_call(call).error, Interrupted)

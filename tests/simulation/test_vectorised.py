"""Schedules event by event and by NumPy are equal to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.simulation import simulate
from ps_trainer.simulation.rules import schedule_table
from ps_trainer.simulation.schedule import StepColumns
from ps_trainer.simulation.vectorised import dispatch
from tests.simulation.runs import by_events, by_numpy, cluster_of

CASES = [
    ("sync", ()),
    ("sync", ("replicas_to_aggregate=3",)),
    ("token_queue", ()),
    ("token_queue", ("replicas_to_aggregate=8",)),
    ("token_queue", ("replicas_to_aggregate=3",)),
    ("stock_sync", ()),
    ("stock_sync", ("replicas_to_aggregate=6",)),
    ("backup", ("backup_workers=0",)),
    ("backup", ("backup_workers=4",)),
    ("k_sync", ("k=2", "grow_every=10", "max_k=7")),
    ("k_async", ("k=3",)),
    ("k_async", ("k=2", "grow_every=10")),
    ("k_batch_async", ("k=3",)),
    ("k_batch_async", ("k=3", "grow_every=4")),
    ("softsync", ("splits=2",)),
    ("local_sgd", ("period=4", "switch_step=20")),
    ("model_averaging", ("period=7",)),
    ("all_reduce", ()),
]
CLUSTERS = {
    "equal workers": ("lognormal", {}),
    "a slow worker": ("persistent:worker=2,factor=6", {"seed": 5}),
    "transfers that take time": ("exp", {"latency_secs": 0.01, "model_bytes": 10**6, "worker_bytes_per_sec": 1e8}),
}


@pytest.mark.parametrize("kind", CLUSTERS)
@pytest.mark.parametrize(("update", "options"), CASES, ids=lambda value: " ".join(value) if value else "")
def test_both_ways_give_the_same_schedule(kind, update, options):
    compute, fields = CLUSTERS[kind]
    cluster = cluster_of(compute, 9, **fields)
    events, numpy = by_events(cluster, update, options, 120), by_numpy(cluster, update, options, 120)
    np.testing.assert_array_equal(events.update_secs, numpy.update_secs)
    for name, one, other in zip(StepColumns._fields, events.steps, numpy.steps, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)
        assert one.dtype == other.dtype


def test_large_clusters_use_numpy_and_small_crowded_or_staggered_ones_use_events(monkeypatch):
    calls = []
    monkeypatch.setattr(dispatch, "run", lambda *args: calls.append(args) or iter(()))
    crowded = {"model_bytes": 1, "ps_bytes_per_sec": 1.0}
    for num_workers, fields in (
        (100, {}),
        (4, {}),
        (100, crowded),
        (100, {"ps_secs": 0.1}),
        (100, {"start_secs": 1.0}),
    ):
        list(simulate.stream(cluster_of("exp", num_workers, **fields), "backup", num_updates=2))
    assert len(calls) == 1


def test_links_that_cannot_be_crowded_use_numpy():
    cluster = cluster_of("exp", 10, model_bytes=1, worker_bytes_per_sec=1.0, ps_bytes_per_sec=10.0)
    assert dispatch.can_run(cluster, schedule_table.create("backup", [], cluster))


def test_a_long_run_comes_in_blocks_that_follow_each_other():
    cluster = cluster_of("exp", 200)
    blocks = list(simulate.stream(cluster, "backup", num_updates=1000))
    assert len(blocks) > 1
    times = np.concatenate([block.steps.t_push_done for block in blocks])
    assert (np.diff(times) >= 0).all()
    assert sum(len(block.update_secs) for block in blocks) == 1000

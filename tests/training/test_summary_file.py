"""Every key of summary.json, in order: other programs read the file."""

from __future__ import annotations

import json

import pytest

from tests.testing.cluster import InProcessCluster, config_of

COUNTS = ["local_steps", "examples", "pushes", "gradients_dropped", "secs"]
MEANS = ["steps_per_sec", "examples_per_sec", "staleness", "staleness_mean"]
TRAFFIC = ["push_bytes_computed", "push_bytes_per_step", "pull_bytes_per_step"]


@pytest.fixture
def summary_of(tmp_path):
    def run(num_workers, options=(), **fields):
        with InProcessCluster(1, num_workers) as cluster:
            cluster.run(
                config_of("Dense", "Rows", [*options, "has_test=true"], batch_size=8, logdir=str(tmp_path), **fields)
            )
        return json.loads((tmp_path / "summary.json").read_text())

    return run


def test_of_a_run_with_delays_a_target_and_leased_shards(summary_of):
    """The rule counts pushes, so the keys of its counts are there, too."""
    summary = summary_of(
        2, update="sync", straggler=("det:mean_ms=1",), target_metric="loss<=-1", sharding="dynamic", num_epochs=1
    )
    entries = ["status", "global_step", "examples_per_sec", "metrics", "workers", "target_metric", "coverage", "saves"]
    assert list(summary) == entries
    assert summary["status"] == "done"
    assert summary["target_metric"] == {"wanted": "loss<=-1", "is_reached": False}
    assert summary["coverage"] == {"0": {"never": 0, "once": 240, "twice": 0, "more": 0}}
    workers = summary["workers"]
    keys = ["status", *COUNTS, *MEANS, "injected_delay_mean", *TRAFFIC, "gradients_used"]
    assert [list(workers[index]) for index in ("0", "1")] == [keys, keys]
    assert sum(worker["examples"] for worker in workers.values()) == 240
    assert summary["examples_per_sec"] == sum(worker["examples_per_sec"] for worker in workers.values())
    for worker in workers.values():
        assert worker["gradients_dropped"] == worker["pushes"] - worker["gradients_used"]


def test_of_a_run_whose_target_is_reached(summary_of):
    summary = summary_of(1, max_steps=3, target_metric="loss<=1e9")
    reached = summary["target_metric"]
    assert reached == {"wanted": "loss<=1e+09", "is_reached": True, "global_step": 3, "value": reached["value"]}
    assert reached["value"] == summary["metrics"]["loss"]
    assert list(summary["workers"]["0"]) == ["status", *COUNTS, *MEANS, *TRAFFIC]
    assert summary["workers"]["0"]["staleness"] == {"0": 3}


def test_of_a_worker_that_pushed_nothing(summary_of):
    """Its mean staleness is null: the key is there, without a number."""
    worker = summary_of(
        1, ["lengths=1"], max_steps=None, num_epochs=1, update="accumulate", update_option=("steps=2",)
    )["workers"]["0"]
    assert (worker["staleness"], worker["staleness_mean"], worker["pushes"]) == ({}, None, 0)

"""Runs in virtual time as used by experiments."""

from __future__ import annotations

import heapq
import random
from collections import Counter

import pytest

from ps_trainer.experiments.toolkit import theory, virtual_run
from ps_trainer.experiments.toolkit.statistics import of_histogram

EVEN = "det:jitter=0,mean_ms=100"


def async_staleness(draw, num_workers, num_updates):
    """The staleness of asynchronous workers, from an independent simulation."""
    running = [(draw(), worker, 0) for worker in range(num_workers)]
    heapq.heapify(running)
    values = []
    for update in range(num_updates):
        now, worker, version = heapq.heappop(running)
        values.append(update - version)
        heapq.heappush(running, (now + draw(), worker, update + 1))
    return Counter(values[num_updates // 5 :])


def test_warm_up_is_the_first_fifth_of_the_updates():
    run = virtual_run.run("async", num_workers=2, compute=[EVEN], num_updates=10, seed=0)
    assert len(run.schedule.update_secs) == 10
    assert run.warm_steps.update.tolist() == [2, 3, 4, 5, 6, 7, 8, 9]


def test_staleness_is_counted_by_worker():
    # Worker 1 takes three times as long, so three pushes of worker 0 fall between two of worker 1.
    run = virtual_run.run(
        "async", num_workers=2, compute=[EVEN, "det:jitter=0,mean_ms=310,worker=1"], num_updates=400, seed=0
    )
    histograms = run.staleness_by_worker()
    assert set(histograms[1]) <= {3, 4}
    assert of_histogram(histograms[1]).mean == pytest.approx(3.1, abs=0.05)
    assert of_histogram(histograms[0]).mean == pytest.approx(1 / 3.1, abs=0.05)


@pytest.mark.parametrize("n", [2, 5])
def test_lognormal_staleness_agrees_with_an_independent_simulation(n):
    run = virtual_run.run("async", num_workers=n, compute=["lognormal:sigma=0.5"], num_updates=20_000, seed=1)
    ours = of_histogram(sum(run.staleness_by_worker().values(), Counter()))
    rng = random.Random(1)
    theirs = of_histogram(async_staleness(lambda: rng.lognormvariate(0, 0.5), n, 20_000))
    assert ours.mean == pytest.approx(theory.mean_staleness(n), rel=0.01)
    assert ours.mean == pytest.approx(theirs.mean, rel=0.01)
    assert ours.sd == pytest.approx(theirs.sd, rel=0.05)


def test_records_have_the_fields_of_real_ones():
    run = virtual_run.run("drop_stale", ["staleness=0"], num_workers=2, compute=[EVEN], num_updates=10, seed=0)
    first, second, *_ = records = list(run.step_records(4))
    assert len(records) == 4
    assert (first["worker"], first["local_step"], first["gs_read"], first["gs_applied"]) == (0, 1, 0, 1)
    assert (first["staleness"], first["dropped"]) == (0, 0)
    assert (second["gs_applied"], second["staleness"], second["dropped"]) == (None, None, 1)
    assert first["t_start"] == 0
    assert first["t_pull_done"] <= first["t_compute_done"] <= first["t_push_done"] == pytest.approx(0.1)


def test_the_cluster_may_have_links():
    run = virtual_run.run(
        "sync",
        num_workers=2,
        compute=[EVEN],
        num_updates=10,
        seed=0,
        model_bytes=1_000_000,
        worker_bytes_per_sec=10e6,
        ps_bytes_per_sec=10e6,
    )
    step = theory.step_secs(0.1, theory.ps_round_secs(1e6, 2, 1, 10e6))
    assert run.schedule.update_secs[-1] == pytest.approx(10 * step)

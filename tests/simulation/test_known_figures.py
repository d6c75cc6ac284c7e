"""The engine against known figures: closed forms, and tables of an independent event simulation, mean compute = 1.

The tables (step times with backup workers, staleness, clock rates of ssp) were made before this engine, by another
program. The figures have two or three digits.
"""

from __future__ import annotations

import math

import pytest

from tests.simulation.runs import summary_of
from tests.testing.repetitions import repetitions

# Distribution and number of workers that an update needs -> time per update with b = 0, 1, 2, 3 backup workers, in
# units of the mean compute time: for a true barrier that does not cancel late workers, and for the token queue.
# Event simulation, mean compute = 1, 4000 to 6000 steps.
BACKUP_STEP_TIMES = {
    ("exp:mean_ms=1000", 8): [(2.72, 2.72), (2.03, 1.85), (1.72, 1.49), (1.53, 1.29)],
    ("exp:mean_ms=1000", 4): [(2.08, 2.08), (1.53, 1.36), (1.29, 1.14), (1.14, 1.05)],
    ("shifted_exp:alpha=0.2,mean_ms=1000", 8): [(1.34, 1.34), (1.21, 1.21), (1.16, 1.16), (1.13, 1.13)],
    ("lognormal:sigma=0.5,mean_ms=1000", 8): [(1.89, 1.89), (1.55, 1.50), (1.40, 1.34), (1.31, 1.25)],
    # Here the mean is 1 + 0.05 · (5 − 1) = 1.2.
    ("spike:p=0.05,factor=5,mean_ms=1200", 8): [(2.35, 2.35), (1.66, 1.62), (1.36, 1.42), (1.21, 1.35)],
    ("pareto:alpha=2,mean_ms=1000", 8): [(2.43, 2.43), (1.67, 1.47), (1.40, 1.27), (1.24, 1.18)],
    # One worker is 10 times slower.
    ("persistent:factor=10,alpha=0.2,mean_ms=1000", 4): [(9.96, 9.96), (1.21, 1.44), (1.12, 1.30)],
    ("persistent:factor=10,alpha=0.2,mean_ms=1000", 8): [None, (1.34, 1.46), (1.21, 1.33)],
}
BACKUP_CASES = [
    (compute, needed, backups, *times)
    for (compute, needed), row in BACKUP_STEP_TIMES.items()
    for backups, times in enumerate(row)
    if times is not None
]

# Workers -> mean, standard deviation, and for the last two the 99th percentile. Event simulation, 58 000 updates.
STALENESS = {
    ("lognormal:sigma=0.5", 2): (1.00, 0.83, 3),
    ("lognormal:sigma=0.5", 4): (3.00, 1.94, 9),
    ("lognormal:sigma=0.5", 8): (7.00, 4.11, 21),
    ("lognormal:sigma=0.5", 16): (15.0, 8.39, 43),
    ("exp", 2): (1.00, 1.42, 6),
    ("exp", 4): (3.00, 3.49, 16),
    ("exp", 8): (7.00, 7.53, 34),
    ("exp", 16): (15.0, 15.6, 71),
}
# The same with det ±2 %: mean, standard deviation, maximum.
STALENESS_DET = {2: (1.00, 0.11, 2), 4: (3.00, 0.18, 5), 8: (7.00, 0.32, 9), 16: (15.0, 0.49, 19)}

# Compute times and workers -> bound s -> clock rate of a worker as a share of its rate without waits.
# Event simulation. The row with a slow worker had .26 for s = 10, which its finite run explains.
SSP_RATES = {
    ("exp", 4): {0: 0.48, 1: 0.66, 2: 0.74, 3: 0.78, 5: 0.85, 10: 0.92},
    ("exp", 8): {0: 0.37, 1: 0.56, 2: 0.66, 3: 0.72, 5: 0.80, 10: 0.89},
    ("lognormal:sigma=0.5", 8): {0: 0.53, 1: 0.77, 2: 0.86, 3: 0.90, 5: 0.93, 10: 0.96},
    ("shifted_exp:alpha=0.2", 8): {0: 0.75, 1: 0.95, 2: 0.97, 3: 0.98, 5: 0.99, 10: 0.99},
}


def harmonic(n: int) -> float:
    return sum(1 / i for i in range(1, n + 1))


# Every distribution occurs, and every number of backup workers: the same rules count them.
@pytest.mark.parametrize(("compute", "needed", "backups", "barrier", "tokens"), repetitions(BACKUP_CASES, every=3))
def test_step_times_with_backup_workers_equal_the_table(compute, needed, backups, barrier, tokens):
    # Distributions without variance (pareto with alpha = 2) converge slowly, and so does their maximum.
    tolerance = 0.05 if "pareto" in compute else 0.03
    fields = {"num_workers": needed + backups, "num_updates": 3000, "seed": 1}
    summary = summary_of(compute, "backup", [f"backup_workers={backups}"], **fields)
    assert summary.update_secs.mean == pytest.approx(barrier, rel=tolerance)
    for update in ("token_queue", "stock_sync"):
        summary = summary_of(compute, update, [f"replicas_to_aggregate={needed}"], **fields)
        assert summary.update_secs.mean == pytest.approx(tokens, rel=tolerance)
        # There is one token per worker and update, so there are as many pushes, of which `needed` are used.
        assert summary.dropped_share == pytest.approx(backups / (needed + backups), abs=0.003)


def test_the_token_queue_loses_to_the_barrier_only_with_a_persistently_slow_worker():
    for compute, needed in (("exp", 8), ("lognormal", 8), ("persistent", 8)):
        fields = {"num_workers": needed + 1, "num_updates": 3000}
        barrier = summary_of(compute, "backup", [], **fields).update_secs.mean
        tokens = summary_of(compute, "token_queue", [f"replicas_to_aggregate={needed}"], **fields).update_secs.mean
        assert (tokens > 1.05 * barrier) == (compute == "persistent")


@pytest.mark.parametrize("num_workers", [2, 8, 100])
def test_a_barrier_over_exponential_times_takes_the_harmonic_number(num_workers):
    for update in ("sync", "all_reduce", "k_sync"):
        options = [f"k={num_workers}"] if update == "k_sync" else []
        # A fourth of the updates for 100 workers, whose largest time varies less in relation to its mean.
        num_updates = 3000 if num_workers < 100 else 750
        summary = summary_of("exp:mean_ms=1000", update, options, num_workers=num_workers, num_updates=num_updates)
        assert summary.update_secs.mean == pytest.approx(harmonic(num_workers), rel=0.03)
        assert summary.staleness_mean() == 0


@pytest.mark.parametrize("compute", ["det", "exp", "lognormal", "pareto", "spike", "burst", "persistent"])
@pytest.mark.parametrize("num_workers", [1, 2, 7])
def test_mean_staleness_of_async_is_the_number_of_other_workers(compute, num_workers):
    summary = summary_of(compute, "async", num_workers=num_workers, num_updates=5000)
    # This is an identity except for the pending gradients at the two ends of the run, one of each worker.
    ends = num_workers * (len(summary.staleness) - 1) / summary.num_updates
    assert summary.staleness_mean() == pytest.approx(num_workers - 1, abs=ends + 1e-9)


def test_async_makes_an_update_per_worker_and_mean_compute_time():
    for compute in ("exp", "lognormal", "det"):
        summary = summary_of(compute, "async", num_workers=6, num_updates=20_000)
        assert summary.updates_per_sec == pytest.approx(6 / 0.1, rel=0.02)
        assert summary.wait_share.max() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("case", "figures"), STALENESS.items())
def test_staleness_equals_the_table(case, figures):
    compute, num_workers = case
    mean, deviation, percentile = figures
    summary = summary_of(compute, "async", num_workers=num_workers, num_updates=40_000, seed=1)
    assert summary.staleness_mean() == pytest.approx(mean, abs=0.01)
    assert summary.staleness_deviation() == pytest.approx(deviation, rel=0.04)
    assert summary.staleness_percentile(99) == pytest.approx(percentile, rel=0.04, abs=1)


@pytest.mark.parametrize(("num_workers", "figures"), STALENESS_DET.items())
def test_staleness_of_even_workers_equals_the_table(num_workers, figures):
    mean, deviation, largest = figures
    summary = summary_of("det:jitter=0.02", "async", num_workers=num_workers, num_updates=40_000, seed=1)
    assert summary.staleness_mean() == pytest.approx(mean, abs=0.01)
    # One worker overtakes another only within the jitter of each other, which is rare and then lasts long. So the
    # figure of one run varies by chance by up to 0.03.
    assert summary.staleness_deviation() == pytest.approx(deviation, abs=0.04)
    assert len(summary.staleness) - 1 == pytest.approx(largest, abs=1)


def test_staleness_of_exponential_times_is_geometric():
    n = 8
    summary = summary_of("exp", "async", num_workers=n, num_updates=60_000)
    counts = summary.staleness
    measured = counts.cumsum() / counts.sum()
    geometric = [1 - (1 - 1 / n) ** (k + 1) for k in range(len(counts))]
    assert max(abs(measured - geometric)) < 0.01
    assert summary.staleness_deviation() == pytest.approx(math.sqrt(n * (n - 1)), rel=0.03)


def test_slow_workers_have_the_stale_gradients():
    # Rates 1, 1, 1, 1/4: E[τ_i] = Σ_{j≠i} r_j / r_i.
    summary = summary_of(["exp", "exp:worker=3,mean_ms=400"], "async", num_workers=4, num_updates=40_000)
    assert summary.staleness_mean() == pytest.approx(3, abs=0.01)
    assert summary.mean_staleness[:3] == pytest.approx([(1 + 1 + 0.25) / 1] * 3, rel=0.05)
    assert summary.mean_staleness[3] == pytest.approx((1 + 1 + 1) / 0.25, rel=0.05)


def test_softsync_averages_away_staleness():
    # Zhang et al. 2016: close to `splits` on average, with groups of c = λ / splits gradients.
    for splits in (1, 2, 4, 8):
        summary = summary_of("exp", "softsync", [f"splits={splits}"], num_workers=8, num_updates=4000)
        assert splits - 1 <= summary.staleness_mean() <= splits


@pytest.mark.parametrize(("case", "rates"), SSP_RATES.items())
def test_clock_rates_of_ssp_equal_the_table(case, rates):
    compute, num_workers = case
    for bound, rate in rates.items():
        summary = summary_of(
            compute, "ssp", [f"staleness={bound}"], num_workers=num_workers, num_updates=2000 * num_workers
        )
        assert summary.updates_per_sec / num_workers * 0.1 == pytest.approx(rate, rel=0.04)


def test_with_a_slow_worker_every_bound_of_ssp_ends_at_its_pace():
    compute = ["lognormal:sigma=0.5", "lognormal:sigma=0.5,worker=0,mean_ms=400"]
    for bound in (0, 1, 3, 10):
        summary = summary_of(compute, "ssp", [f"staleness={bound}"], num_workers=4, num_updates=8000)
        assert summary.updates_per_sec / 4 * 0.1 == pytest.approx(1 / 4, rel=0.04)


def test_k_batches_of_exponential_times_come_at_the_rate_of_all_workers():
    # K-batch-sync with memoryless times: each batch counts from the last update on, so an update takes K / (n μ).
    summary = summary_of("exp", "k_batch_async", ["k=5"], num_workers=8, num_updates=5000)
    assert summary.update_secs.mean == pytest.approx(5 * 0.1 / 8, rel=0.03)

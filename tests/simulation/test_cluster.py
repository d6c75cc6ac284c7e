"""Times of a simulated cluster: transfers against the closed form, the ps tasks' own work, and compute times."""

from __future__ import annotations

import pytest

from ps_trainer.errors import OptionError
from tests.simulation.runs import cluster_of, scripted, summary_of


@pytest.mark.parametrize("num_ps", [1, 2, 4])
@pytest.mark.parametrize("num_workers", [1, 4, 9])
def test_synchronous_step_is_computation_and_twice_the_closed_form(num_workers, num_ps):
    size, worker_rate, ps_rate = 1200, 400.0, 600.0
    transfer_secs = max(size / worker_rate, num_workers * size / (num_ps * ps_rate))
    schedule = scripted(
        "backup",
        ["backup_workers=0"],
        ["1"] * num_workers,
        5,
        num_ps=num_ps,
        model_bytes=size,
        worker_bytes_per_sec=worker_rate,
        ps_bytes_per_sec=ps_rate,
    )
    assert schedule.update_secs == pytest.approx([(i + 1) * (1.0 + 2 * transfer_secs) for i in range(5)])


def throughput_by_mva(num_workers: int, demand_secs: float, compute_secs: float) -> float:
    """Updates per second of workers that pull, compute and push in turn, by mean value analysis.

    A link that transfers share evenly is a processor-sharing queue. With such queues the mean values depend only on the
    mean times, not on the distributions (Reiser and Lavenberg 1980; Baskett et al. 1975).
    """
    queue = 0.0  # transfers that an arriving transfer finds on one of the two links
    for n in range(1, num_workers + 1):
        response = demand_secs * (1 + queue)
        throughput = n / (compute_secs + 2 * response)
        queue = throughput * response
    return throughput


@pytest.mark.parametrize(("num_workers", "compute"), [(2, "exp"), (8, "lognormal"), (16, "det")])
def test_asynchronous_throughput_on_shared_links_agrees_with_queueing_theory(num_workers, compute):
    summary = summary_of(
        compute, "async", num_workers=num_workers, num_updates=6000, num_ps=2, model_bytes=1000, ps_bytes_per_sec=5000.0
    )
    expected = throughput_by_mva(num_workers, 1000 / (2 * 5000), 0.1)
    assert summary.updates_per_sec == pytest.approx(expected, rel=0.02)


def test_pulls_and_pushes_do_not_slow_each_other():
    # Worker 1 pulls from 0 to 2, worker 0 from 0 to 2 and pushes from 3 to 4, while worker 1 still computes.
    fields = {"model_bytes": 100, "ps_bytes_per_sec": 100.0}
    first, second, third = scripted("async", (), ("1", "10"), 3, **fields).steps.t_push_done
    assert (first, second, third) == pytest.approx((2 + 1 + 1, 4 + 1 + 1 + 1, 7 + 3))


def test_the_ps_tasks_process_one_push_after_the_other():
    steps = scripted("async", (), ("1", "1", "1"), 3, ps_secs=0.5).steps
    assert steps.t_push_done == pytest.approx([1 + 0.5, 1 + 2 * 0.5, 1 + 3 * 0.5])
    steps = scripted("async", (), ("1", "1", "1"), 3, ps_secs=0.5, num_ps=5).steps
    assert steps.t_push_done == pytest.approx([1 + 0.1, 1 + 2 * 0.1, 1 + 3 * 0.1])


def test_time_in_the_queue_of_the_ps_does_not_change_the_staleness():
    summary = summary_of("exp", "async", num_workers=6, num_updates=4000, ps_secs=0.05)
    assert summary.updates_per_sec == pytest.approx(1 / 0.05, rel=0.02)
    assert summary.staleness_mean() == pytest.approx(6 - 1, abs=0.02)


def test_latency_is_part_of_every_transfer():
    steps = scripted("async", (), ("1",), 1, latency_secs=0.25).steps
    assert (steps.t_pull_done[0], steps.t_compute_done[0], steps.t_push_done[0]) == (0.25, 1.25, 1.5)


def test_the_last_spec_that_applies_to_a_worker_counts():
    cluster = cluster_of(["exp", "det:worker=1", "lognormal:worker=1", "pareto:worker=2"], 4)
    assert [cluster.compute_of(worker).text for worker in range(4)] == [
        "exp",
        "lognormal:worker=1",
        "pareto:worker=2",
        "exp",
    ]


@pytest.mark.parametrize(
    ("compute", "fields", "words"),
    [
        ("exp", {"num_workers": 0}, "--num_workers=0: num_workers must be at least 1"),
        ("exp:worker=4", {}, "worker 4 does not exist with num_workers=4"),
        ("exp:worker=1", {}, "has no delay for worker 0; give one without worker="),
        ([], {}, "nothing"),
    ],
)
def test_rejects_an_impossible_cluster(compute, fields, words):
    with pytest.raises(OptionError, match=words):
        cluster_of(compute, **({"num_workers": 4} | fields))

"""Flows between hosts: their rates and ends, by arithmetic, by `SharedLink` and by the closed forms of rounds."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.errors import OptionError
from ps_trainer.experiments.toolkit import theory
from ps_trainer.simulation.host_links import HostLinks
from ps_trainer.simulation.link import SharedLink
from tests.simulation.runs import by_events, cluster_of, script, scripted

M, B = 1200, 100.0
COUNTS = (2, 3, 8, 64)


def ends(links, begins, begin):
    """The end of each transfer; `begins` has their times, in order, and `begin` begins one."""
    waiting, found = list(begins.items()), {}
    while waiting or links.next_end() is not None:
        end = links.next_end()
        if waiting and (end is None or waiting[0][1] <= end):
            begin(*waiting.pop(0))
        elif (transfer := links.end(end)) is not None:
            found[transfer] = end
    return found


def flows(links, hosts, size):
    """Begins a transfer of one flow, between the hosts that `hosts` has for it."""
    return lambda transfer, now: links.begin(transfer, now, *(np.array([host]) for host in hosts[transfer]), size)


def test_both_directions_of_a_link_are_used_at_once():
    links = HostLinks([B, B])
    assert ends(links, {0: 0.0, 1: 0.0}, flows(links, [(0, 1), (1, 0)], 200)) == {0: 2.0, 1: 2.0}


def test_flows_that_a_host_sends_share_its_link_and_end_together():
    links = HostLinks([B] * 4)
    assert ends(links, dict.fromkeys(range(3), 0.0), flows(links, [(0, 1), (0, 2), (0, 3)], 200)) == dict.fromkeys(
        range(3), 3 * 200 / B
    )


def test_a_flow_takes_what_others_cannot_use():
    # Host 1 receives two flows, each at 50/s at most. So host 0 has 50/s left for the third, on a slow link of 40/s.
    links = HostLinks([B, B, 40.0, B])
    found = ends(links, dict.fromkeys(range(3), 0.0), flows(links, [(0, 1), (3, 1), (0, 2)], 200))
    assert found == pytest.approx({0: 200 / 50, 1: 200 / 50, 2: 200 / 40})


def test_a_later_flow_slows_the_first_and_is_alone_at_its_end():
    links = HostLinks([B] * 3)
    assert ends(links, {0: 0.0, 1: 1.0}, flows(links, [(0, 1), (0, 2)], 200)) == pytest.approx({0: 3.0, 1: 4.0})


def test_a_flow_within_a_host_takes_no_time():
    links = HostLinks([B])
    assert ends(links, {0: 1.0}, flows(links, [(0, 0)], 200)) == {0: 1.0}


def test_late_flows_end_whatever_rounding_leaves_of_them():
    links = HostLinks([1e12] * 2)
    assert ends(links, {0: 1e7}, flows(links, [(0, 1)], 3e9)) == pytest.approx({0: 1e7 + 3e-3})


@pytest.mark.parametrize(("num_workers", "num_ps"), [(5, 1), (7, 3), (4, 6)])
def test_ps_tasks_on_separate_hosts_are_one_shared_link(num_workers, num_ps):
    begins = dict(enumerate(np.sort(np.random.default_rng(0).uniform(0, 20, num_workers)).tolist()))
    links, ps_hosts = HostLinks([B] * num_workers + [70.0] * num_ps), num_workers + np.arange(num_ps)

    def pull(worker, now):
        links.begin(worker, now, ps_hosts, np.full(num_ps, worker), M / num_ps)

    shared = SharedLink(num_ps * 70.0, B, M)
    assert ends(links, begins, pull) == pytest.approx(ends(shared, begins, shared.begin))


@pytest.mark.parametrize("n", COUNTS)
def test_a_ring_takes_its_turns(n):
    links, now, hosts = HostLinks([B] * n), 0.0, np.arange(n)
    for _ in range(2 * (n - 1)):
        links.begin(0, now, hosts, (hosts + 1) % n, M / n)
        now = links.next_end()
        assert links.end(now) == 0
    assert now == pytest.approx(theory.ring_secs(M, n, B))


@pytest.mark.parametrize("n", COUNTS)
def test_colocated_rounds_take_as_long_as_those_of_a_ring(n):
    fields = {"num_ps": n, "model_bytes": M, "worker_bytes_per_sec": B}
    colocated = scripted("sync", (), ["1"] * n, 3, colocated=True, **fields)
    ring = scripted("all_reduce", (), ["1"] * n, 3, **fields)
    expected = [(i + 1) * (1 + theory.ring_secs(M, n, B)) for i in range(3)]
    assert colocated.update_secs == pytest.approx(expected)
    assert ring.update_secs == pytest.approx(expected)


@pytest.mark.parametrize("num_ps", [1, 2])
def test_fewer_ps_tasks_than_workers_send_to_all_others(num_ps):
    n = 4  # ps task i sends its share to the n − 1 other workers, and workers 2 and 3 need all parameters
    schedule = scripted("sync", (), ["1"] * n, 1, colocated=True, num_ps=num_ps, model_bytes=M, worker_bytes_per_sec=B)
    assert schedule.update_secs == pytest.approx([1 + 2 * max((n - 1) / num_ps, 1) * M / B])


def test_a_pull_shares_its_link_with_pushes_to_the_same_host():
    # Each of two ps tasks has half of the parameters, which takes 6 s alone. Worker 0 pulls and computes until 22.
    # Worker 1 pulls, computes and pushes until 22. Then the push of worker 0 and the pull of worker 1 both go from host
    # 0 to host 1, and take 12 s.
    cluster = cluster_of(script("16", "10+50"), 2, colocated=True, num_ps=2, model_bytes=M, worker_bytes_per_sec=B)
    steps = by_events(cluster, "async", (), 5).steps
    pushed, pulled = (steps.select(steps.worker == worker) for worker in (0, 1))
    assert pushed.t_push_done[0] == pytest.approx(6 + 16 + 12)
    assert pulled.t_pull_done[1] == pytest.approx(6 + 10 + 6 + 12)


def test_without_bandwidth_limits_colocated_transfers_take_the_latency_alone():
    schedule = scripted("sync", (), ["1"] * 3, 1, colocated=True, num_ps=3, model_bytes=M, latency_secs=0.25)
    assert schedule.update_secs == pytest.approx([1.5])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"num_ps": 3}, "num_ps must be at most num_workers=2"),
        ({"ps_bytes_per_sec": 5.0}, "give only worker_bytes_per_sec"),
    ],
)
def test_rejects_colocated_ps_tasks_that_have_no_workers_host(fields, words):
    with pytest.raises(OptionError, match=words):
        cluster_of("exp", 2, colocated=True, **fields)

"""Schedules of three workers that take 1, 2.1 and 3.5 seconds, and of each rule's special steps, computed by hand."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from ps_trainer import component_tables
from ps_trainer.errors import OptionError, UnknownNameError
from ps_trainer.simulation.rules import schedule_table
from ps_trainer.simulation.schedule import DROPPED, LOCAL
from tests.simulation.runs import by_events, cluster_of, pushes_of, scripted

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECS = ("1", "2.1", "3.5")

# (rule, options) -> (end, worker, version read, update) of the first steps.
BY_HAND = {
    ("async", ()): [
        (1.0, 0, 0, 0),
        (2.0, 0, 1, 1),
        (2.1, 1, 0, 2),
        (3.0, 0, 2, 3),
        (3.5, 2, 0, 4),
        (4.0, 0, 4, 5),
        (4.2, 1, 3, 6),
    ],
    ("drop_stale", ("staleness=1",)): [
        (1.0, 0, 0, 0),
        (2.0, 0, 1, 1),
        (2.1, 1, 0, DROPPED),
        (3.0, 0, 2, 2),
        (3.5, 2, 0, DROPPED),
        (4.0, 0, 3, 3),
        (4.2, 1, 2, DROPPED),
        (5.0, 0, 4, 4),
    ],
    # Worker 0 waits from 2 to 3.5 and from 4.5 to 7 for worker 2's first and second step.
    ("ssp", ("staleness=1",)): [
        (1.0, 0, 0, 0),
        (2.0, 0, 1, 1),
        (2.1, 1, 0, 2),
        (3.5, 2, 0, 3),
        (4.2, 1, 3, 4),
        (3.5 + 1.0, 0, 4, 5),
        (6.3, 1, 5, 6),
        (7.0, 2, 4, 7),
        (7.0 + 1.0, 0, 8, 8),
    ],
    # As `ssp`. The copies of version 0 serve steps 1 and 2; at 3.5 worker 0 pulls its third, at 4.2 worker 1.
    ("ssp_cache", ("staleness=1",)): [
        (1.0, 0, 0, 0),
        (2.0, 0, 0, 1),
        (2.1, 1, 0, 2),
        (3.5, 2, 0, 3),
        (4.2, 1, 0, 4),
        (3.5 + 1.0, 0, 4, 5),
        (6.3, 1, 5, 6),
        (7.0, 2, 0, 7),
        (7.0 + 1.0, 0, 8, 8),
    ],
    # Tokens of version 1 at 2.1: one each for 0 and 1, and the third for 0 again, which so counts twice.
    ("token_queue", ("replicas_to_aggregate=2",)): [
        (1.0, 0, 0, 0),
        (2.1, 1, 0, 0),
        (2.1 + 1.0, 0, 1, 1),
        (3.5, 2, 0, DROPPED),
        (3.1 + 1.0, 0, 1, 1),
        (4.1 + 0.1, 1, 1, DROPPED),
        (4.1 + 1.0, 0, 2, 2),
    ],
    # One token of version 0 for worker 0's second step; the update at 2 consists of its two steps alone.
    ("stock_sync", ("replicas_to_aggregate=2",)): [
        (1.0, 0, 0, 0),
        (2.0, 0, 0, 0),
        (2.1, 1, 0, DROPPED),
        (2.0 + 1.0, 0, 1, DROPPED),
        (3.5, 2, 0, DROPPED),
        (3.0 + 1.0, 0, 1, 1),
    ],
    ("sync", ("replicas_to_aggregate=2",)): [
        (1.0, 0, 0, 0),
        (2.1, 1, 0, 0),
        (2.1 + 1.0, 0, 1, 1),
        (3.5, 2, 0, DROPPED),
        (2.1 + 2.1, 1, 1, 1),
        (4.2 + 1.0, 0, 2, 2),
        (4.2 + 2.1, 1, 2, 2),
    ],
    ("sync_replicas", ("replicas_to_aggregate=2",)): [
        (1.0, 0, 0, 0),
        (2.1, 1, 0, 0),
        (2.1 + 1.0, 0, 1, 1),
        (3.5, 2, 0, DROPPED),
        (2.1 + 2.1, 1, 1, 1),
        (4.2 + 1.0, 0, 2, 2),
        (4.2 + 2.1, 1, 2, 2),
    ],
    ("backup", ("backup_workers=1",)): [
        (1.0, 0, 0, 0),
        (2.1, 1, 0, 0),
        (2.1 + 1.0, 0, 1, 1),
        (3.5, 2, 0, DROPPED),
        (2.1 + 2.1, 1, 1, 1),
        (4.2 + 1.0, 0, 2, 2),
        (4.2 + 2.1, 1, 2, 2),
        (3.5 + 3.5, 2, 1, DROPPED),
        (6.3 + 1.0, 0, 3, 3),
    ],
    ("k_sync", ("k=2",)): [
        (1.0, 0, 0, 0),
        (2.1, 1, 0, 0),
        (3.1, 0, 1, 1),
        (3.5, 2, 0, DROPPED),
        (4.2, 1, 1, 1),
    ],
    ("k_async", ("k=2",)): [
        (1.0, 0, 0, 0),
        (2.1, 1, 0, 0),
        (3.1, 0, 1, 1),
        (3.5, 2, 0, 1),
        (2.1 + 2.1, 1, 1, 2),
        (3.5 + 1.0, 0, 2, 2),
    ],
    ("k_batch_sync", ("k=2",)): [
        (1.0, 0, 0, 0),
        (2.0, 0, 0, 0),
        (2.1, 1, 0, DROPPED),
        (3.0, 0, 1, 1),
        (3.5, 2, 0, DROPPED),
        (4.0, 0, 1, 1),
        (4.2, 1, 1, DROPPED),
    ],
    ("k_batch_async", ("k=2",)): [
        (1.0, 0, 0, 0),
        (2.0, 0, 0, 0),
        (2.1, 1, 0, 1),
        (3.0, 0, 1, 1),
        (3.5, 2, 0, 2),
        (4.0, 0, 2, 2),
    ],
    # ⌈3 / 2⌉ = 2 pushes per update.
    ("softsync", ("splits=2",)): [(1.0, 0, 0, 0), (2.0, 0, 0, 0), (2.1, 1, 0, 1), (3.0, 0, 1, 1)],
    # k = 1, then 2, then 3.
    ("k_batch_async", ("k=1", "grow_every=1", "max_k=3")): [
        (1.0, 0, 0, 0),
        (2.0, 0, 1, 1),
        (2.1, 1, 0, 1),
        (3.0, 0, 1, 2),
        (3.5, 2, 0, 2),
        (4.0, 0, 2, 2),
    ],
    ("local_sgd", ("period=2",)): [
        (1.0, 0, 0, LOCAL),
        (2.0, 0, 0, 0),
        (2.1, 1, 0, LOCAL),
        (3.5, 2, 0, LOCAL),
        (4.2, 1, 0, 0),
        (7.0, 2, 0, 0),
        (7.0 + 1.0, 0, 1, LOCAL),
    ],
    # Rounds of one step until version 1.
    ("local_sgd", ("period=2", "switch_step=1")): [
        (1.0, 0, 0, 0),
        (2.1, 1, 0, 0),
        (3.5, 2, 0, 0),
        (3.5 + 1.0, 0, 1, LOCAL),
        (3.5 + 2.0, 0, 1, 1),
    ],
    ("model_averaging", ("period=1",)): [(1.0, 0, 0, 0), (2.1, 1, 0, 0), (3.5, 2, 0, 0), (4.5, 0, 1, 1)],
    ("all_reduce", ()): [(1.0, 0, 0, 0), (2.1, 1, 0, 0), (3.5, 2, 0, 0), (4.5, 0, 1, 1), (5.6, 1, 1, 1)],
    # Pushes with steps 2, 4, …; pulls before steps 1, 4, …
    ("downpour", ("n_push=2", "n_fetch=3")): [
        (1.0, 0, 0, LOCAL),
        (2.0, 0, 0, 0),
        (2.1, 1, 0, LOCAL),
        (3.0, 0, 0, LOCAL),
        (3.5, 2, 0, LOCAL),
        (4.0, 0, 1, 1),
        (4.2, 1, 0, 2),
    ],
    # The chief alone until two updates are made.
    ("downpour", ("warm_start_steps=2",)): [
        (1.0, 0, 0, 0),
        (2.0, 0, 1, 1),
        (3.0, 0, 2, 2),
        (4.0, 0, 3, 3),
        (2.0 + 2.1, 1, 2, 4),
    ],
    # Every second step from the first on reads the centre when it has computed.
    ("easgd", ("period=2",)): [
        (1.0, 0, 0, 0),
        (2.0, 0, 0, LOCAL),
        (2.1, 1, 1, 1),
        (3.0, 0, 2, 2),
        (3.5, 2, 3, 3),
    ],
    ("accumulate", ("steps=2",)): [
        (1.0, 0, 0, LOCAL),
        (2.0, 0, 0, 0),
        (2.1, 1, 0, LOCAL),
        (3.0, 0, 1, LOCAL),
        (3.5, 2, 0, LOCAL),
        (4.0, 0, 1, 1),
        (4.2, 1, 0, 2),
    ],
    ("accumulate", ("steps=2", "rule=sync")): [
        (1.0, 0, 0, LOCAL),
        (2.0, 0, 0, 0),
        (2.1, 1, 0, LOCAL),
        (3.5, 2, 0, LOCAL),
        (4.2, 1, 0, 0),
        (7.0, 2, 0, 0),
        (8.0, 0, 1, LOCAL),
    ],
}


@pytest.mark.parametrize(("rule", "expected"), BY_HAND.items(), ids=[" ".join((rule, *o)) for rule, o in BY_HAND])
def test_schedule_equals_the_one_by_hand(rule, expected):
    update, options = rule
    num_updates = max(entry[3] for entry in expected) + 1
    found = pushes_of(scripted(update, options, SECS, num_updates + 3))
    assert found[: len(expected)] == [pytest.approx(entry) for entry in expected]


def test_every_simulated_rule_is_computed_by_hand_or_is_async_in_time():
    same_as_async = {"hogwild", "staleness_aware", "dc_asgd"}
    assert {rule for rule, _ in BY_HAND} | same_as_async == set(schedule_table.RULES)
    for name in same_as_async:
        assert pushes_of(scripted(name, (), SECS, 20)) == pushes_of(scripted("async", (), SECS, 20))


def test_the_tutorial_explains_the_rules_that_only_the_simulator_has():
    page = (ROOT / "docs" / "tutorials" / "simulate-200-workers.md").read_text(encoding="utf-8")
    of_simulator = set(schedule_table.RULES) - set(component_tables.UPDATES.names())
    assert "token_queue" in of_simulator
    assert [name for name in of_simulator if f"`--update={name}`" not in page] == []


def test_all_rules_but_hybrid_are_simulated():
    assert set(component_tables.UPDATES.names()) - set(schedule_table.RULES) == {"hybrid"}
    assert set(schedule_table.RULES) - set(component_tables.UPDATES.names()) == {
        *("token_queue", "stock_sync", "ssp_cache")
    }


def test_a_ring_takes_two_turns_per_neighbour():
    # 2 (n − 1) turns of a latency and M / n bytes.
    ring_secs = 2 * 2 * (0.25 + 600 / 3 / 100)
    schedule = scripted(
        "all_reduce", (), SECS, 3, model_bytes=600, worker_bytes_per_sec=100, latency_secs=0.25, ps_bytes_per_sec=1
    )
    np.testing.assert_allclose(schedule.update_secs, [(i + 1) * (3.5 + ring_secs) for i in range(3)])


def test_elastic_difference_is_stale_by_the_updates_during_its_transfer():
    # Worker 0 reads at 1, receives the centre at 2 and arrives at 3; worker 1 reads at 1.5 and arrives at 3.5.
    schedule = scripted("easgd", ["period=1"], ("1", "1.5"), 2, model_bytes=10, worker_bytes_per_sec=10)
    steps = schedule.steps
    np.testing.assert_allclose(steps.t_compute_done, [1.0, 1.5])
    np.testing.assert_allclose(steps.t_pull_done, [2.0, 2.5])
    np.testing.assert_allclose(steps.t_push_done, [3.0, 3.5])
    assert steps.staleness.tolist() == [0, 1]


def test_staleness_counts_the_updates_between_pull_and_push_even_for_dropped_gradients():
    steps = scripted("drop_stale", ["staleness=1"], SECS, 5).steps
    by_hand = [push[:4] for push in pushes_of(scripted("drop_stale", ["staleness=1"], SECS, 5))]
    made, expected = 0, []
    for _, _, version, update in by_hand:
        expected.append(made - version)
        made += update >= 0
    assert steps.staleness.tolist() == expected
    assert max(expected) > 1


@pytest.mark.parametrize("bound", [0, 1, 3])
@pytest.mark.parametrize("rule", ["ssp", "ssp_cache"])
def test_no_worker_begins_a_step_further_ahead_than_ssp_allows(rule, bound):
    schedule = by_events(cluster_of("exp", 5, seed=2), rule, [f"staleness={bound}"], 1000)
    steps = schedule.steps
    ahead = []
    for start, worker in zip(steps.t_start, steps.worker, strict=True):
        clocks = np.bincount(steps.worker[steps.t_push_done <= start], minlength=5)
        ahead.append(clocks[worker] - clocks.min())
    assert max(ahead) == bound


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_a_cached_copy_lacks_no_update_that_is_older_than_the_bound_and_is_kept_as_long(bound):
    """Ho et al. 2013, section 2: a read at clock c returns all updates of clocks up to c − s − 1."""
    steps = by_events(cluster_of("exp", 5, seed=2), "ssp_cache", [f"staleness={bound}"], 1000).steps
    missing = [
        local_step - min(np.sum(steps.update[steps.worker == other] < version) for other in range(5) if other != worker)
        for worker, local_step, version in zip(steps.worker, steps.local_step, steps.version, strict=True)
    ]
    assert max(missing) == bound
    # Worker 0's reads between two pulls are of one version; a worker that is the slowest reads bound + 1 times.
    _, reads = np.unique(np.stack([steps.worker, steps.version]), axis=1, return_counts=True)
    assert reads.max() == bound + 1


@pytest.mark.parametrize(
    ("update", "options", "error", "words"),
    [
        ("hybrid", [], UnknownNameError, "--update=hybrid: cannot be simulated"),
        ("backp", [], UnknownNameError, "did you mean backup"),
        ("async", ["k=1"], OptionError, "takes no options"),
        ("backup", ["backup_workers=3"], OptionError, "num_workers=3 to wait for; give at most 2, start more"),
        ("sync", ["replicas_to_aggregate=4"], OptionError, "replicas_to_aggregate=4 exceeds num_workers=3"),
        ("softsync", ["splits=4"], OptionError, "splits=4"),
        ("k_sync", ["k=4"], OptionError, "k=4"),
        ("k_async", ["k=1", "max_k=2"], OptionError, "grow_every >= 1"),
        ("ssp", ["staleness=-1"], OptionError, "staleness=-1"),
        ("accumulate", ["rule=ssp"], OptionError, "rule must be one of async, sync"),
        ("accumulate", ["replicas_to_aggregate=2"], OptionError, "set rule=sync"),
        ("local_sgd", ["period=0"], OptionError, "period must be at least 1"),
    ],
)
def test_rejects_the_options_that_the_cluster_rejects(update, options, error, words):
    with pytest.raises(error, match=words):
        scripted(update, options, SECS, 1)


def test_k_batch_rules_take_more_batches_than_workers():
    for update in ("k_batch_sync", "k_batch_async"):
        schedule = scripted(update, ["k=5"], SECS, 4)
        assert [len(steps) for steps in schedule.pushes_by_update()] == [5] * 4

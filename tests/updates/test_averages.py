"""Each update of an averaging rule is the mean of exactly the gradients that the rule reports as used.

That holds for any order of arrival, and when workers end early, are killed in a step, and come back.
`tests/testing/marked_gradients.py` explains how a test knows which gradients are in an update.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

from ps_trainer.updates import gradient_collector
from tests.testing.cluster import InProcessCluster
from tests.testing.marked_gradients import NUM_WORKERS, MarkedRun, Push, marked_run
from tests.testing.repetitions import representatives

RULES = {
    "sync": (),
    "sync_first_two": ("replicas_to_aggregate=2",),
    "backup": ("backup_workers=1",),
    "softsync": ("splits=2",),
    "k_sync": ("k=2",),
    "k_async": ("k=2",),
    "k_batch_sync": ("k=2",),
    "k_batch_async": ("k=2",),
    "local_sgd": ("period=2",),
    "model_averaging": ("period=2",),
    "accumulate": ("steps=2", "rule=sync"),
}
# One rule of each kind. Fresh gradients make an update in all forms of `sync` and in `k_sync` as in `backup`, and
# gradients of any age in the other k_ rules as in `softsync`: the same `GroupPolicy` in the same code. `local_sgd`
# averages as `model_averaging` does.
CHOSEN = representatives(RULES, ["softsync", "model_averaging", "accumulate"])
IN_ANY_GROUP = ("softsync", "k_async", "k_batch_async")
WAITING = ("sync", "sync_first_two", "backup", "k_sync", "local_sgd", "model_averaging", "accumulate")
PARTED = ("sync", "sync_first_two", "backup", "k_sync", "accumulate")  # the same code as in `sync`
WITHOUT_TABLES = ("local_sgd", "model_averaging")
NUM_ACTIONS = 14
_numbers = itertools.count()


@pytest.fixture(scope="module", params=[1, 2], ids=["one_ps", "two_ps"])
def cluster(request: pytest.FixtureRequest) -> Iterator[InProcessCluster]:
    with InProcessCluster(request.param, NUM_WORKERS) as cluster:
        yield cluster


@pytest.mark.parametrize("layout", ["packed", "per_variable"])
@pytest.mark.parametrize("rule", CHOSEN)
def test_each_update_is_the_mean_of_the_gradients_used(cluster, rule, layout):
    with start(cluster, rule, layout=layout) as run:
        killed_in = play(run, random.Random(f"{rule} {layout} {cluster.num_ps}"))
        check(run, rule, killed_in)


@pytest.mark.parametrize("rule", representatives(PARTED, ["backup", "accumulate"]))
def test_between_hosts_all_parts_of_a_ps_task_have_the_gradients_used(rule, monkeypatch):
    monkeypatch.setattr(gradient_collector, "_LEAST_PART_BYTES", 1)
    fields = {"layout": "per_variable", "spans_hosts": True}
    with InProcessCluster(1, NUM_WORKERS) as cluster, start(cluster, rule, **fields) as run:
        assert [(group.ps, group.part) for group in run.groups] == [(0, 0), (0, 1)]
        killed_in = play(run, random.Random(f"{rule} in parts"))
        check(run, rule, killed_in)


def start(cluster: InProcessCluster, rule: str, **fields: Any) -> AbstractContextManager[MarkedRun]:
    """A run under a rule, with tables if the rule trains them."""
    update = "sync" if rule == "sync_first_two" else rule
    fields |= {"update": update, "update_option": RULES[rule], "with_tables": rule not in WITHOUT_TABLES}
    return marked_run(cluster, f"marked-{next(_numbers)}", **fields)


def play(run: MarkedRun, order: random.Random) -> set[int]:
    """Makes steps in random order with one killed worker, then lets all leave; returns the codes of killed steps."""
    kills = {order.randrange(2, NUM_ACTIONS - 3)}
    killed_in: set[int] = set()
    for action in range(NUM_ACTIONS):
        idle = [worker for worker, process in run.processes.items() if not process.is_busy]
        if action in kills and idle:
            worker = order.choice(idle)
            before = len(run.pushes)
            how = {name: order.random() < 0.5 for name in ("is_noticed", "is_late")}
            run.kill(worker, comes_back=worker == 0 or order.random() < 0.7, **how)
            killed_in |= {code for push in run.pushes[before:] if push.staleness is None for code in push.codes}
        elif idle:
            run.step(order.sample(idle, order.choice([1, 1, 1, min(2, len(idle)), len(idle)])))
    for worker in set(range(NUM_WORKERS)) - run.processes.keys():
        run.notice(worker)  # the chief notices a lost worker in the end; until then the others may wait for it
    while run.processes:
        idle = [worker for worker, process in run.processes.items() if not process.is_busy]
        run.leave(order.choice(idle))
    return killed_in


def check(run: MarkedRun, rule: str, killed_in: set[int]) -> None:
    by_group = []
    for group, parts in zip(run.groups, run.marks(), strict=True):
        first, *others = parts.values()
        assert all(marks == first for marks in others), "the pieces of a group have different gradients"
        check_means(run, group.ps, rule, first, may_lack=len(killed_in) if by_group else 0)
        by_group.append(first)
    decided, *followers = by_group
    if rule not in IN_ANY_GROUP:  # the same gradients, except those that a killed worker did not deliver
        for marks in followers:
            assert marks.items() <= decided.items()
            assert decided.keys() - marks.keys() <= killed_in
    check_counts(run, decided)


def check_means(run: MarkedRun, ps: int, rule: str, marks: dict[int, tuple[int, int]], may_lack: int) -> None:
    """Asserts that each update is the mean of its pushes, where a killed worker's missing part counts as zero."""
    groups, num_updates = groups_of(run.pushes, marks), run.clock(ps)
    assert set(groups) <= set(range(num_updates)) and len(groups) >= num_updates - may_lack
    for update, pushes in groups.items():
        (size,) = {marks[code][1] for push in pushes for code in push.codes}
        assert size - may_lack <= len(pushes) <= size, f"update {update} is not the mean of {pushes}"
        if rule in WAITING:
            assert len({push.worker for push in pushes}) == len(pushes), "a worker has two turns in an update"


def groups_of(pushes: list[Push], marks: dict[int, tuple[int, int]]) -> dict[int, list[Push]]:
    """The pushes of each update; all gradients of one push must be in the same update."""
    groups: dict[int, list[Push]] = {}
    for push in pushes:
        found = {marks.get(code) for code in push.codes}
        assert len(found) == 1, f"a push was taken in part: {push}"
        (mark,) = found
        if mark is not None:
            groups.setdefault(mark[0], []).append(push)
    assert set(marks) == {code for of_one in groups.values() for push in of_one for code in push.codes}
    return groups


def check_counts(run: MarkedRun, marks: dict[int, tuple[int, int]]) -> None:
    """Asserts that the reports of the chief and to each worker agree with the updates."""
    counts = run.counts(0)
    dropped = counts.pushed - counts.used
    assert np.all(dropped >= 0)
    for worker in range(NUM_WORKERS):
        own = [push for push in run.pushes if push.worker == worker]
        told = [push for push in own if push.staleness is not None]
        assert counts.used[worker] == sum(push.codes[0] in marks for push in own)
        assert len(told) <= counts.pushed[worker] <= len(own)
        said_dropped = [push for push in told if push.staleness[0] < 0]
        assert not [push for push in said_dropped if push.codes[0] in marks]
        in_open_group = [push for push in told if push.staleness[0] >= 0 and push.codes[0] not in marks]
        assert len(in_open_group) <= counts.members[worker]

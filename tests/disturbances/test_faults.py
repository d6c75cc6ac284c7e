"""The texts of `--fault`: events, the draws of chaos, and the messages about wrong ones."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ps_trainer.disturbances import faults
from ps_trainer.disturbances.faults import ClusterShape, Fault
from ps_trainer.errors import OptionError, UnknownNameError

CLUSTER = ClusterShape(num_ps=2, num_workers=3, num_evaluators=1, max_steps=1000, has_links=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kill:worker:1@step=200", {"kind": "kill", "task": "worker-1", "step": 200}),
        ("kill:chief@step=7", {"kind": "kill", "task": "worker-0", "step": 7}),
        ("kill:chief:0@after_secs=0", {"kind": "kill", "task": "worker-0", "after_secs": 0.0}),
        ("term:evaluator:0@after_secs=2.5", {"kind": "term", "task": "evaluator-0", "after_secs": 2.5}),
        ("freeze:ps:0@step=50,secs=20", {"kind": "freeze", "task": "ps-0", "step": 50, "secs": 20.0}),
        ("freeze:ps:0@step=50", {"kind": "freeze", "task": "ps-0", "step": 50, "secs": 10.0}),
        ("raise:worker:2@step=100", {"kind": "raise", "task": "worker-2", "step": 100}),
        ("cut:worker:1@step=50,secs=10", {"kind": "cut", "task": "worker-1", "step": 50, "secs": 10.0}),
        ("slow_ps:1@step=5,ms=50", {"kind": "slow_ps", "task": "ps-1", "step": 5, "ms": 50.0}),
        ("slow_ps:ps:1@step=5,secs=2", {"kind": "slow_ps", "task": "ps-1", "step": 5, "ms": 100.0, "secs": 2.0}),
    ],
)
def test_reads_kind_task_and_time(text, expected):
    assert faults.parse_all([text], CLUSTER) == [Fault(text=text, **expected)]


def test_several_faults_keep_their_order_and_their_steps_are_milestones():
    found = faults.parse_all(["kill:ps:1@step=70", "kill:ps:0@after_secs=3", "term:ps:0@step=30"], CLUSTER)
    assert [fault.task for fault in found] == ["ps-1", "ps-0", "ps-0"]
    assert faults.milestones(found) == [30, 70]
    assert faults.num_chaos_kills(found) == 0


def test_chaos_spreads_kills_over_the_run_and_over_the_roles():
    found = faults.parse_all(["chaos:kills=400,seed=3"], CLUSTER)
    steps = [fault.step for fault in found]
    assert steps == sorted(steps)
    for number, step in enumerate(steps):  # one in each of 400 equal parts of 5 % to 90 %
        low = 50 + 850 * number / 400
        assert low - 1 <= step <= low + 850 / 400
    counts = Counter(fault.task for fault in found)
    assert set(counts) == {"ps-0", "ps-1", "worker-0", "worker-1", "worker-2"}
    by_role = [counts["ps-0"] + counts["ps-1"], counts["worker-1"] + counts["worker-2"], counts["worker-0"]]
    assert min(by_role) > 400 / 3 - 5 * (400 * 2 / 9) ** 0.5  # five standard deviations of the binomial
    assert faults.num_chaos_kills(found) == 400


def test_chaos_is_the_same_for_the_same_seed_only():
    draws = [[fault.step for fault in faults.parse_all([f"chaos:seed={seed}"], CLUSTER)] for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    assert len(draws[0]) == 10


def test_chaos_can_go_by_time_and_leave_roles_out():
    endless = ClusterShape(num_ps=2, num_workers=1)
    found = faults.parse_all(["chaos:kills=3,roles=ps,every_secs=60"], endless)
    assert [fault.after_secs for fault in found] == [60, 120, 180]
    assert {fault.task for fault in found} <= {"ps-0", "ps-1"}


def test_chaos_kills_different_tasks_at_the_same_moment():
    found = faults.parse_all(["chaos:kills=40,together=2,seed=5"], CLUSTER)
    pairs = list(zip(found[::2], found[1::2], strict=True))
    assert len(pairs) == 20
    assert all(first.step == second.step and first.task != second.task for first, second in pairs)
    assert len({first.step for first, _ in pairs}) == 20
    assert any({first.task[:2], second.task[:2]} == {"ps", "wo"} for first, second in pairs)


def test_chaos_draws_the_same_tasks_as_long_as_one_is_killed_at_a_time():
    found = faults.parse_all(["chaos:kills=4,seed=7"], CLUSTER)
    source = random.Random("chaos 7")
    roles = {"ps": ["ps-0", "ps-1"], "worker": ["worker-1", "worker-2"], "chief": ["worker-0"]}
    drawn = []
    for _ in range(4):
        drawn.append(source.choice(roles[source.choice(list(roles))]))
        source.random()
    assert [fault.task for fault in found] == drawn


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", UnknownNameError, "unknown kind ''; known: kill, term"),
        ("kil:worker:1@step=5", UnknownNameError, "unknown kind 'kil'; did you mean kill"),
        (
            "kill",
            UnknownNameError,
            "unknown role ''; write kill:ROLE:INDEX@step=N; kill is for ps, worker, chief, eval",
        ),
        ("kill:wroker:1@step=5", UnknownNameError, "unknown role 'wroker'; did you mean worker"),
        ("kill:launcher@step=5", UnknownNameError, "unknown role 'launcher'"),
        ("raise:ps:0@step=5", OptionError, "raise is for worker, chief"),
        ("cut:evaluator:0@step=5", OptionError, "cut is for ps, worker, chief"),
        ("slow_ps:worker:0@step=5", OptionError, "slow_ps is for ps"),
        ("kill:worker@step=5", OptionError, "'' is not an index"),
        ("kill:worker:one@step=5", OptionError, "'one' is not an index"),
        ("kill:worker:-1@step=5", OptionError, "'-1' is not an index"),
        ("kill:worker:3@step=5", OptionError, "worker 3 does not exist; the worker tasks of this cluster are 0 to 2"),
        ("kill:ps:2@step=5", OptionError, "ps 2 does not exist; the ps tasks of this cluster are 0 to 1"),
        ("kill:chief:1@step=5", OptionError, "chief 1 does not exist"),
        ("kill:evaluator:1@step=5", OptionError, "evaluator 1 does not exist"),
        ("kill:worker:1", OptionError, "give exactly one of @step=N and @after_secs=N"),
        ("kill:worker:1@", OptionError, "an empty key=value"),
        ("kill:worker:1@step=5,", OptionError, "an empty key=value"),
        ("kill:worker:1@5", OptionError, "write key=value; keys: step"),
        ("kill:worker:1@step=5,after_secs=5", OptionError, "give exactly one of"),
        ("kill:worker:1@step=1.5", OptionError, "'1.5' is not of type int"),
        ("kill:worker:1@step=1000", OptionError, "training ends at --max_steps=1000, so the fault would never happen"),
        ("kill:worker:1@step=5,secs=3", OptionError, "unknown key 'secs'"),
        ("raise:worker:1@after_secs=5", OptionError, "`raise` happens in a step; give @step=N"),
        ("chaos:kills=5,together=2", OptionError, "kills=5 must be a multiple of together=2"),
        ("chaos:kills=6,together=6", OptionError, "together=6 exceeds the 5 tasks of these roles; lower it"),
        ("chaos:kills=ten", OptionError, "'ten' is not of type int"),
        ("chaos:kill=10", OptionError, "unknown key 'kill'; did you mean kills"),
        (
            "chaos:roles=evaluator",
            UnknownNameError,
            "unknown role 'evaluator'; .*join some of ps, worker, chief by [+]",
        ),
        ("chaos:roles=ps+wroker", UnknownNameError, "unknown role 'wroker'; did you mean worker"),
        ("chaos:kills=10,,", OptionError, "an empty key=value"),
    ],
)
def test_wrong_faults_are_errors_with_a_reason(text, error, message):
    with pytest.raises(error, match=message) as caught:
        faults.parse_all([text], CLUSTER)
    assert str(caught.value).startswith(f"--fault {text}")


@pytest.mark.parametrize(
    ("text", "cluster", "message"),
    [
        ("cut:ps:0@step=5", ClusterShape(num_ps=1, num_workers=1), "add --hosts=netns"),
        ("kill:evaluator:0@step=5", ClusterShape(num_ps=1, num_workers=1), "this cluster has no evaluator"),
        ("chaos:kills=2", ClusterShape(num_ps=1, num_workers=2), "without --max_steps .*give every_secs=N"),
        ("chaos:kills=2", ClusterShape(num_ps=1, num_workers=1, max_steps=9), "the chief is the only worker"),
    ],
)
def test_faults_that_do_not_fit_this_cluster(text, cluster, message):
    with pytest.raises(OptionError, match=message):
        faults.parse_all([text], cluster)


COLOCATED = ClusterShape(num_ps=0, num_workers=3, max_steps=1000)


def test_chaos_kills_only_workers_where_they_hold_the_parameters():
    killed = {fault.task for fault in faults.parse_all(["chaos:kills=30"], COLOCATED)}
    assert killed == {"worker-0", "worker-1", "worker-2"}
    with pytest.raises(OptionError, match="this cluster has no ps task; remove ps from roles"):
        faults.parse_all(["chaos:kills=3,roles=ps+worker"], COLOCATED)


def test_a_fault_of_a_ps_task_names_the_workers_where_they_hold_the_parameters():
    with pytest.raises(OptionError, match="this cluster has no ps; its workers hold the parameters, so write worker"):
        faults.parse_all(["kill:ps:0@step=5"], COLOCATED)

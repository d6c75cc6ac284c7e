"""The conditions for several steps in one call of a worker, and for the end of such a call."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from ps_trainer import component_tables
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.errors import NanLossError, OptionError
from ps_trainer.training import components as components_lib
from ps_trainer.training import graph as graph_lib
from ps_trainer.training.graph_parts import step_calls
from ps_trainer.training.graph_parts.step_calls import CallLimits, StepCalls
from ps_trainer.training.graph_parts.step_fetches import StepFetches
from tests.testing.repetitions import representatives
from tests.testing.rule_promises import LIKE_ANOTHER, PROMISES

PER_CALL = 5
JOBS = {"ps": ("localhost:2000",), "worker": tuple(f"localhost:{3000 + worker}" for worker in range(3))}


def config(steps_per_call, model="Dense", **fields):
    return TrainConfig(
        model=f"tests.testing.components:{model}",
        dataset="tests.testing.components:Rows",
        steps_per_call=steps_per_call,
        **fields,
    )


def build(asked):
    """The graph of a worker, built without a server."""
    cluster = ClusterConfig(jobs=JOBS, job_name="worker", task_index=0)
    return graph_lib.build(components_lib.load(asked, 3), cluster, asked, "run")


@pytest.mark.parametrize("name", representatives(PROMISES, [rule for rule in PROMISES if rule not in LIKE_ANOTHER]))
def test_a_rule_says_whether_its_workers_act_between_two_steps(name):
    promises = PROMISES[name]
    rule = component_tables.UPDATES.create(name, promises.options)
    train = build(config(0, promises.model, update=name, update_option=promises.options))
    step = train.step
    acts = len(step.phases) > 1 or step.choose is not None or step.exchange is not None
    assert rule.acts_on_host == acts
    assert (train.call is None) == acts


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"update": "easgd"}, "--update=easgd decides or exchanges something"),
        ({"update": "all_reduce"}, "--update=all_reduce decides or exchanges something"),
        ({"hook": ("tests.processes.hooks:StopOnRequest",)}, "a session hook looks at each step"),
        ({"straggler": ("det:mean_ms=100",)}, "--straggler delays each step on the host"),
    ],
)
def test_what_acts_between_two_steps_is_refused_before_anything_starts(fields, reason):
    asked = config(PER_CALL, "Dense", **fields)
    for check in (components_lib.check_options, components_lib.load):
        with pytest.raises(OptionError, match=rf"^--steps_per_call=5: {reason}.*; use --steps_per_call=1 or 0$"):
            check(asked, 2)
    for number in (0, 1):
        components_lib.check_options(dataclasses.replace(asked, steps_per_call=number), 2)
        assert build(dataclasses.replace(asked, steps_per_call=number)).call is None


def test_a_rule_of_the_users_own_that_does_not_say_so_gets_single_calls():
    train = build(config(0, "Dense", update="easgd"))
    silent = dataclasses.replace(config(PER_CALL, "Dense"), update="easgd")

    class Silent:
        acts_on_host = False

    assert step_calls.limits_of(config(0, "Dense"), Silent(), train.step, has_hooks=False) == CallLimits(1)
    with pytest.raises(OptionError, match="decides or exchanges"):
        step_calls.limits_of(silent, Silent(), train.step, has_hooks=False)


class FakeGraph:
    """Makes steps until `note` ends the call."""

    ops = "ops"

    def __init__(self):
        self.note = None
        self.made = 0

    def make_callable(self, ops):
        assert ops == self.ops
        return self.run

    def run(self):
        may_continue = True
        while may_continue:
            self.made += 1
            may_continue = self.note(StepFetches(self.made, [0], 0.5, (), (), ()))


def calls(graph, limits, may_continue=lambda step: True, add=lambda step: True, time_fn=lambda: 0.0):
    return StepCalls(graph, limits, may_continue=may_continue, add=add, time_fn=time_fn).callable(graph)


def test_a_call_counts_all_its_steps_but_the_last_and_returns_that():
    graph, added = FakeGraph(), []
    call = calls(graph, CallLimits(3), add=lambda step: added.append(step.global_step) or True)
    assert [call().global_step, call().global_step] == [3, 6]
    assert added == [1, 2, 4, 5]


def test_a_call_ends_at_its_time_or_when_the_loop_has_something_to_do():
    graph = FakeGraph()
    now = iter(range(100))
    assert calls(graph, CallLimits(1000, 4.0), time_fn=lambda: next(now))().global_step == 4
    assert calls(graph, CallLimits(1000), may_continue=lambda step: step.global_step < 9)().global_step == 9
    assert calls(graph, CallLimits(1000), add=lambda step: step.global_step < 12)() is None
    assert graph.made == 12


def test_an_error_of_a_step_inside_a_call_is_raised_by_the_call_and_not_by_the_next_one():
    graph, failing = FakeGraph(), threading.Event()
    failing.set()

    def add(step):
        if failing.is_set():
            raise NanLossError("the loss is NaN")
        return True

    call = calls(graph, CallLimits(3), add=add)
    with pytest.raises(NanLossError):
        call()
    failing.clear()
    assert call().global_step == 4

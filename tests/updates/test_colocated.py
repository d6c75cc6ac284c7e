"""The update rules on workers that hold the parameters themselves (`--placement=colocated`)."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.testing.conformance import Runs, job, limited, uneven
from tests.testing.repetitions import repetitions, representatives
from tests.testing.rule_promises import PROMISES

COLOCATED = (0, 3)
SPREAD = ("least_share_bytes=1",)  # each worker holds a share even of the few parameters of these models
# One rule of each way in which workers meet on the ps tasks; a full run has all rules. `sync` and `sync_replicas` are
# compared with ps tasks below. The k_ rules and rounds of local steps
# collect gradients as `backup` does. A worker waits under `ssp` and exchanges under `easgd` on one ps task, as apart.
MEETING = representatives(PROMISES, ["backup", "all_reduce"])


@pytest.fixture(scope="module")
def runs():
    runs = Runs()
    yield runs
    runs.close()


def holders(graph):
    """The devices of the packed parameters."""
    return {place.device for place in graph.places if place.name.startswith("packed/")}


@pytest.mark.parametrize("rule", MEETING)
def test_a_rule_keeps_its_promises(runs, rule):
    result = runs.result(COLOCATED, dataclasses.replace(limited(rule), layout_option=SPREAD))
    assert result.codes == [0, 0, 0]
    least, most = PROMISES[rule].counts(result.steps, result.dropped)
    assert least <= result.global_step <= most
    assert PROMISES[rule].max_steps <= result.global_step <= PROMISES[rule].max_steps + PROMISES[rule].overshoot
    assert result.left_threads == []
    for graph in result.graphs:
        assert all(place.container == graph.run_id for place in graph.places)
        jobs = {device.split("/")[1] for device in (place.device for place in graph.places)}
        assert jobs == {"job:worker"}
        assert holders(graph) == {f"/job:worker/task:{index}/device:CPU:0" for index in range(3)}


@pytest.mark.parametrize("rule", repetitions(("async", "sync")))
def test_a_rule_ends_when_each_worker_has_used_up_its_data(runs, rule):
    result = runs.result(COLOCATED, dataclasses.replace(uneven(rule, "per_variable"), layout_option=SPREAD))
    assert result.codes == [0, 0, 0]
    assert tuple(result.steps) == (24, 8, 14)


def test_a_checkpoint_goes_both_ways_between_colocated_parameters_and_a_ps_task(runs, tmp_path):
    steps = []
    for shape, max_steps in (((0, 2), 4), ((1, 2), 8), ((0, 2), 12)):
        fields = {"optimizer": "momentum", "max_steps": max_steps, "logdir": str(tmp_path)}
        config = job("sync_replicas", "packed", (0, 2), layout_option=SPREAD if max_steps == 4 else (), **fields)
        result = runs.run(shape, config)
        assert result.global_step == max_steps
        steps += result.losses[0]
    whole = runs.run((1, 2), job("sync_replicas", "packed", (0, 2), optimizer="momentum", max_steps=12))
    np.testing.assert_allclose(steps, whole.losses[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("rule", "num_workers"),
    repetitions([("async", 1), ("sync", 1), ("sync", 2), ("sync_replicas", 2)], every=4, first=3),
    ids=str,
)
@pytest.mark.parametrize("layout", ["packed"])
def test_losses_equal_those_with_as_many_ps_tasks_to_the_last_bit(runs, rule, num_workers, layout):
    fields = {"max_steps": 12, "optimizer": "momentum", "layout_option": SPREAD}
    config = job(rule, layout, (num_workers, num_workers), "Embedded", **fields)
    apart = runs.result((num_workers, num_workers), config)
    colocated = runs.result((0, num_workers), config)
    assert colocated.losses == apart.losses
    assert len(set(apart.losses[0])) > 6  # it learns: equal zeros would prove nothing
    assert colocated.values.keys() == apart.values.keys()
    for name, value in apart.values.items():
        np.testing.assert_array_equal(colocated.values[name], value, err_msg=name)


def test_losses_of_a_first_worker_that_holds_all_equal_those_with_one_ps_task_to_the_last_bit(runs):
    config = job("sync", "packed", (0, 2), "Embedded", max_steps=12, optimizer="momentum")
    colocated = runs.result((0, 2), config)
    assert colocated.losses == runs.result((1, 2), config).losses
    assert [holders(graph) for graph in colocated.graphs] == [{"/job:worker/task:0/device:CPU:0"}] * 2

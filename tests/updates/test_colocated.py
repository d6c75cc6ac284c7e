"""The update rules on workers that hold the parameters themselves (`--placement=colocated`)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.testing.conformance import Runs, job, limited, uneven
from tests.testing.repetitions import repetitions, representatives
from tests.testing.rule_promises import PROMISES

COLOCATED = (0, 3)
# One rule of each way in which workers meet on the ps tasks; a full run has all rules. `sync` and `sync_replicas` are
# compared with as many ps tasks below, as are rules that apply each gradient. The k_ rules and rounds of local steps
# collect gradients as `backup` does. A worker waits under `ssp` and exchanges under `easgd` on one ps task, as apart.
MEETING = representatives(PROMISES, ["backup", "all_reduce"])


@pytest.fixture(scope="module")
def runs():
    runs = Runs()
    yield runs
    runs.close()


@pytest.mark.parametrize("rule", MEETING)
def test_a_rule_keeps_its_promises(runs, rule):
    result = runs.result(COLOCATED, limited(rule))
    assert result.codes == [0, 0, 0]
    least, most = PROMISES[rule].counts(result.steps, result.dropped)
    assert least <= result.global_step <= most
    assert PROMISES[rule].max_steps <= result.global_step <= PROMISES[rule].max_steps + PROMISES[rule].overshoot
    assert result.left_threads == []
    for graph in result.graphs:
        assert all(place.container == graph.run_id for place in graph.places)
        jobs = {device.split("/")[1] for device in (place.device for place in graph.places)}
        assert jobs == {"job:worker"}


@pytest.mark.parametrize("rule", repetitions(("async", "sync")))
def test_a_rule_ends_when_each_worker_has_used_up_its_data(runs, rule):
    result = runs.result(COLOCATED, uneven(rule, "per_variable"))
    assert result.codes == [0, 0, 0]
    assert tuple(result.steps) == (24, 8, 14)


def test_a_checkpoint_goes_both_ways_between_colocated_parameters_and_a_ps_task(runs, tmp_path):
    steps = []
    for shape, max_steps in (((0, 2), 4), ((1, 2), 8), ((0, 2), 12)):
        config = job("sync", "packed", (0, 2), optimizer="momentum", max_steps=max_steps, logdir=str(tmp_path))
        result = runs.run(shape, config)
        assert result.global_step == max_steps
        steps += result.losses[0]
    whole = runs.run((1, 2), job("sync", "packed", (0, 2), optimizer="momentum", max_steps=12))
    np.testing.assert_allclose(steps, whole.losses[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("rule", "num_workers"),
    repetitions([("async", 1), ("sync", 1), ("sync", 2), ("sync_replicas", 2)], every=3, first=2),
    ids=str,
)
@pytest.mark.parametrize("layout", ["packed"])
def test_losses_equal_those_with_as_many_ps_tasks_to_the_last_bit(runs, rule, num_workers, layout):
    config = job(rule, layout, (num_workers, num_workers), "Embedded", max_steps=12, optimizer="momentum")
    apart = runs.result((num_workers, num_workers), config)
    colocated = runs.result((0, num_workers), config)
    assert colocated.losses == apart.losses
    assert len(set(apart.losses[0])) > 6  # it learns: equal zeros would prove nothing
    assert colocated.values.keys() == apart.values.keys()
    for name, value in apart.values.items():
        np.testing.assert_array_equal(colocated.values[name], value, err_msg=name)

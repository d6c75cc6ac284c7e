"""`sync` against its equation: in scripted order, with uneven data, and when a worker leaves or freezes."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.errors import OptionError
from ps_trainer.updates.base import RunPlan
from ps_trainer.updates.options import SyncOptions
from ps_trainer.updates.synchronous import Sync
from tests.testing import oracles
from tests.testing import script as script_lib
from tests.testing.cluster import InProcessCluster, config_of
from tests.testing.gradient_groups import BATCH_SIZE, LEARNING_RATE, MODELS, GroupScript, check_script
from tests.testing.repetitions import repetitions
from tests.testing.script import Turnstile, initial_values, worker_batch

NUM_WORKERS = 3


@pytest.mark.full  # `backup` is the same rule (`test_k_family.py`), and `test_backup.py` has this script
@pytest.mark.parametrize("model", ["dense", "sparse"])
@pytest.mark.parametrize("layout", ["packed", "per_variable"])
def test_an_update_is_the_average_of_the_first_gradients_of_its_step(cluster, model, layout):
    # Worker 1 is late for step 1, worker 0 for steps 2 and 3; the late workers continue with the newest parameters.
    wanted = check_script(
        cluster, model, [0, 2, 1, 2, 1, 0, 2, 1, 0, 0, 2], required=lambda clock: 2, is_fresh_only=True, waits=True,
        update="sync", update_option=("replicas_to_aggregate=2",), layout=layout,
    )  # fmt: skip
    assert wanted.staleness == [[0, -1, -1, 0], [-1, 0, 0], [0, 0, 0, 0]]


@pytest.mark.full  # `test_equivalence.py` compares the average of all with one process
def test_by_default_an_update_is_the_average_of_all(cluster):
    wanted = check_script(
        cluster, "dense", [0, 2, 1, 2, 1, 0], required=lambda clock: 3, is_fresh_only=True, waits=True, update="sync"
    )
    assert wanted.staleness == [[0, 0]] * 3


@pytest.mark.parametrize(
    ("num_ps", "layout", "model"),
    # The sparse model has dense parts.
    repetitions([(2, "packed", "sparse"), (1, "packed", "dense"), (2, "per_variable", "dense")], every=3),
)
def test_when_a_workers_data_end_the_average_is_over_the_other(num_ps, layout, model):
    name, loss_and_gradient = MODELS[model]
    config = config_of(
        name, "Rows", ["lengths=15,5"], update="sync", layout=layout, batch_size=BATCH_SIZE,
        learning_rate=LEARNING_RATE, max_steps=None, num_epochs=100,
    )  # fmt: skip
    with InProcessCluster(num_ps, 2) as cluster:
        outcomes = cluster.run(config)
    wanted = params_before(model)
    for step in range(15):
        there = (0, 1) if step < 5 else (0,)
        gradients = [loss_and_gradient(wanted, worker_batch(worker, 2, BATCH_SIZE, step))[1] for worker in there]
        wanted = oracles.sgd(wanted, oracles.mean(gradients), LEARNING_RATE)
    assert_values(outcomes[0].worker.final_values, wanted)
    assert books(outcomes) == {"pushes": [15, 5], "gradients_used": [15, 5], "gradients_dropped": [0, 0]}


@pytest.mark.parametrize("model", repetitions(["dense", "sparse"], first=1))  # the sparse model has dense parts
def test_a_lost_worker_is_left_out_and_a_frozen_waiting_one_takes_no_other_workers_turn(cluster, model):
    loss_and_gradient = MODELS[model][1]
    with Turnstile(cluster) as gate:
        run = GroupScript(cluster, gate, model, update="sync", update_option=("min_workers=2",), max_steps=30)
        wanted = params_before(model)
        run.push(0, [])
        run.push(1, [])  # worker 2 is in the middle of its step
        run.service().worker_left(2, 1)
        for worker in (0, 1):
            gate.wait_steps(worker, 1)
        gradients = [loss_and_gradient(wanted, worker_batch(worker, 3, BATCH_SIZE, 0))[1] for worker in (0, 1)]
        wanted = oracles.sgd(wanted, oracles.mean(gradients), LEARNING_RATE)
        assert_values(gate.values(), wanted)
        run.push(2, [2])  # worker 2 was slow, not lost: its gradient is late
        assert gate.calls[2].made[-1].staleness_values[-1].tolist() == [-1, -1]
        run.push(2, [])  # it waits for the update, and for the others it waits forever from here on
        run.service().worker_left(2, 1)
        for step in range(2, 7):
            gate.release(0)
            gate.release(1)
            for worker in (0, 1):
                gate.wait_steps(worker, step)
        assert gate.values()["global_step"] == 6
        gate.open()
        outcomes = [cluster.finish(call) for call in gate.calls.values()]
    counts = books(outcomes)
    assert counts["gradients_used"][:2] == [30, 30]
    assert 1 <= counts["gradients_used"][2] <= 26  # in the second update, and in those after the gate was opened
    assert counts["gradients_dropped"][:2] == [0, 0]
    assert counts["gradients_dropped"][2] >= 1


def test_limits_and_default_of_min_workers():
    rule = Sync(SyncOptions(replicas_to_aggregate=3, min_workers=2))
    rule.check(RunPlan(num_workers=3))
    assert (rule.min_workers(4), Sync(SyncOptions(replicas_to_aggregate=3)).min_workers(4)) == (2, 3)
    assert Sync(SyncOptions()).min_workers(4) == 4
    with pytest.raises(OptionError, match="min_workers=5 exceeds num_workers=4"):
        Sync(SyncOptions(min_workers=5)).check(RunPlan(num_workers=4))


def params_before(model):
    return initial_values(getattr(script_lib, MODELS[model][0].partition(":")[2])())


def assert_values(values, wanted):
    for name, value in wanted.items():
        np.testing.assert_allclose(values[name], value, rtol=0, atol=1e-6, err_msg=name)


def books(outcomes):
    """The counts of each worker's gradients in the run's summary."""
    workers = outcomes[0].worker.summary.workers
    figures = ("pushes", "gradients_used", "gradients_dropped")
    return {figure: [getattr(workers[index], figure) for index in range(len(outcomes))] for figure in figures}

"""Tests that a cluster follows scripts, and that NumPy forms of models and plain rules give its numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.testing import oracles, script
from tests.testing.cluster import InProcessCluster, config_of
from tests.testing.components import global_batches, plain_loop
from tests.testing.script import Turnstile, initial_values, worker_batch

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

MODELS = {"Linear": oracles.linear, "EmbeddedLinear": oracles.embedded_linear}
SCRIPT = [0, 1, 1, 0, 1, 0]
STALENESS = [[0, 2, 1], [1, 0, 1]]  # steps of other workers since the worker's own previous step
BATCH_SIZE, LEARNING_RATE = 4, 0.5


@pytest.fixture(scope="module", params=[1, 2], ids=["1 ps", "2 ps"])
def cluster(request):
    with InProcessCluster(request.param, 2) as cluster:
        yield cluster


@pytest.mark.parametrize("model", MODELS)
def test_loss_and_gradient_equal_tensorflows(model):
    instance = getattr(script, model)()
    (batch,) = global_batches(16, 1)
    losses, values = plain_loop(instance, [batch], lambda: tf.train.GradientDescentOptimizer(1.0), seed=5)
    initial = initial_values(instance, seed=5)
    loss, gradient = MODELS[model](initial, batch)
    np.testing.assert_allclose(loss, losses[0], rtol=0, atol=1e-6)
    assert set(values) == set(initial) == set(gradient)
    for name, value in values.items():
        assert gradient[name].any()
        np.testing.assert_allclose(initial[name] - gradient[name], value, rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("layout", ["packed", "per_variable"])
@pytest.mark.parametrize("model", MODELS)
def test_async_follows_the_script(cluster, model, layout):
    config = _config(model, update="async", layout=layout, lengths="3,3")
    wanted = oracles.async_sgd(
        MODELS[model], initial_values(getattr(script, model)()), SCRIPT, _batch_of, LEARNING_RATE
    )  # fmt: skip
    with Turnstile(cluster) as gate:
        calls = gate.start(config)
        for position, worker in enumerate(SCRIPT):
            gate.play([worker])
            _assert_values(gate.values(), wanted.values[position], global_step=position + 1)
    outcomes = [cluster.finish(call) for call in calls]
    _assert_values(outcomes[0].worker.final_values, wanted.values[-1], global_step=len(SCRIPT))
    assert wanted.staleness == STALENESS
    for worker, outcome in enumerate(outcomes):
        assert outcome.error is None
        np.testing.assert_allclose(outcome.losses, wanted.losses[worker], rtol=0, atol=1e-6)
        assert [set(values) for values in outcome.progress.staleness_values] == [{s} for s in STALENESS[worker]]


@pytest.mark.parametrize("layout", ["packed", "per_variable"])
def test_sync_waits_for_a_held_back_gradient(cluster, layout):
    wanted = oracles.sync_sgd(oracles.linear, initial_values(script.Linear()), 2, 3, _batch_of, LEARNING_RATE)
    with Turnstile(cluster) as gate:
        calls = gate.start(_config("Linear", update="sync", layout=layout, lengths="4,4"))
        for step, order in enumerate([(0, 1), (1, 0), (1, 0)]):
            for worker in order:
                gate.wait_arrived(worker, step + 1)
            before = gate.values()
            gate.release(order[0])
            assert gate.values()["global_step"] == step  # one gradient alone makes no update
            np.testing.assert_array_equal(gate.values()["kernel"], before["kernel"])
            gate.release(order[1])
            for worker in order:
                gate.wait_steps(worker, step + 1)
            _assert_values(gate.values(), wanted.values[step], global_step=step + 1)
    outcomes = [cluster.finish(call) for call in calls]
    for worker, outcome in enumerate(outcomes):
        assert outcome.error is None
        np.testing.assert_allclose(outcome.losses[:3], wanted.losses[worker], rtol=0, atol=1e-6)
        assert len(outcome.losses) == 4  # the last step passed after the gate was opened


def test_a_worker_passes_only_when_released(cluster):
    with Turnstile(cluster) as gate:
        gate.start(_config("Linear", update="async", lengths="5,5"))
        gate.play([0, 0, 0])
        gate.wait_arrived(1, 1)
        assert [gate.steps(0), gate.steps(1)] == [3, 0]
        gate.open()
        gate.wait_steps(1, 5)
        gate.wait_steps(0, 5)
    assert all(cluster.finish(call).code == 0 for call in gate.calls.values())


def test_a_wait_in_vain_ends_and_lists_steps_and_arrivals(cluster, monkeypatch):
    monkeypatch.setattr(script, "DEADLINE_SECS", 0.3)
    with Turnstile(cluster) as gate:
        calls = gate.start(_config("Linear", update="async", lengths="2,2"))
        with pytest.raises(AssertionError, match=r"worker 1 has made 1 steps: .*steps \{0: 0, 1: 0\}"):
            gate.wait_steps(1, 1)
    assert [cluster.finish(call).code for call in calls] == [0, 0]


def _config(model, lengths, **fields):
    return config_of(
        f"tests.testing.script:{model}", "Rows", [f"lengths={lengths}"], batch_size=BATCH_SIZE,
        learning_rate=LEARNING_RATE, max_steps=None, num_epochs=100, **fields,
    )  # fmt: skip


def _batch_of(worker, step):
    return worker_batch(worker, 2, BATCH_SIZE, step)


def _assert_values(got, wanted, global_step):
    assert got["global_step"] == global_step
    assert set(got) == set(wanted) | {"global_step"}
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-6, err_msg=name)

"""Schedules of a given staleness, and gradients along them, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.errors import OptionError
from ps_trainer.simulation import given_staleness
from ps_trainer.simulation.replay.replay import Replay
from tests.simulation.replay import on_cluster
from tests.testing import oracles, script
from tests.testing.gradient_groups import BATCH_SIZE
from tests.updates.scripted import Optimizer


def test_constant_is_tau_once_so_old_a_version_exists():
    schedule = given_staleness.constant(3, 6)
    assert schedule.num_workers == 1
    assert schedule.steps.staleness.tolist() == [0, 1, 2, 3, 3, 3]
    assert schedule.steps.version.tolist() == [0, 0, 0, 0, 1, 2]
    assert schedule.steps.update.tolist() == [0, 1, 2, 3, 4, 5]
    assert schedule.update_secs.tolist() == [1, 2, 3, 4, 5, 6]


def test_a_ramp_lets_the_staleness_grow():
    schedule = given_staleness.constant(4, 20, ramp_updates=8)
    assert schedule.steps.staleness.tolist() == [4 * v // 8 for v in range(8)] + [4] * 12


def test_a_given_staleness_is_limited_to_the_existing_versions():
    assert given_staleness.create_schedule([5, 0, 1, 9]).steps.staleness.tolist() == [0, 0, 1, 3]


def test_uniform_is_uniform_on_zero_to_twice_tau():
    staleness = given_staleness.uniform(4, 20_000, seed=1).steps.staleness[10:]
    counts = np.bincount(staleness)
    assert len(counts) == 2 * 4 + 1
    # Five standard deviations of a binomial count.
    expected = len(staleness) / 9
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected * (1 - 1 / 9))


def test_geometric_has_the_mean_and_the_zeros_of_its_distribution():
    tau, count = 6, 50_000
    staleness = given_staleness.geometric(tau, count, seed=1).steps.staleness[500:]
    deviation = np.sqrt(tau * (1 + tau))
    assert abs(staleness.mean() - tau) < 5 * deviation / np.sqrt(len(staleness))
    share, p = np.mean(staleness == 0), 1 / (1 + tau)
    assert abs(share - p) < 5 * np.sqrt(p * (1 - p) / len(staleness))


def test_the_seed_decides():
    first, same, other = (given_staleness.geometric(3, 100, seed=seed).steps.staleness.tolist() for seed in (0, 0, 1))
    assert first == same != other


def test_without_staleness_all_equal_plain_training():
    for schedule in (given_staleness.constant(0, 9), given_staleness.uniform(0, 9), given_staleness.geometric(0, 9)):
        assert schedule.steps.version.tolist() == list(range(9))


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
@pytest.mark.parametrize(
    "schedule",
    [
        given_staleness.constant(3, 12),
        given_staleness.uniform(2, 12, seed=4),
        given_staleness.geometric(2, 12, seed=4, ramp_updates=4),
    ],
    ids=["constant", "uniform", "geometric"],
)
def test_update_v_applies_the_gradient_of_version_v_minus_tau(schedule, optimizer):
    rate, numpy_optimizer = 0.2, Optimizer(optimizer)
    versions = [script.initial_values(script.Linear())]
    for v, tau in enumerate(schedule.steps.staleness.tolist()):
        batch = script.worker_batch(0, 1, BATCH_SIZE, v)
        _, gradient = oracles.linear(versions[v - tau], batch)
        versions.append(numpy_optimizer.apply(versions[v], gradient, v, rate))
    assert 0 < schedule.steps.staleness.max() < 12
    with Replay(on_cluster.training_of(script.Linear(), optimizer, rate), schedule, "async") as replay:
        for step, wanted in zip(replay.steps(), versions[1:], strict=True):
            for name, value in replay.values().items():
                np.testing.assert_allclose(value, wanted[name], rtol=0, atol=1e-6, err_msg=f"{name} at {step.version}")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: given_staleness.constant(-1, 5), "tau=-1 must be at least 0"),
        (lambda: given_staleness.geometric(float("nan"), 5), "tau=nan must be at least 0"),
        (lambda: given_staleness.constant(1, 0), "num_updates=0 must be at least 1"),
        (lambda: given_staleness.uniform(1, -1), "num_updates=-1 must be at least 1"),
        (lambda: given_staleness.create_schedule([]), "no staleness is given"),
        (lambda: given_staleness.create_schedule([0, -2]), "staleness=-2 must be at least 0"),
        (lambda: given_staleness.constant(1, 5, ramp_updates=-1), "ramp_updates=-1 must be at least 0"),
    ],
)
def test_impossible_staleness_is_rejected(make, message):
    with pytest.raises(OptionError, match=message):
        make()

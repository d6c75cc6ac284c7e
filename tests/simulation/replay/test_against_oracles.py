"""A schedule gives the same parameters in virtual time and in the NumPy form of its rule.

The tests of each rule in `tests/updates` compare the same NumPy form with a real cluster.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from ps_trainer.simulation.schedule import DROPPED, Schedule
from tests.simulation.replay import on_cluster
from tests.testing import gradient_groups, oracles_local, script
from tests.testing.oracles import Values
from tests.updates import scripted
from tests.updates.test_dc_asgd import delay_compensated

NUM_WORKERS, NUM_UPDATES = 3, 8
RATES = {"sgd": 0.5, "momentum": 0.2, "adagrad": 0.2, "adam": 0.05}
LOCAL_RATE = 0.2  # of the steps on a replica
DEFAULT_BETA = 0.9  # of `easgd`


def schedule_of(update: str, options: Sequence[str]) -> Schedule:
    schedule = on_cluster.schedule_of(update, options, NUM_WORKERS, NUM_UPDATES)
    assert set(schedule.steps.worker.tolist()) == set(range(NUM_WORKERS))
    return schedule


def assert_replays(
    wanted: Sequence[Values],
    schedule: Schedule,
    update: str,
    options: Sequence[str],
    model: str,
    optimizer: str,
    learning_rate: float | None = None,
    batch_size: int = scripted.BATCH_SIZE,
) -> None:
    """Compares all variables and global_step after each step."""
    rate = RATES[optimizer] if learning_rate is None else learning_rate
    training = on_cluster.training_of(on_cluster.MODELS[model](), optimizer, rate, batch_size=batch_size)
    replayed = on_cluster.replayed(training, schedule, update, options)
    assert wanted[-1]["global_step"] == NUM_UPDATES
    for index, (got, expected) in enumerate(zip(replayed, wanted, strict=True)):
        assert set(got) == set(expected)
        for name, value in expected.items():
            np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-6, err_msg=f"{name} after step {index}")


def one_by_one(
    optimizer: str, *, bound: float = np.inf, is_rate_divided: bool = False, num_averaged: int = 1
) -> scripted.Apply:
    """Applies each gradient that arrives.

    Args:
        optimizer: Name of the optimizer.
        bound: Staleness above which a gradient is dropped.
        is_rate_divided: Whether the learning rate is divided by the staleness.
        num_averaged: Number of held gradients in the sum that arrives, if they are averaged.
    """
    numpy_optimizer = scripted.Optimizer(optimizer)

    def apply(arrived: scripted.Arrived) -> Values | None:
        if arrived.staleness > bound:
            return None
        rate = RATES[optimizer] / (max(1, arrived.staleness) if is_rate_divided else 1)
        gradient = {name: value / num_averaged for name, value in arrived.gradient.items()}
        return numpy_optimizer.apply(arrived.params, gradient, arrived.clock, rate)

    return apply


@pytest.mark.parametrize(
    ("update", "options", "model", "optimizer", "form", "hold_steps"),
    [
        ("async", (), "dense", "momentum", {}, 1),
        ("async", (), "sparse", "adagrad", {}, 1),
        ("hogwild", (), "sparse", "sgd", {}, 1),
        ("drop_stale", ("staleness=1",), "dense", "momentum", {"bound": 1}, 1),
        ("drop_stale", ("staleness=1",), "sparse", "sgd", {"bound": 1}, 1),
        ("staleness_aware", (), "dense", "adam", {"is_rate_divided": True}, 1),
        ("staleness_aware", (), "sparse", "adagrad", {"is_rate_divided": True}, 1),
        ("accumulate", ("steps=2",), "sparse", "adagrad", {}, 2),
        ("accumulate", ("steps=3", "average=true"), "dense", "adam", {"num_averaged": 3}, 3),
    ],
)
def test_rules_that_apply_gradients_one_by_one(update, options, model, optimizer, form, hold_steps):
    schedule = schedule_of(update, options)
    entries = schedule.steps.worker.tolist()
    wanted = scripted.replay(
        entries, model, one_by_one(optimizer, **form), hold_steps=hold_steps, num_workers=NUM_WORKERS
    )
    assert {"bound"} <= form.keys() or max(schedule.steps.staleness) > 1
    assert (DROPPED in schedule.steps.update) == ("bound" in form)
    assert_replays(wanted.values, schedule, update, options, model, optimizer)


@pytest.mark.parametrize(
    ("options", "optimizer", "strength", "is_adaptive"),
    [(("lambda=20",), "sgd", 20.0, False), (("adaptive=true",), "momentum", 2.0, True)],
)
def test_delay_compensation(options, optimizer, strength, is_adaptive):
    schedule = schedule_of("dc_asgd", options)
    apply = delay_compensated(strength, optimizer, is_adaptive)
    wanted = scripted.replay(schedule.steps.worker.tolist(), "dense", apply, num_workers=NUM_WORKERS)
    assert_replays(wanted.values, schedule, "dc_asgd", options, "dense", optimizer)


@pytest.mark.parametrize(
    ("update", "options", "model", "optimizer", "required", "is_fresh_only", "waits"),
    [
        ("sync", ("replicas_to_aggregate=2",), "dense", "momentum", lambda clock: 2, True, True),
        ("sync", ("replicas_to_aggregate=2",), "sparse", "sgd", lambda clock: 2, True, True),
        ("sync_replicas", ("replicas_to_aggregate=2",), "sparse", "sgd", lambda clock: 2, True, True),
        ("backup", ("backup_workers=1",), "dense", "momentum", lambda clock: 2, True, True),
        ("backup", ("backup_workers=1",), "sparse", "adagrad", lambda clock: 2, True, True),
        ("softsync", ("splits=2",), "dense", "momentum", lambda clock: 2, False, False),
        ("softsync", ("splits=2",), "sparse", "sgd", lambda clock: 2, False, False),
        ("k_sync", ("k=2",), "sparse", "adagrad", lambda clock: 2, True, True),
        ("k_async", ("k=2",), "dense", "adam", lambda clock: 2, False, True),
        ("k_batch_sync", ("k=2",), "dense", "sgd", lambda clock: 2, True, False),
        ("k_batch_sync", ("k=2",), "sparse", "adagrad", lambda clock: 2, True, False),
        ("k_batch_async", ("k=2", "grow_every=3"), "sparse", "sgd", lambda clock: min(2 + clock // 3, 3), False, False),
    ],
)
def test_rules_that_average_groups(
    update: str,
    options: Sequence[str],
    model: str,
    optimizer: str,
    required: Callable[[int], int],
    is_fresh_only: bool,
    waits: bool,
) -> None:
    schedule = schedule_of(update, options)
    numpy_optimizer = scripted.Optimizer(optimizer)
    model_class, loss_and_gradient = scripted.MODELS[model]
    wanted = gradient_groups.group_sgd(
        loss_and_gradient,
        script.initial_values(model_class()),
        schedule.steps.worker.tolist(),
        lambda worker, step: script.worker_batch(worker, NUM_WORKERS, gradient_groups.BATCH_SIZE, step),
        num_workers=NUM_WORKERS,
        required=required,
        is_fresh_only=is_fresh_only,
        waits=waits,
        apply=lambda params, mean, clock: numpy_optimizer.apply(params, mean, clock, RATES[optimizer]),
    )
    assert (DROPPED in schedule.steps.update) == is_fresh_only
    assert is_fresh_only or max(schedule.steps.staleness) > 0
    assert_replays(wanted.values, schedule, update, options, model, optimizer, batch_size=gradient_groups.BATCH_SIZE)


@pytest.mark.parametrize(("n_push", "n_fetch", "optimizer"), [(2, 3, "adagrad"), (3, 2, "sgd"), (1, 1, "momentum")])
def test_downpour(n_push, n_fetch, optimizer):
    options = (f"n_push={n_push}", f"n_fetch={n_fetch}")
    schedule = schedule_of("downpour", options)
    entries = schedule.steps.worker.tolist()
    wanted = oracles_local.downpour(entries, n_push, n_fetch, LOCAL_RATE, optimizer, num_workers=NUM_WORKERS)
    assert_replays(wanted.values, schedule, "downpour", options, "dense", optimizer, LOCAL_RATE)


@pytest.mark.parametrize(
    ("options", "period", "alpha", "momentum"),
    [
        (("period=2",), 2, DEFAULT_BETA / NUM_WORKERS, 0.0),
        (("period=3", "alpha=0.3", "momentum=0.9"), 3, 0.3, 0.9),
    ],
)
def test_easgd(options, period, alpha, momentum):
    schedule = schedule_of("easgd", options)
    entries = schedule.steps.worker.tolist()
    wanted = oracles_local.easgd(entries, period, alpha, LOCAL_RATE, momentum, NUM_WORKERS)
    assert_replays(wanted.values, schedule, "easgd", options, "dense", "sgd", LOCAL_RATE)


@pytest.mark.parametrize(
    ("bound", "model", "optimizer"),
    [
        (0, "dense", "sgd"),
        (1, "dense", "sgd"),
        (1, "sparse", "sgd"),
        (2, "sparse", "adagrad"),
        (3, "dense", "momentum"),
    ],
)
def test_reads_from_a_cache(bound, model, optimizer):
    options = (f"staleness={bound}",)
    schedule = schedule_of("ssp_cache", options)
    entries = schedule.steps.worker.tolist()
    wanted = oracles_local.cached_reads(entries, model, bound, optimizer, RATES[optimizer], NUM_WORKERS)
    pulls = set(zip(entries, schedule.steps.version.tolist(), strict=True))
    assert (len(pulls) < len(entries)) == (bound > 0)
    assert_replays(wanted, schedule, "ssp_cache", options, model, optimizer)


def test_a_cache_with_bound_0_sums_the_gradients_that_a_barrier_averages():
    """n workers that pull at a barrier make n steps from one point, which is `sync` with n times the rate."""
    training = on_cluster.training_of(on_cluster.MODELS["dense"](), "sgd", 0.1)
    summed = on_cluster.replayed(training, schedule_of("ssp_cache", ("staleness=0",)), "ssp_cache", ("staleness=0",))
    training = dataclasses.replace(training, learning_rate=0.1 * NUM_WORKERS)
    averaged = on_cluster.replayed(training, on_cluster.schedule_of("sync", (), NUM_WORKERS, 2), "sync", ())
    for updates in (1, 2):
        after = {one["global_step"]: one for one in averaged}[updates]
        sums = {one["global_step"]: one for one in summed}[updates * NUM_WORKERS]
        for name in ("kernel", "bias"):
            np.testing.assert_allclose(sums[name], after[name], rtol=0, atol=1e-6)

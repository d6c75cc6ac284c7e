"""Update rule `easgd` against the paper's algorithms 1 and 2 in NumPy; its local phase and restarts."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.errors import OptionError
from ps_trainer.updates.base import RunPlan
from ps_trainer.updates.easgd import Easgd
from ps_trainer.updates.options import EasgdOptions
from tests.testing import oracles, oracles_local, replicas, script
from tests.testing.cluster import config_of
from tests.testing.components import Dense, global_batches, plain_loop
from tests.testing.repetitions import repetitions
from tests.updates.scripted import BATCH_SIZE, assert_same, play

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

LAYOUTS = ("packed", "per_variable")
RATE = 0.2
SCRIPT = (0, 1, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1)
NUM_WORKERS = 2


def options(**values):
    return tuple(f"{name}={value}" for name, value in values.items())


def play_easgd(cluster, layout="packed", **values):
    return play(
        cluster, SCRIPT, "dense", update="easgd", update_option=options(**values), layout=layout, learning_rate=RATE
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("momentum", [0.0, 0.9], ids=["easgd", "eamsgd"])
@pytest.mark.parametrize("period", [1, 3])
def test_equals_the_papers_algorithms(cluster, layout, period, momentum):
    got = play_easgd(cluster, layout, period=period, alpha=0.3, momentum=momentum)
    assert_same(got, oracles_local.easgd(SCRIPT, period, 0.3, RATE, momentum), num_ps=cluster.num_ps)
    assert got.values[-1]["global_step"] == {1: 7 + 7, 3: 3 + 3}[period]  # each worker's steps 0, 3, 6


def test_beta_is_alpha_times_the_number_of_workers(cluster):
    for values, alpha in (({"beta": 0.5}, 0.5 / 2), ({}, 0.9 / 2)):
        got = play_easgd(cluster, period=2, **values)
        assert_same(got, oracles_local.easgd(SCRIPT, 2, alpha, RATE), num_ps=cluster.num_ps)


@pytest.mark.parametrize("period", repetitions([1, 2], first=1))
def test_without_a_force_workers_train_alone_and_the_centre_stays(cluster, period):
    got = play_easgd(cluster, period=period, alpha=0.0)
    initial = script.initial_values(script.Linear())
    for values in got.values:
        for name, value in initial.items():
            np.testing.assert_array_equal(values[name], value)
    for worker in (0, 1):
        params, losses = initial, []
        for step in range(SCRIPT.count(worker)):
            loss, gradient = oracles.linear(params, script.worker_batch(worker, 2, BATCH_SIZE, step))
            losses.append(loss)
            params = oracles.sgd(params, gradient, RATE)
        np.testing.assert_allclose(got.losses[worker], losses, rtol=0, atol=1e-5)


def test_one_worker_without_a_force_computes_plain_sgd(one_worker):
    config = config_of(
        "Dense", "Rows", update="easgd", update_option=options(period=1, alpha=0.0), learning_rate=RATE, batch_size=8,
        max_steps=20,
    )  # fmt: skip
    (outcome,) = one_worker.run(config)
    losses, _ = plain_loop(Dense(), global_batches(8, 20), lambda: tf.train.GradientDescentOptimizer(RATE))
    np.testing.assert_allclose(outcome.losses, losses, rtol=0, atol=1e-6)


@pytest.mark.full  # the conformance suite trains; the scripts above show which steps exchange
def test_the_centre_follows_the_replicas(cluster):
    config = config_of(
        "Dense", "Rows", ["has_test=true"], update="easgd", update_option=options(period=4, momentum=0.5),
        learning_rate=0.05, batch_size=4, max_steps=120,
    )  # fmt: skip
    outcomes = cluster.run(config)
    first = np.mean([np.mean(outcome.losses[:10]) for outcome in outcomes])
    assert outcomes[0].worker.summary.metrics["loss"] < 0.9 * first
    for outcome in outcomes:
        kinds = [len(vector) for vector in outcome.progress.staleness_values]
        assert kinds == [cluster.num_ps if step % 4 == 0 else 0 for step in range(len(kinds))]


def test_counts_exchanges_only_of_steps_that_were_made(cluster):
    config = config_of(
        "Dense", "Rows", ["lengths=8,13"], update="easgd", update_option=options(period=4), batch_size=4,
        max_steps=None, num_epochs=100,
    )  # fmt: skip
    outcomes = cluster.run(config)
    # Worker 0 would exchange in its step 8, but its data end before.
    assert outcomes[0].worker.final_values["global_step"] == len(range(0, 8, 4)) + len(range(0, 13, 4))


def test_a_local_step_runs_no_op_on_a_ps_task(cluster):
    config = config_of(
        "Dense", "Rows", update="easgd", update_option=options(period=2, momentum=0.9), batch_size=4, max_steps=9
    )
    with replicas.one_worker_session(cluster, config) as worker:
        assert worker.jobs_of_phase(worker.phase_of_next_step()) == {"worker", "ps"}
        assert worker.jobs_of_phase(worker.phase_of_next_step()) == {"worker"}


# The conformance suite restarts this rule in the other layout.
@pytest.mark.full  # the conformance suite restarts this rule
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_restarted_run_equals_an_uninterrupted_one(one_worker, layout, tmp_path):
    def run(max_steps, logdir):
        config = config_of(
            "Dense", "Rows", ["num_examples=28"], update="easgd", update_option=options(period=3, momentum=0.9),
            layout=layout, learning_rate=0.05, batch_size=4, max_steps=max_steps, logdir=logdir,
        )  # fmt: skip
        (outcome,) = one_worker.run(config)
        return outcome

    # The third exchange is in step 6: seven steps, a whole pass over 28 examples; the sixth exchange is in step 15.
    whole, halves = run(6, None), [run(max_steps, str(tmp_path)) for max_steps in (3, 6)]
    assert [len(half.losses) for half in halves] == [7, 9]
    np.testing.assert_allclose(halves[0].losses + halves[1].losses, whole.losses, rtol=0, atol=1e-6)
    for name, value in whole.worker.final_values.items():
        np.testing.assert_allclose(halves[1].worker.final_values[name], value, rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("name", ["momentum", "adagrad", "adam"])
def test_rejects_an_optimizer_that_would_have_nothing_to_apply(name):
    message = f"--optimizer={name}: .*use --optimizer=sgd.*--update_option momentum=0.9"
    with pytest.raises(OptionError, match=message):
        Easgd(EasgdOptions()).check(RunPlan(2, None, name))
    Easgd(EasgdOptions()).check(RunPlan(2))


def test_rejects_a_beta_above_the_number_of_workers():
    with pytest.raises(OptionError, match="beta=2.5 exceeds num_workers=2"):
        Easgd(EasgdOptions(beta=2.5)).check(RunPlan(2))
    Easgd(EasgdOptions(beta=2.5)).check(RunPlan(3))


def test_alpha_and_beta_exclude_each_other():
    with pytest.raises(OptionError, match="alpha=0.1 and beta=0.9: give one of them"):
        EasgdOptions(alpha=0.1, beta=0.9)

"""Update rule `local_sgd` against its equation in NumPy; its local phase, ends and restarts."""

from __future__ import annotations

import logging
import shutil

import numpy as np
import pytest

from ps_trainer.checkpoints import worker_file
from tests.testing import oracles, oracles_local, replicas, script
from tests.testing.cluster import InProcessCluster, config_of
from tests.testing.repetitions import repetitions
from tests.updates.scripted import BATCH_SIZE, Played, assert_same

LAYOUTS = ("packed", "per_variable")
RATE = 0.2
ROUNDS = 5
NUM_WORKERS = 2  # three workers are in `test_averages.py` and in the conformance suite


def options(**values):
    return tuple(f"{name}={value}" for name, value in values.items())


def played_rounds(cluster, update="local_sgd", rounds=ROUNDS, **fields):
    """The steps of a run, with the values after the last round only."""
    config = config_of(
        "tests.testing.script:Linear", "Rows", update=update, learning_rate=RATE, batch_size=BATCH_SIZE,
        max_steps=rounds, **fields,
    )  # fmt: skip
    outcomes = cluster.run(config)
    recorders = [outcome.progress for outcome in outcomes]
    return Played(
        [outcomes[0].worker.final_values],
        [recorder.losses for recorder in recorders],
        [[vector.tolist() for vector in recorder.staleness_values] for recorder in recorders],
        [recorder.global_steps for recorder in recorders],
    )


def wanted_rounds(cluster, periods, optimizer="sgd"):
    wanted = oracles_local.averaging(periods, cluster.num_workers, RATE, optimizer)
    return wanted._replace(values=wanted.values[-1:])


@pytest.mark.full  # the next two tests have both periods, and Adam besides SGD
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("period", [1, 3])
def test_equals_its_equation(cluster, layout, period):
    got = played_rounds(cluster, layout=layout, update_option=options(period=period))
    assert_same(got, wanted_rounds(cluster, [period] * ROUNDS), num_ps=cluster.num_ps)


@pytest.mark.parametrize("optimizer", repetitions(["momentum", "adam"], first=1))
def test_each_worker_has_slots_of_its_own(cluster, optimizer):
    got = played_rounds(cluster, layout="per_variable", optimizer=optimizer, update_option=options(period=3))
    assert_same(got, wanted_rounds(cluster, [3] * ROUNDS, optimizer), num_ps=cluster.num_ps, atol=2e-6)


def test_averages_after_each_step_before_the_switch(cluster):
    got = played_rounds(cluster, update_option=options(period=3, switch_step=2))
    assert_same(got, wanted_rounds(cluster, [1, 1, 3, 3, 3]), num_ps=cluster.num_ps)


def test_with_a_period_of_one_it_is_sync():
    """The NumPy forms of both rules have the same numbers; other tests compare each form with a cluster."""
    local = oracles_local.averaging([1] * 20, NUM_WORKERS, RATE, "sgd")
    sync = oracles.sync_sgd(
        oracles.linear, script.initial_values(script.Linear()), NUM_WORKERS, 20,
        lambda worker, step: script.worker_batch(worker, NUM_WORKERS, BATCH_SIZE, step), RATE,
    )  # fmt: skip
    assert local.global_steps == [list(range(1, 21))] * NUM_WORKERS
    np.testing.assert_allclose(local.losses, sync.losses, rtol=0, atol=1e-5)
    for name, value in sync.values[-1].items():
        np.testing.assert_allclose(local.values[-1][name], value, rtol=0, atol=1e-6, err_msg=name)


# In the conformance suite the chief is the first worker without data.
@pytest.mark.parametrize("first", repetitions([0, 1], first=1))
def test_continues_without_a_worker_that_has_no_more_data(cluster, first):
    lengths = [14] * cluster.num_workers
    lengths[first] = 8
    config = config_of(
        "Dense", "Rows", [f"lengths={','.join(map(str, lengths))}"], update="local_sgd",
        update_option=options(period=3), batch_size=4, max_steps=None, num_epochs=100,
    )  # fmt: skip
    outcomes = cluster.run(config)
    assert [len(outcome.losses) for outcome in outcomes] == lengths
    assert outcomes[0].worker.final_values["global_step"] == 14 // 3
    summaries = outcomes[0].worker.summary.workers
    assert [summaries[index].gradients_used for index in range(cluster.num_workers)] == [n // 3 for n in lengths]
    assert [summaries[index].gradients_dropped for index in range(cluster.num_workers)] == [0] * len(lengths)


def test_takes_compressed_differences():
    config = config_of(
        "Dense", "Rows", ["has_test=true"], update="local_sgd", update_option=options(period=4), learning_rate=0.05,
        batch_size=4, max_steps=50, gradient_transform=("error_feedback", "top_k:ratio=0.25"),
    )  # fmt: skip
    with InProcessCluster(1, NUM_WORKERS) as cluster:
        outcomes = cluster.run(config)
    first = np.mean([np.mean(outcome.losses[:4]) for outcome in outcomes])
    assert outcomes[0].worker.summary.metrics["loss"] < 0.9 * first


def test_a_local_step_runs_no_op_on_a_ps_task(one_worker):
    config = config_of(
        "Dense",
        "Rows",
        update="local_sgd",
        update_option=options(period=2),
        optimizer="adam",
        batch_size=4,
        max_steps=9,
    )
    with replicas.one_worker_session(one_worker, config) as worker:
        assert worker.jobs_of_phase(worker.phase_of_next_step()) == {"worker"}
        assert worker.jobs_of_phase(worker.phase_of_next_step()) == {"worker", "ps"}


def lone(one_worker, max_steps, logdir, update="local_sgd", **fields):
    fields = {"update_option": options(period=2), "optimizer": "adam"} | fields
    config = config_of(
        "Dense", "Rows", ["num_examples=24"], update=update, learning_rate=0.05, batch_size=4, max_steps=max_steps,
        logdir=logdir, **fields,
    )  # fmt: skip
    (outcome,) = one_worker.run(config)
    return outcome


@pytest.mark.full  # the conformance suite restarts this rule in one of the layouts
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_restarted_run_equals_an_uninterrupted_one(one_worker, layout, tmp_path):
    whole = lone(one_worker, 6, None, layout=layout)
    # Three rounds are six steps: a whole pass over 24 examples.
    halves = [lone(one_worker, max_steps, str(tmp_path), layout=layout) for max_steps in (3, 6)]
    np.testing.assert_allclose(halves[0].losses + halves[1].losses, whole.losses, rtol=0, atol=1e-6)
    for name, value in whole.worker.final_values.items():
        np.testing.assert_allclose(halves[1].worker.final_values[name], value, rtol=0, atol=1e-6, err_msg=name)


def test_a_replica_of_an_older_round_is_not_used(one_worker, tmp_path, caplog):
    lone(one_worker, 3, str(tmp_path), optimizer="sgd")
    path = worker_file.path_of(tmp_path / "checkpoints", 0, 3)
    saved = worker_file.read(path)
    assert saved.values["fetched/clock_0"] == 3
    changed = {name: value + 1 for name, value in saved.values.items() if name.startswith("replica/")}
    older = {**saved.values, **changed, "fetched/clock_0": np.int64(2)}
    whole = lone(one_worker, 6, None, optimizer="sgd")
    for pushes, message in (
        (3, "the saved replica belongs to round 2, but this is round 3"),
        (2, "worker-0-2.npz: after push 2"),
    ):
        folder = tmp_path / str(pushes)
        shutil.copytree(tmp_path / "checkpoints", folder / "checkpoints")
        (folder / "checkpoints" / path.name).unlink()
        worker_file.write(
            worker_file.path_of(folder / "checkpoints", 0, pushes), saved._replace(values=older, pushes=pushes)
        )
        with caplog.at_level(logging.INFO, "absl"):
            second = lone(one_worker, 6, str(folder), optimizer="sgd")
        np.testing.assert_allclose(second.losses, whole.losses[6:], rtol=0, atol=1e-6)
        assert message in caplog.text

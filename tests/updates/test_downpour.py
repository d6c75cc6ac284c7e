"""Update rule `downpour` against its pseudocode in NumPy; its local phase, warm start and restarts."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.errors import Interrupted, OptionError
from ps_trainer.optimizers.adam import Adam, AdamOptions
from ps_trainer.optimizers.stock import Momentum, Sgd
from ps_trainer.updates.base import RunPlan
from ps_trainer.updates.downpour import Downpour
from ps_trainer.updates.options import DownpourOptions
from tests.testing import oracles_local, replicas
from tests.testing.cluster import config_of, wait_until
from tests.testing.repetitions import repetitions
from tests.updates.scripted import assert_same, play

LAYOUTS = ("packed", "per_variable")
RATE = 0.2
# Worker 1 makes most of its steps in a row, so that its pushes find parameters that the other has moved.
SCRIPT = (0, 1, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1)
NUM_WORKERS = 2


def options(**values):
    return tuple(f"{name}={value}" for name, value in values.items())


# Two of the same period are in the two tests below, and the conformance suite has the other layout.
@pytest.mark.parametrize("layout", repetitions(LAYOUTS))
@pytest.mark.parametrize(("n_push", "n_fetch"), repetitions([(2, 3), (1, 1), (2, 2), (3, 1), (1, 2)], every=3))
def test_equals_the_papers_pseudocode(cluster, layout, n_push, n_fetch):
    got = play(
        cluster, SCRIPT, "dense", update="downpour", update_option=options(n_push=n_push, n_fetch=n_fetch),
        layout=layout, learning_rate=RATE,
    )  # fmt: skip
    wanted = oracles_local.downpour(SCRIPT, n_push, n_fetch, RATE)
    assert_same(got, wanted, num_ps=cluster.num_ps)
    pushes = sum(SCRIPT.count(worker) // n_push for worker in (0, 1))
    assert got.values[-1]["global_step"] == pushes >= 3


@pytest.mark.parametrize("layout", repetitions(LAYOUTS, first=1))
def test_adagrad_on_the_ps_gets_the_sum(cluster, layout):
    got = play(
        cluster, SCRIPT, "dense", update="downpour", update_option=options(n_push=2, n_fetch=2), layout=layout,
        optimizer="adagrad", learning_rate=RATE,
    )  # fmt: skip
    assert_same(got, oracles_local.downpour(SCRIPT, 2, 2, RATE, "adagrad"), num_ps=cluster.num_ps)


def test_local_steps_follow_the_schedule_by_the_last_known_global_step(cluster):
    got = play(
        cluster, SCRIPT, "dense", update="downpour", update_option=options(n_push=2, n_fetch=4), learning_rate=RATE,
        schedule="piecewise", schedule_option=("boundaries=1,3", "factors=1.0,0.5,0.25"),
    )  # fmt: skip

    def factor(step):
        return 1.0 if step <= 1 else 0.5 if step <= 3 else 0.25

    assert_same(got, oracles_local.downpour(SCRIPT, 2, 4, RATE, schedule=factor), num_ps=cluster.num_ps)


def test_equals_async_when_it_pushes_and_fetches_each_step(cluster):
    ways = [
        play(cluster, SCRIPT, "dense", update=update, optimizer="momentum", learning_rate=RATE)
        for update in ("async", "downpour")
    ]
    assert ways[0].losses == ways[1].losses
    assert_same(ways[1], ways[0]._replace(staleness=ways[1].staleness), num_ps=1, atol=0)
    assert ways[0].staleness == ways[1].staleness


def test_a_local_step_runs_no_op_on_a_ps_task(cluster):
    config = config_of(
        "Dense", "Rows", update="downpour", update_option=options(n_push=4, n_fetch=2), batch_size=4, max_steps=9
    )
    with replicas.one_worker_session(cluster, config) as worker:
        assert worker.jobs_of_phase(worker.phase_of_next_step()) == {"worker"}  # step 1 is local
        assert worker.jobs_of_phase(worker.phase_of_next_step()) == {"worker", "ps"}  # step 2 fetches


# A worker saves the same in both layouts.
@pytest.mark.parametrize("layout", repetitions(LAYOUTS))
def test_a_restarted_run_equals_an_uninterrupted_one(one_worker, layout, tmp_path):
    def run(max_steps, logdir):
        config = config_of(
            "Dense", "Rows", ["num_examples=24"], update="downpour", update_option=options(n_push=2, n_fetch=8),
            layout=layout, learning_rate=RATE, batch_size=4, max_steps=max_steps, logdir=logdir,
        )  # fmt: skip
        (outcome,) = one_worker.run(config)
        return outcome

    whole = run(6, None)
    # Three pushes are six steps: a whole pass over 24 examples that ends between two fetches.
    halves = [run(max_steps, str(tmp_path)) for max_steps in (3, 6)]
    assert [len(half.losses) for half in halves] == [6, 6]
    np.testing.assert_allclose(halves[0].losses + halves[1].losses, whole.losses, rtol=0, atol=1e-6)
    for name, value in whole.worker.final_values.items():
        np.testing.assert_allclose(halves[1].worker.final_values[name], value, rtol=0, atol=1e-6, err_msg=name)
    # The first fetch is in step 8: until then the staleness of each push is larger by one.
    assert [pushed_staleness(half) for half in halves] == [[0, 1, 2], [3, 0, 1]]
    assert pushed_staleness(whole) == [0, 1, 2, 3, 0, 1]


def pushed_staleness(outcome):
    return [int(staleness[0]) for staleness in outcome.progress.staleness_values if staleness.size]


def test_other_workers_begin_after_the_chiefs_warm_start(cluster):
    config = config_of(
        "Dense", "Rows", update="downpour", update_option=options(n_push=2, n_fetch=2, warm_start_steps=20),
        batch_size=4, max_steps=200,
    )  # fmt: skip
    outcomes = cluster.run(config)
    assert outcomes[0].progress.global_steps[:40:2] == [0, *range(1, 20)]  # no other worker pushes
    assert len(outcomes[1].losses) > 0
    assert min(outcomes[1].progress.global_steps) >= 20


def test_a_chief_that_ends_in_its_warm_start_lets_the_others_begin(cluster):
    config = config_of(
        "Dense", "Rows", ["lengths=6,9"], update="downpour", update_option=options(warm_start_steps=1000),
        batch_size=4, max_steps=None, num_epochs=100,
    )  # fmt: skip
    outcomes = cluster.run(config)
    assert [outcome.progress.global_steps for outcome in outcomes] == [list(range(1, 7)), list(range(7, 16))]


def test_a_warm_start_of_the_whole_run_leaves_no_steps_to_the_others(cluster):
    config = config_of(
        "Dense", "Rows", update="downpour", update_option=options(warm_start_steps=50), batch_size=4, max_steps=20
    )
    calls = [cluster.start(config, index) for index in (0, 1)]
    assert [cluster.finish_call(call).result for call in calls] == [0, 0]
    assert calls[0].made[-1].global_steps == list(range(1, 21))
    assert calls[1].made[-1].global_steps == []


def test_a_waiting_worker_obeys_a_request_to_stop(cluster):
    config = config_of(
        "Dense", "Rows", update="downpour", update_option=options(warm_start_steps=10**6), batch_size=4, max_steps=10**6
    )
    calls = [cluster.start(config, index) for index in (0, 1)]
    wait_until(lambda: len(calls[0].made) == 2 and len(calls[0].made[-1].losses) > 10)
    assert calls[1].made[-1].global_steps == []
    for call in reversed(calls):
        call.stop.request(Interrupted(15))
        assert isinstance(cluster.finish_call(call, 10.0).error, Interrupted)


@pytest.mark.parametrize(
    ("optimizer", "name"), [(Momentum(Momentum.Options()), "momentum"), (Adam(AdamOptions()), "adam")]
)
def test_rejects_a_velocity_on_the_ps_with_a_period(optimizer, name):
    plan = RunPlan(2, optimizer, name)
    for period in ({"n_push": 2}, {"n_fetch": 2}):
        with pytest.raises(OptionError, match=f"--optimizer={name} .momentum 0.9.*use --optimizer=sgd or adagrad"):
            Downpour(DownpourOptions(**period)).check(plan)
    Downpour(DownpourOptions()).check(plan)
    Downpour(DownpourOptions(n_push=2)).check(RunPlan(2, Sgd(Sgd.Options()), "sgd"))

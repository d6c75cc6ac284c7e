"""`accumulate` against its equation: held gradients, pushed sums and averages, around async and sync."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer import component_tables
from ps_trainer.errors import OptionError
from ps_trainer.updates.accumulate import Accumulate
from ps_trainer.updates.base import RunPlan
from ps_trainer.updates.options import AccumulateOptions
from tests.testing.cluster import config_of
from tests.testing.components import Dense, Embedded, global_batches, plain_loop
from tests.testing.repetitions import repetitions
from tests.updates import scripted

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

# Each worker pushes in its third and sixth step; worker 1 holds one more gradient at the end, which is lost.
SCRIPT = [0, 1, 1, 0, 1, 0, 1, 0, 1, 0, 0, 1, 1]
STALENESS = [[[], [], [1], [], [], [0]], [[], [], [0], [], [], [2], []]]
GLOBAL_STEPS = [[0, 0, 2, 2, 2, 3], [0, 0, 1, 1, 1, 4, 4]]
NUM_WORKERS = 2


@pytest.mark.parametrize(
    ("model", "optimizer", "learning_rate", "layout", "average"),
    repetitions(
        [
            ("dense", "adam", 0.05, "packed", False),
            ("dense", "sgd", 0.3, "packed", False),
            ("dense", "sgd", 0.3, "per_variable", True),
            ("sparse", "adagrad", 0.2, "per_variable", True),
            ("sparse", "adagrad", 0.2, "packed", False),
        ],
        every=3,
    ),
)
def test_sums_of_three_gradients_are_pushed(cluster, model, optimizer, learning_rate, layout, average):
    numpy_optimizer = scripted.Optimizer(optimizer)

    def apply(arrived):
        gradient = {name: value / 3 if average else value for name, value in arrived.gradient.items()}
        return numpy_optimizer.apply(arrived.params, gradient, arrived.clock, learning_rate)

    played = scripted.play(
        cluster, SCRIPT, model, update="accumulate", update_option=("steps=3", f"average={average}"),
        optimizer=optimizer, learning_rate=learning_rate, layout=layout,
    )  # fmt: skip
    wanted = scripted.replay(SCRIPT, model, apply, hold_steps=3)
    assert (wanted.staleness, wanted.global_steps) == (STALENESS, GLOBAL_STEPS)
    scripted.assert_same(played, wanted, num_ps=cluster.num_ps)


# `Embedded` has dense parts, and the conformance suite has the other layout.
@pytest.mark.parametrize("layout", repetitions(["packed", "per_variable"]))
@pytest.mark.parametrize("model", repetitions([Dense, Embedded], first=1))
def test_averages_in_sync_equal_one_process_with_all_examples_of_all_held_steps(cluster, model, layout):
    config = config_of(
        model.__name__, "Rows", update="accumulate", update_option=("steps=3", "rule=sync", "average=true"),
        layout=layout, optimizer="adagrad", learning_rate=0.2, batch_size=4, max_steps=4,
    )  # fmt: skip
    outcomes = cluster.run(config)
    _, values = plain_loop(model(), big_batches(4, 4, 3), lambda: tf.train.AdagradOptimizer(0.2))
    for name, value in values.items():
        np.testing.assert_allclose(outcomes[0].worker.final_values[name], value, rtol=0, atol=1e-5, err_msg=name)
    for outcome in outcomes:
        assert outcome.progress.global_steps == [0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4]
    workers = outcomes[0].worker.summary.workers.values()
    assert [worker.gradients_used for worker in workers] == [4, 4]
    assert [worker.gradients_dropped for worker in workers] == [0, 0]


def big_batches(batch_size, num_updates, steps):
    """For each update one batch with the examples of both workers' held steps."""
    batches = global_batches(batch_size, num_updates * steps, 2)
    groups = [batches[i : i + steps] for i in range(0, len(batches), steps)]
    return [{name: np.concatenate([batch[name] for batch in group]) for name in group[0]} for group in groups]


def test_one_step_is_the_wrapped_rule(cluster):
    script = [0, 1, 1, 0]
    fields = {"learning_rate": 0.5, "optimizer": "sgd"}
    plain = scripted.play(cluster, script, "sparse", update="async", **fields)
    held = scripted.play(cluster, script, "sparse", update="accumulate", update_option=("steps=1",), **fields)
    assert held.staleness == plain.staleness
    assert held.global_steps == plain.global_steps
    for one, other in zip(held.values, plain.values, strict=True):
        for name, value in other.items():
            np.testing.assert_array_equal(one[name], value, err_msg=name)


def test_gradients_held_at_the_end_of_the_data_are_lost(cluster):
    config = config_of(
        "Dense", "Rows", ["lengths=7,4"], update="accumulate", update_option=("steps=3",), batch_size=4,
        max_steps=None, num_epochs=100,
    )  # fmt: skip
    outcomes = cluster.run(config)
    assert [outcome.code for outcome in outcomes] == [0, 0]
    assert outcomes[0].worker.final_values["global_step"] == 7 // 3 + 4 // 3
    assert [worker.pushes for worker in outcomes[0].worker.summary.workers.values()] == [7 // 3, 4 // 3]


@pytest.mark.parametrize(
    ("strings", "message"),
    [
        (
            ["replicas_to_aggregate=2"],
            "replicas_to_aggregate=2 is only for rule=sync, not for rule=async; leave it out",
        ),
    ],
)
def test_contradicting_options_are_rejected(strings, message):
    with pytest.raises(OptionError, match=message):
        component_tables.UPDATES.create("accumulate", strings)


def test_the_wrapped_rules_own_limits_hold():
    rule = Accumulate(AccumulateOptions(rule="sync", replicas_to_aggregate=3))
    assert rule.min_workers(4) == 3
    with pytest.raises(OptionError, match="replicas_to_aggregate=3 exceeds num_workers=2"):
        rule.check(RunPlan(2))
    assert Accumulate(AccumulateOptions(rule="sync")).min_workers(4) == 4
    assert Accumulate(AccumulateOptions()).min_workers(4) == 1

"""`staleness_aware` against its equation, gradient by gradient."""

from __future__ import annotations

import numpy as np
import pytest

from tests.testing import oracles
from tests.testing.cluster import config_of
from tests.testing.repetitions import repetitions
from tests.updates import scripted

# One of eight gradients is applied at a third of the rate; staleness 0 and 1 leave the rate as it is.
SCRIPT = [0, 1, 1, 1, 0, 1, 0, 0]
STALENESS = [[0, 3, 1, 0], [1, 0, 0, 1]]
LEARNING_RATE = 0.5
NUM_WORKERS = 2


# SGD on packed parameters is in the test of the schedule below.
@pytest.mark.parametrize("layout", repetitions(["packed", "per_variable"], first=1))
@pytest.mark.parametrize(
    ("model", "optimizer", "learning_rate"),
    repetitions(
        [
            ("dense", "sgd", 0.5),
            ("dense", "adam", 0.05),
            ("dense", "momentum", 0.2),
            ("sparse", "sgd", 0.5),
            ("sparse", "adagrad", 0.2),
        ],
        every=3,
        first=1,
    ),
)
def test_each_gradients_learning_rate_is_divided_by_its_staleness(cluster, model, optimizer, learning_rate, layout):
    numpy_optimizer = scripted.Optimizer(optimizer)

    def apply(arrived):
        rate = learning_rate / max(1, arrived.staleness)
        return numpy_optimizer.apply(arrived.params, arrived.gradient, arrived.clock, rate)

    played = scripted.play(
        cluster, SCRIPT, model, update="staleness_aware", optimizer=optimizer, learning_rate=learning_rate,
        layout=layout,
    )  # fmt: skip
    wanted = scripted.replay(SCRIPT, model, apply)
    assert wanted.staleness == [[[s] for s in worker] for worker in STALENESS]
    scripted.assert_same(played, wanted, num_ps=cluster.num_ps)


def test_the_schedule_and_the_staleness_multiply(cluster):
    def apply(arrived):
        rate = LEARNING_RATE * 0.5 ** (arrived.clock // 2) / max(1, arrived.staleness)
        return oracles.sgd(arrived.params, arrived.gradient, rate)

    played = scripted.play(
        cluster, SCRIPT, "dense", update="staleness_aware", learning_rate=LEARNING_RATE, schedule="exponential",
        schedule_option=("decay_steps=2", "decay_rate=0.5", "staircase=true"),
    )  # fmt: skip
    scripted.assert_same(played, scripted.replay(SCRIPT, "dense", apply), num_ps=cluster.num_ps)


@pytest.mark.full  # the conformance suite counts the steps of free workers
def test_two_free_workers_report_the_staleness_that_divided_their_updates(cluster):
    config = config_of("Dense", "Rows", update="staleness_aware", batch_size=4, max_steps=100)
    outcomes = cluster.run(config)
    steps = sorted(step for outcome in outcomes for step in outcome.progress.global_steps)
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) - 100 <= 1  # the other worker's step in flight
    assert min(np.min(vector) for outcome in outcomes for vector in outcome.progress.staleness_values) >= 0

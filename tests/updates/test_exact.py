"""Pulls of the rules that decide by staleness: while others push, parameters and clock belong together."""

from __future__ import annotations

import numpy as np
import pytest

from tests.testing.cluster import InProcessCluster, config_of

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from models import layers

NUM_VARIABLES, SIZE = 10, 1000
RULES = {
    "drop_stale": ("staleness=1000",),
    "dc_asgd": ("lambda=0",),
}


class Falling:
    """Every gradient is 1 everywhere, so with a learning rate of 1 each number is minus the count of its updates."""

    def build(self, batch, training):
        variables = [
            tf.get_variable(f"v{index}", [SIZE], initializer=tf.zeros_initializer()) for index in range(NUM_VARIABLES)
        ]
        loss = tf.add_n([tf.reduce_sum(variable) for variable in variables])
        return layers.ModelOutput(loss, batch["x"], {})


@pytest.fixture(scope="module")
def cluster():
    with InProcessCluster(1, 4) as cluster:
        yield cluster


@pytest.mark.parametrize("update", RULES)
def test_pulled_parameters_have_exactly_the_updates_that_their_clock_counts(cluster, update):
    config = config_of(
        f"{__name__}:Falling", "Rows", layout="per_variable", update=update, update_option=RULES[update],
        learning_rate=1.0, batch_size=1, max_steps=150,
    )  # fmt: skip
    for outcome in cluster.run(config):
        progress = outcome.progress
        numbers = zip(progress.global_steps, progress.staleness_values, strict=True)
        pulled_at = [step - 1 - staleness[0] for step, staleness in numbers]
        wanted = [-float(clock * NUM_VARIABLES * SIZE) for clock in pulled_at]
        # A worker's first step reads its parameters without a section.
        np.testing.assert_array_equal(progress.losses[1:], wanted[1:])

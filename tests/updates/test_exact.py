"""What rules that decide by staleness pull while others push: parameters that belong to their clock."""

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
    """Every gradient is 1 everywhere: with a learning rate of 1 each number is minus the updates it has had."""

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
def test_what_is_pulled_has_just_the_updates_that_its_clock_says(cluster, update):
    config = config_of(
        f"{__name__}:Falling", "Rows", layout="per_variable", update=update, update_option=RULES[update],
        learning_rate=1.0, batch_size=1, max_steps=600,
    )  # fmt: skip
    for outcome in cluster.run(config):
        progress = outcome.progress
        numbers = zip(progress.global_steps, progress.staleness_values, strict=True)
        pulled_at = [step - 1 - staleness[0] for step, staleness in numbers]
        wanted = [-float(clock * NUM_VARIABLES * SIZE) for clock in pulled_at]
        # What a worker's first step computes with is read without a section.
        np.testing.assert_array_equal(progress.losses[1:], wanted[1:])

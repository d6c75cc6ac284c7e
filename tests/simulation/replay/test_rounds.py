"""Runs whose result does not depend on the order of arrivals, compared with a real cluster without a script."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from models import layers
from ps_trainer import component_tables
from ps_trainer.simulation.replay.replay import Replay
from ps_trainer.simulation.replay.training_setup import TrainingSetup
from ps_trainer.simulation.rules.schedule_table import RULES as SCHEDULES
from ps_trainer.training import components as components_lib
from ps_trainer.training import evaluation
from tests.simulation.replay import on_cluster
from tests.testing.cluster import InProcessCluster
from tests.testing.cluster import config_of as rows_config_of
from tests.testing.repetitions import representatives

NUM_WORKERS = 2
RULES = [
    ("sync", (), "momentum"),
    ("sync_replicas", (), "adam"),
    ("backup", ("backup_workers=0",), "adagrad"),
    ("accumulate", ("steps=3", "rule=sync"), "momentum"),
    ("all_reduce", (), "adam"),
    ("model_averaging", ("period=3",), "momentum"),
    ("local_sgd", ("period=4", "switch_step=2"), "adam"),
]


class WithMovingMean:
    """Softmax regression on centred inputs, whose moving mean the model keeps itself."""

    def build(self, batch: dict[str, tf.Tensor], training: bool) -> layers.ModelOutput:
        mean = tf.get_variable("mean", [6], initializer=tf.zeros_initializer(), trainable=False)
        if training:
            new_mean = 0.9 * mean.read_value() + 0.1 * tf.reduce_mean(batch["x"], axis=0)
            tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, mean.assign(new_mean, read_value=False))
        return layers.classifier_output(layers.dense(batch["x"] - 0.5, 4, "logits"), batch["label"])


@pytest.fixture(scope="module")
def cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster(1, NUM_WORKERS) as cluster:  # the number of ps tasks changes no sum
        yield cluster


@pytest.fixture(scope="module")
def one_worker() -> Iterator[InProcessCluster]:
    with InProcessCluster(1, 1) as cluster:
        yield cluster


def training_of(components: Any, config: Any) -> TrainingSetup:
    return TrainingSetup(
        model=components.model, dataset=components.dataset, optimizer=components.optimizer,
        rate_schedule=components.schedule, learning_rate=config.learning_rate, batch_size=config.batch_size,
        seed=config.seed,
    )  # fmt: skip


def assert_same(cluster: InProcessCluster, config: Any, *, atol: float = 1e-6) -> None:
    """Compares the losses of each worker's steps, the final parameters, and their test metrics."""
    outcomes = cluster.run(config)
    components = components_lib.load(config, cluster.num_workers)
    schedule = on_cluster.schedule_of(config.update, config.update_option, cluster.num_workers, config.max_steps)
    losses: list[list[float]] = [[] for _ in range(cluster.num_workers)]
    with Replay(training_of(components, config), schedule, config.update, config.update_option) as replay:
        for step in replay.steps():
            losses[schedule.steps.worker[step.step_index]].append(step.loss)
        values, metrics = replay.values(), replay.evaluate().metrics
    for worker, outcome in enumerate(outcomes):
        np.testing.assert_allclose(losses[worker], outcome.losses, rtol=0, atol=10 * atol)
    final = outcomes[0].worker.final_values
    for name, value in values.items():
        np.testing.assert_allclose(value, final[name], rtol=0, atol=atol, err_msg=name)
    for name, value in evaluation.evaluate(components, values).items():
        assert metrics[name] == pytest.approx(value, abs=atol)


def config_of(update: str, options: tuple[str, ...], optimizer: str, **fields: Any) -> Any:
    """A run on shuffled data, with a learning rate that changes at each update."""
    config = rows_config_of("Dense", "Rows", max_steps=8, update=update, update_option=options, optimizer=optimizer)
    replaced = {
        "model": "mlp",
        "model_option": ("hidden=12",),
        "dataset": "synthetic",
        "dataset_option": ("num_train=60", "num_test=50"),
        "batch_size": 4,
        "learning_rate": 0.02,
        "schedule": "exponential",
        "schedule_option": ("decay_steps=2", "decay_rate=0.7"),
        "seed": 3,
    } | fields
    return type(config)(**config.to_json() | replaced)


# `backup` with all workers, `sync_replicas` and `all_reduce` are `sync`, as their tests prove; `accumulate` averages
# its sums as `sync` does. Local steps differ.
CHOSEN = representatives(RULES, [rule for rule in RULES if rule[0] in ("accumulate", "model_averaging")])


@pytest.mark.parametrize(("update", "options", "optimizer"), CHOSEN, ids=[rule for rule, *_ in CHOSEN])
def test_rounds_of_all_workers(cluster, update, options, optimizer):
    assert_same(cluster, config_of(update, options, optimizer))


def test_one_asynchronous_worker(one_worker):
    assert_same(one_worker, config_of("async", (), "adam", max_steps=30))


def test_variables_that_the_model_assigns_itself(one_worker):
    config = config_of(
        "async", (), "momentum", model=f"{__name__}:WithMovingMean", model_option=(),
        dataset="tests.testing.components:Rows", dataset_option=("has_test=true",),
    )  # fmt: skip
    assert_same(one_worker, config)


def test_every_rule_of_the_cluster_that_has_a_schedule_is_replayed():
    from ps_trainer.simulation.replay.arithmetic_table import RULES as REPLAYED

    assert set(REPLAYED) == set(SCHEDULES)
    assert set(component_tables.UPDATES.names()) - set(REPLAYED) == {"hybrid"}

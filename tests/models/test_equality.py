"""The models compute the same results on a cluster as in one process, including moving averages."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer import component_tables
from ps_trainer.data.pipeline.shard import Shard
from tests.testing.cluster import InProcessCluster, config_of
from tests.testing.components import VOCAB_SIZE, Pictures, RowOptions, Rows, Sounds, Texts, plain_loop
from tests.testing.repetitions import representatives

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

BATCH_SIZE, NUM_STEPS = 8, 6
# Model -> dataset of `tests.testing.components`, options.
MODELS = {
    "models.lenet:LeNet": (Pictures, ("num_classes=4",)),
    "models.vgg:Vgg": (Pictures, ("num_classes=4", "width=0.0625", "hidden=8", "dropout=0")),
    "models.resnet:ResNet": (Pictures, ("num_classes=4", "depth=8")),
    "models.speech:Speech": (Sounds, ("num_classes=4", "units=3,2")),
    "models.lstm_lm:LstmLm": (Rows, (f"vocab_size={VOCAB_SIZE}", "dim=3", "units=4", "num_layers=2")),
    "models.bert:Bert": (Texts, ("vocab_size=9", "dim=8", "hidden=8", "num_classes=4")),
    "models.gpt:Gpt": (
        Texts,
        ("vocab_size=9", "dim=8", "hidden=8", "num_layers=1", "max_ngram=2", "num_buckets=11", "ngram_dropout=0"),
    ),
    "models.transformer:Transformer": (Texts, ("source_vocab_size=9", "target_vocab_size=9", "dim=8", "hidden=8")),
}
# One model with a recurrence, and one with attention and a table. The one with moving averages has two workers below.
CHOSEN = representatives(MODELS, ["models.lstm_lm:LstmLm", "models.gpt:Gpt"])


@pytest.fixture(scope="module")
def cluster():
    with InProcessCluster(1, 1) as cluster:
        yield cluster


class SamePictures(Pictures):
    """`Pictures`, all of which every worker reads."""

    def train(self, *, shard, **kwargs):
        return super().train(shard=Shard(0, 1), **kwargs)


@pytest.mark.parametrize("model", CHOSEN)
@pytest.mark.parametrize("layout", ["packed", "per_variable"])
def test_one_worker_equals_one_process(cluster, model, layout):
    dataset, options = MODELS[model]
    config = config_of(
        model, dataset.__name__, model_option=options, layout=layout, optimizer="momentum",
        learning_rate=0.02, batch_size=BATCH_SIZE, max_steps=NUM_STEPS, seed=3,
    )  # fmt: skip
    outcomes = cluster.run(config)
    _assert_as_in_one_process(outcomes, model, options, dataset)


def test_two_workers_with_the_same_batches_equal_one_process_that_moves_its_averages_twice():
    model = "models.resnet:ResNet"
    _, options = MODELS[model]
    config = config_of(
        model, f"{__name__}:SamePictures", model_option=options, update="sync", optimizer="momentum",
        learning_rate=0.02, batch_size=BATCH_SIZE, max_steps=NUM_STEPS, seed=3,
    )  # fmt: skip
    with InProcessCluster(1, 2) as cluster:
        outcomes = cluster.run(config)
    _assert_as_in_one_process(outcomes, model, options, SamePictures)


def _assert_as_in_one_process(outcomes, model, options, dataset):
    arrays = dataset(RowOptions()).arrays
    batches = [
        {name: array[step * BATCH_SIZE : (step + 1) * BATCH_SIZE] for name, array in arrays.items()}
        for step in range(NUM_STEPS)
    ]
    alone = _AndItsAverages(component_tables.MODELS.create(model, options), num_times=len(outcomes))
    losses, values = plain_loop(alone, batches, lambda: tf.train.MomentumOptimizer(0.02, 0.9), seed=3)
    final_values = outcomes[0].worker.final_values
    assert set(final_values) == set(values) | {"global_step"}
    for outcome in outcomes:
        np.testing.assert_allclose(outcome.losses, losses, rtol=0, atol=1e-5)
    for name, value in values.items():
        np.testing.assert_allclose(final_values[name], value, rtol=0, atol=1e-5, err_msg=name)


class _AndItsAverages:
    """A model that is built `num_times`; its loss waits for its UPDATE_OPS, which a plain loop does not run."""

    def __init__(self, model, num_times):
        self._model = model
        self._num_times = num_times

    def build(self, batch, training):
        outputs = []
        for _ in range(self._num_times):
            with tf.variable_scope(tf.get_variable_scope(), reuse=tf.AUTO_REUSE):
                outputs.append(self._model.build(batch, training=training))
        with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
            return outputs[0]._replace(loss=tf.add_n([output.loss for output in outputs]) / self._num_times)

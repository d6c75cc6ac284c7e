"""Factorization machine and DeepFM equal NumPy, and learn what only pairs of features tell."""

from __future__ import annotations

import numpy as np
import pytest

from models.deepfm import DeepFm
from models.factorization_machine import FactorizationMachine
from models.wide_deep import WideDeep
from ps_trainer.config import TrainConfig
from ps_trainer.training import one_process
from tests.testing.cluster import config_of  # noqa: F401 - sets the environment of TensorFlow
from tests.testing.gradients import assert_gradients_are_slopes

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

LABEL = np.array([0, 1, 1, 0, 1])


def assert_output(build, batch, logits_of):
    """Checks a model with random values of its variables; `logits_of` computes the logits from them in NumPy."""
    random = np.random.RandomState(0)
    with tf.Graph().as_default(), tf.Session() as session:
        output = build({name: tf.constant(array) for name, array in batch.items()}, training=True)
        values = {v.op.name: random.normal(scale=0.5, size=v.shape.as_list()) for v in tf.global_variables()}
        for variable in tf.global_variables():
            variable.load(values[variable.op.name], session)
        loss, predictions, metrics = session.run([output.loss, output.predictions, output.metrics])
        if not any("hidden" in name for name in values):  # a ReLU has no slope at 0, where it begins
            assert_gradients_are_slopes(output.loss)
    probability = 1 / (1 + np.exp(-logits_of(values)))
    log_loss = -np.log(np.where(batch["label"], probability, 1 - probability))
    np.testing.assert_allclose(predictions, probability, rtol=1e-4)
    np.testing.assert_allclose(metrics["log_loss"], log_loss, rtol=1e-3)
    np.testing.assert_array_equal(metrics["accuracy"], (probability > 0.5) == batch["label"])
    assert loss == pytest.approx(log_loss.mean(), rel=1e-4)


def of_pairs(vectors):
    """Sum of the dot products of all pairs, from the definition: [examples, vectors, factors] -> [examples]."""
    count = vectors.shape[1]
    return sum((vectors[:, i] * vectors[:, j]).sum(axis=1) for i in range(count) for j in range(i + 1, count))


def test_factorization_machine_equals_numpy():
    random = np.random.RandomState(1)
    ids, x = random.randint(0, 7, (5, 3)), random.normal(size=(5, 3)).astype(np.float32)
    x[0, 2] = 0  # padding

    def logits(values):
        rows = values["features"][ids]
        return values["bias"] + (rows[..., 2] * x).sum(axis=1) + of_pairs(rows[..., :2] * x[..., np.newaxis])

    model = FactorizationMachine(FactorizationMachine.Options(num_features=7, dim=2))
    assert_output(model.build, {"ids": ids, "values": x, "label": LABEL}, logits)


@pytest.mark.parametrize("hidden", [(), (4, 3)])
def test_deepfm_equals_numpy(hidden):
    random = np.random.RandomState(2)
    ids, dense = random.randint(0, 5, (5, 3)), random.normal(size=(5, 2)).astype(np.float32)

    def logits(values):
        rows = np.concatenate(
            [values["values"][ids + 5 * np.arange(3)], dense[..., np.newaxis] * values["numbers"]], axis=1
        )
        x = rows[..., :2].reshape(5, -1)
        for layer in range(len(hidden)):
            x = np.maximum(x @ values[f"deep/hidden_{layer}/kernel"] + values[f"deep/hidden_{layer}/bias"], 0)
        deep = (x @ values["deep/out/kernel"] + values["deep/out/bias"])[:, 0]
        return values["bias"] + rows[..., 2].sum(axis=1) + of_pairs(rows[..., :2]) + deep

    model = DeepFm(DeepFm.Options(num_buckets=5, dim=2, hidden=hidden))
    assert_output(model.build, {"ids": ids, "dense": dense, "label": LABEL}, logits)


@pytest.mark.parametrize(
    "build",
    [
        DeepFm(DeepFm.Options(num_buckets=5, hidden=())).build,
        WideDeep(WideDeep.Options(num_buckets=5, crosses=(), hidden=())).build,
    ],
)
def test_an_id_of_a_column_is_not_a_row_of_the_next_one(build):
    with tf.Graph().as_default(), tf.Session() as session:
        ids = tf.placeholder(tf.int64, [None, 2])
        output = build({"ids": ids, "dense": tf.zeros([1, 1]), "label": tf.zeros([1], tf.int64)}, training=False)
        session.run(tf.global_variables_initializer())
        session.run(output.predictions, {ids: [[4, 4]]})
        for wrong in ([5, 0], [0, -1]):
            message = r"has the ids 0 to 4; give --model_option=num_buckets=.* \[-?\d\] \[\d\]"
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                session.run(output.predictions, {ids: [wrong]})


@pytest.mark.parametrize(
    ("model", "form", "least"),
    [("factorization_machine", "sparse", 0.9), ("deepfm", "columns", 0.9), ("logistic_regression", "sparse", None)],
)
def test_a_pair_of_words_decides(tmp_path, model, form, least):
    """The label is whether two words are of the same kind: neither of them alone tells anything."""
    random = np.random.RandomState(0)
    pairs = random.randint(0, 4, (1200, 2))
    rows = [f"{'abcd'[one]},{'pqrs'[other]},{['no', 'yes'][(one + other) % 2]}" for one, other in pairs]
    (tmp_path / "train.csv").write_text("\n".join(["one,other,same", *rows]) + "\n")
    config = TrainConfig(
        model=model, dataset="csv", dataset_option=("label=same", f"form={form}"), data_dir=str(tmp_path),
        optimizer="adagrad", learning_rate=0.1, optimizer_option=("initial_accumulator_value=1e-4",),
        batch_size=32, max_steps=300,
    )  # fmt: skip
    accuracy = one_process.train(config).summary.metrics["accuracy"]
    assert accuracy >= least if least is not None else accuracy < 0.7

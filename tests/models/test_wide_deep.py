"""Wide & Deep equals NumPy, trains alike in one process and on a cluster, and has the right area under the curve."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from models.layers.pooled import area_under_roc
from models.wide_deep import WideDeep
from ps_trainer.training import components as components_lib
from ps_trainer.training.evaluation import evaluate
from tests.testing.cluster import InProcessCluster, config_of
from tests.testing.components import RowOptions, Rows, plain_loop
from tests.testing.gradients import assert_gradients_are_slopes
from tests.testing.repetitions import repetitions

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

NUM_BUCKETS, CROSS_BUCKETS, NUM_COLUMNS, NUM_NUMBERS = 5, 4, 3, 2
OPTIONS = {"num_buckets": NUM_BUCKETS, "crosses": ("0x1", "2x0"), "cross_buckets": CROSS_BUCKETS, "dim": 2}
BATCH_SIZE, NUM_STEPS = 8, 5


class Clicks(Rows):
    """Random clicks in the order of `Rows`."""

    num_classes = 2

    def __init__(self, options: RowOptions, *, data_dir: str | None = None):
        super().__init__(options, data_dir=data_dir)
        random, size = np.random.RandomState(1), options.num_examples
        self.arrays = {
            "dense": random.uniform(size=(size, NUM_NUMBERS)).astype(np.float32),
            "ids": random.randint(0, NUM_BUCKETS, (size, NUM_COLUMNS)).astype(np.int64),
            "label": random.randint(0, 2, size).astype(np.int64),
        }


def batch_of(size):
    return {name: array[:size] for name, array in Clicks(RowOptions()).arrays.items()}


def expected_logits(values, batch, hidden):
    """The logits in NumPy."""
    ids, dense = batch["ids"], batch["dense"]
    rows = ids + NUM_BUCKETS * np.arange(NUM_COLUMNS)
    logits = values["bias"] + values["wide/weights"][rows, 0].sum(axis=1) + dense @ values["wide/numbers"]
    for number, (one, other) in enumerate([(0, 1), (2, 0)]):
        pairs = [int(a) * NUM_BUCKETS + int(b) for a, b in zip(ids[:, one], ids[:, other], strict=True)]
        mixed = np.array([(pair * 0x9E3779B97F4A7C15 % 2**64) for pair in pairs], np.uint64).astype(np.int64) >> 33
        logits = logits + values["wide/crosses"][mixed % CROSS_BUCKETS + number * CROSS_BUCKETS, 0]
    x = np.concatenate([values["deep/embeddings"][rows].reshape(len(ids), -1), dense], axis=1)
    for layer in range(hidden):
        x = np.maximum(x @ values[f"deep/hidden_{layer}/kernel"] + values[f"deep/hidden_{layer}/bias"], 0)
    return logits + (x @ values["deep/out/kernel"] + values["deep/out/bias"])[:, 0]


@pytest.mark.parametrize("hidden", [(), (4, 3)])
def test_equals_numpy(hidden):
    batch, random = batch_of(20), np.random.RandomState(0)
    with tf.Graph().as_default(), tf.Session() as session:
        model = WideDeep(WideDeep.Options(**OPTIONS, hidden=hidden))
        output = model.build({name: tf.constant(array) for name, array in batch.items()}, training=True)
        values = {v.op.name: random.normal(scale=0.4, size=v.shape.as_list()) for v in tf.global_variables()}
        for variable in tf.global_variables():
            variable.load(values[variable.op.name], session)
        loss, predictions, metrics = session.run([output.loss, output.predictions, output.metrics])
    probability = 1 / (1 + np.exp(-expected_logits(values, batch, len(hidden))))
    log_loss = -np.log(np.where(batch["label"], probability, 1 - probability))
    np.testing.assert_allclose(predictions, probability, rtol=1e-4)
    np.testing.assert_allclose(metrics["log_loss"], log_loss, rtol=1e-4)
    np.testing.assert_array_equal(metrics["accuracy"], (probability > 0.5) == batch["label"])
    assert loss == pytest.approx(log_loss.mean(), rel=1e-4)


def test_at_the_start_both_labels_are_about_equally_likely_and_gradients_are_slopes():
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        batch = {name: tf.constant(array) for name, array in batch_of(64).items()}
        output = WideDeep(WideDeep.Options(**OPTIONS, hidden=(4,))).build(batch, training=True)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            assert session.run(output.loss) == pytest.approx(np.log(2), rel=0.2)
        assert_gradients_are_slopes(output.loss)


class TwoOptimizers:
    """FTRL for the wide part, AdaGrad for the rest, in one process."""

    def minimize(self, loss: tf.Tensor, var_list: list[tf.Variable]) -> tf.Operation:
        parts: list[tuple[tf.train.Optimizer, Callable[[str], bool]]] = [
            (tf.train.FtrlOptimizer(0.3, l1_regularization_strength=0.01), lambda name: name.startswith("wide/")),
            (tf.train.AdagradOptimizer(0.1), lambda name: not name.startswith("wide/")),
        ]
        gradients = dict(zip(var_list, tf.gradients(loss, var_list), strict=True))
        return tf.group(
            *(
                optimizer.apply_gradients([(gradients[v], v) for v in var_list if is_its(v.op.name)])
                for optimizer, is_its in parts
            )
        )


@pytest.fixture(scope="module")
def cluster():
    with InProcessCluster(1, 1) as cluster:
        yield cluster


@pytest.mark.parametrize("layout", repetitions(["packed", "per_variable"]))
def test_one_worker_equals_one_process(cluster, layout):
    options = {**OPTIONS, "hidden": (4,)}
    texts = tuple(f"{key}={','.join(map(str, v)) if isinstance(v, tuple) else v}" for key, v in options.items())
    config = config_of(
        "models.wide_deep:WideDeep", "Rows", ["has_test=true"], model_option=texts, layout=layout,
        optimizer="adagrad", learning_rate=0.1, optimizer_for=("wide/*=ftrl:learning_rate=0.3,l1=0.01",),
        batch_size=BATCH_SIZE, max_steps=NUM_STEPS, seed=3,
    )  # fmt: skip
    config = dataclasses.replace(config, dataset=f"{__name__}:Clicks")
    (outcome,) = cluster.run(config)
    arrays = Clicks(RowOptions()).arrays
    batches = [
        {name: array[step * BATCH_SIZE : (step + 1) * BATCH_SIZE] for name, array in arrays.items()}
        for step in range(NUM_STEPS)
    ]
    losses, values = plain_loop(WideDeep(WideDeep.Options(**options)), batches, TwoOptimizers, seed=3)
    np.testing.assert_allclose(outcome.losses, losses, rtol=0, atol=1e-5)
    assert set(outcome.worker.final_values) == set(values) | {"global_step"}
    for name, value in values.items():
        np.testing.assert_allclose(outcome.worker.final_values[name], value, rtol=0, atol=1e-5, err_msg=name)
    metrics = evaluate(components_lib.load(config, 1), outcome.worker.final_values)
    assert metrics["auc"] == pytest.approx(
        area_under_roc(expected_logits(outcome.worker.final_values, arrays, 1), arrays["label"]), abs=1e-4
    )


@pytest.mark.parametrize("seed", range(3))
def test_area_under_the_curve_is_the_share_of_pairs_in_the_right_order(seed):
    random = np.random.RandomState(seed)
    scores, labels = random.randint(0, 6, 40) / 4, random.randint(0, 2, 40)
    pairs = [(a > b) + (a == b) / 2 for a in scores[labels == 1] for b in scores[labels == 0]]
    assert area_under_roc(scores, labels) == pytest.approx(np.mean(pairs))
    assert np.isnan(area_under_roc(scores, np.ones(40)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crosses": ("0-1",)}, "write the numbers of two columns, such as 0x3,2x5"),
        ({"crosses": ("0x1x2",)}, "crosses=0x1x2"),
    ],
)
def test_wrong_option_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        WideDeep.Options(**options)


@pytest.mark.parametrize(("num_columns", "pairs"), [(2, []), (11, []), (12, [(8, 9), (10, 11)])])
def test_the_default_crosses_only_columns_that_the_data_have(num_columns, pairs):
    options = WideDeep.Options()
    assert options.pairs(num_columns) == pairs
    with tf.Graph().as_default():
        ids, label = tf.zeros([1, num_columns], tf.int64), tf.zeros([1], tf.int64)
        batch = {"dense": tf.zeros([1, 2]), "ids": ids, "label": label}
        WideDeep(options).build(batch, training=True)
        shapes = {variable.op.name: variable.shape.as_list() for variable in tf.global_variables()}
    assert shapes.get("wide/crosses", [0])[0] == len(pairs) * options.cross_buckets


def test_a_missing_crossed_column_is_named():
    with (
        tf.Graph().as_default(),
        pytest.raises(ValueError, match="crosses: the data have no column 3 of 0x3; columns: 0 to 2"),
    ):
        batch = {name: tf.constant(array) for name, array in batch_of(2).items()}
        WideDeep(WideDeep.Options(**{**OPTIONS, "crosses": ("0x3",)})).build(batch, training=True)

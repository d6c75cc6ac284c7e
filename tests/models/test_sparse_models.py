"""The models of sparse data find planted values on a parameter server, and compute the same as NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from models import word2vec
from models.logistic_regression import LogisticRegression
from models.matrix_factorization import MatrixFactorization
from models.word2vec import Word2Vec
from ps_trainer.config import TrainConfig
from ps_trainer.data.generators.known_truth import PlantedWeights
from tests.testing.cluster import InProcessCluster
from tests.testing.gradients import assert_gradients_are_slopes
from tests.testing.repetitions import repetitions

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment


def run(fetches, values):
    """Runs the fetches with the variables set to `values` by name."""
    with tf.Session() as session:
        for variable in tf.global_variables():
            variable.load(values[variable.op.name], session)
        return session.run(fetches)


def test_logistic_regression_equals_numpy():
    random = np.random.RandomState(0)
    ids, values, label = random.randint(0, 7, (5, 3)), random.normal(size=(5, 3)), np.array([0, 1, 1, 0, 1])
    weights, bias = random.normal(size=(7, 1)), np.array([0.3])
    with tf.Graph().as_default():
        batch = {"ids": tf.constant(ids), "values": tf.constant(values, tf.float32), "label": tf.constant(label)}
        output = run(
            LogisticRegression(LogisticRegression.Options(num_features=7)).build(batch, training=True),
            {"weights": weights, "bias": bias},
        )
    probability = 1 / (1 + np.exp(-(np.sum(weights[ids, 0] * values, axis=1) + bias)))
    loss = -np.log(np.where(label, probability, 1 - probability))
    np.testing.assert_allclose(output.predictions, probability, rtol=1e-5)
    np.testing.assert_allclose(output.metrics["log_loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(output.loss, loss.mean(), rtol=1e-5)
    np.testing.assert_array_equal(output.metrics["accuracy"], (probability > 0.5) == label)


@pytest.mark.parametrize(("training", "decay"), [(True, 0.0), (True, 0.1), (False, 0.1)])
def test_matrix_factorization_equals_numpy(training, decay):
    random = np.random.RandomState(0)
    user, item, rating = random.randint(0, 4, 6), random.randint(0, 5, 6), random.normal(size=6)
    users, items = random.normal(size=(4, 3)), random.normal(size=(5, 3))
    options = MatrixFactorization.Options(
        num_users=4, num_items=5, dim=2, mean_rating=1.5, rating_scale=2.5, decay=decay
    )
    with tf.Graph().as_default():
        batch = {"user": tf.constant(user), "item": tf.constant(item), "rating": tf.constant(rating, tf.float32)}
        built = MatrixFactorization(options).build(batch, training=training)
        pooled = built.pooled["relative_squared_error"]
        output, arrays = run((built._replace(pooled={}), pooled.tensors), {"users": users, "items": items})
    score = users[user, 2] + items[item, 2] + np.sum(users[user, :2] * items[item, :2], axis=1)
    wanted_predictions = 1.5 + 2.5 * score
    squares = np.sum(users[user] ** 2, axis=1) + np.sum(items[item] ** 2, axis=1)
    np.testing.assert_allclose(output.predictions, wanted_predictions, rtol=1e-5)
    np.testing.assert_allclose(output.metrics["squared_error"], (wanted_predictions - rating) ** 2, rtol=1e-4)
    relative = np.mean((wanted_predictions - rating) ** 2) / np.mean((rating - rating.mean()) ** 2)
    np.testing.assert_allclose(pooled.compute(*arrays), relative, rtol=1e-4)
    wanted = np.mean(((wanted_predictions - rating) / 2.5) ** 2) + (decay * squares.mean() if training else 0)
    np.testing.assert_allclose(output.loss, wanted, rtol=1e-5)


@pytest.fixture(scope="module")
def cluster():
    with InProcessCluster(1, 1) as cluster:
        yield cluster


def train(cluster, **fields):
    config = TrainConfig(report_secs=1.0, recover_timeout_secs=0.0, **fields)
    config.check()
    return cluster.run(config)[0].worker


@pytest.mark.parametrize("layout", repetitions(["packed", "per_variable"], first=1))  # the others train packed
def test_the_planted_weights_are_found_and_the_others_are_0(cluster, layout):
    options = ("num_features=100", "num_planted=10", "num_ids=10", "num_train=8192", "num_test=2000")
    worker = train(
        cluster, model="logistic_regression", model_option=("num_features=100",), dataset="planted_weights",
        dataset_option=options, layout=layout, optimizer="ftrl", optimizer_option=("l1=1.0",), learning_rate=0.3,
        batch_size=64, max_steps=200,
    )  # fmt: skip
    found = worker.final_values["weights"][:, 0]
    planted = PlantedWeights(PlantedWeights.Options(num_features=100, num_planted=10, num_ids=10)).weights
    assert np.all(np.sign(found[planted != 0]) == np.sign(planted[planted != 0]))
    assert np.abs(found[planted != 0]).min() > np.abs(found[planted == 0]).max()
    assert np.mean(found[planted == 0] == 0) > 0.8


def test_the_planted_factors_are_found(cluster):
    data = ("num_users=60", "num_items=50", "rank=2", "num_train=8000", "num_test=1000", "noise=0.2")
    worker = train(
        cluster, model="matrix_factorization", model_option=("num_users=60", "num_items=50", "dim=2"),
        dataset="planted_ratings", dataset_option=data, optimizer="adagrad", learning_rate=0.4, batch_size=200,
        max_steps=400,
    )  # fmt: skip
    error = np.sqrt(worker.summary.metrics["squared_error"])
    assert 0.19 < error < 0.25  # the noise is 0.2; without any factors it would be 1


def test_planted_synonyms_are_nearest_neighbours(cluster):
    worker = train(
        cluster, model="word2vec", model_option=("vocab_size=60", "dim=16"),
        dataset="planted_synonyms", dataset_option=("num_meanings=30", "num_neighbours=5", "num_train=8000"),
        optimizer="adagrad", learning_rate=0.5, batch_size=64, max_steps=400,
    )  # fmt: skip
    assert worker.summary.metrics["recovered"] >= 0.9


@pytest.mark.parametrize("form", ["skip_gram", "cbow"])
@pytest.mark.parametrize("loss", ["negative_sampling", "nce", "sampled_softmax"])
def test_word2vec_equals_numpy(loss, form, monkeypatch):
    monkeypatch.setattr(word2vec, "BLOCK_WORDS", 4)  # two blocks, of which the second is smaller
    random = np.random.RandomState(0)
    vocab_size, dim = 6, 3
    words, biases = random.normal(size=(vocab_size, dim)), random.normal(size=(vocab_size, 1))
    told_vectors = random.normal(size=(vocab_size, dim))
    center, context = np.array([0, 2, 5, 3]), np.array([[1, 2], [0, 0], [4, 5], [3, 1]])
    options = Word2Vec.Options(vocab_size=vocab_size, dim=dim, form=form, loss=loss, num_sampled=4, sampler="uniform")
    with tf.Graph().as_default() as graph:
        batch = {"center": tf.constant(center), "context": tf.constant(context)}
        output = Word2Vec(options).build(batch, training=True)
        with tf.variable_scope("", reuse=True):
            evaluated = Word2Vec(options).build(batch, training=False)
        values = {"input": words, "output": np.concatenate([told_vectors, biases], axis=1)}
        (sampler,) = [op for op in graph.get_operations() if op.type == "UniformCandidateSampler"]
        fetches = [output.metrics["log_loss"], evaluated, list(sampler.outputs)]
        training_v, evaluated_v, (sample, expected_told, expected) = run(fetches, values)
    h, told = (words[context].mean(axis=1), center[:, None]) if form == "cbow" else (words[center], context)
    scores = h @ told_vectors.T + biases[:, 0]
    is_corrected = loss != "negative_sampling"
    expected_told = expected_told.reshape(told.shape)
    wanted = np.zeros(told.shape)
    for b, t in np.ndindex(told.shape):
        right = scores[b, told[b, t]] - is_corrected * np.log(expected_told[b, t])
        wrong = (scores[b, sample] - is_corrected * np.log(expected))[sample != told[b, t]]
        if loss == "sampled_softmax":
            wanted[b, t] = np.log(np.exp(right) + np.sum(np.exp(wrong))) - right
        else:
            wanted[b, t] = np.log1p(np.exp(-right)) + np.sum(np.log1p(np.exp(wrong)))
    np.testing.assert_allclose(training_v, wanted.mean(axis=1), rtol=1e-4)
    full = np.log(np.sum(np.exp(scores), axis=1, keepdims=True)) - np.take_along_axis(scores, told, axis=1)
    np.testing.assert_allclose(evaluated_v.metrics["log_loss"], full.mean(axis=1), rtol=1e-4)
    unit = words / np.linalg.norm(words, axis=1, keepdims=True)
    cosine = unit @ unit.T - 10 * np.eye(vocab_size)
    np.testing.assert_array_equal(evaluated_v.predictions, cosine[center].argmax(axis=1))


def test_the_memory_of_an_evaluation_does_not_grow_with_the_vocabulary():
    vocab_size = 100_003
    with tf.Graph().as_default() as graph:
        batch = {"center": tf.constant([0, 2]), "context": tf.constant([[1, 2], [0, 0]])}
        batch = {name: tf.cast(ids, tf.int64) for name, ids in batch.items()}
        Word2Vec(Word2Vec.Options(vocab_size=vocab_size, dim=3)).build(batch, training=False)
        large = [op.type for op in graph.get_operations() for x in op.outputs if x.shape[-1:] == [vocab_size]]
        copies = [op.type for op in graph.get_operations() for x in op.outputs if x.shape[:1] == [vocab_size]]
        assert large == []  # logits or cosines of a batch
        assert not {"GatherV2", "ResourceGather"} & set(copies)


@pytest.mark.parametrize("form", ["skip_gram", "cbow"])
def test_word2vec_begins_at_the_loss_of_a_uniform_guess_and_its_gradients_are_slopes(form):
    options = Word2Vec.Options(vocab_size=6, dim=3, form=form, num_sampled=4)
    with tf.Graph().as_default():
        tf.set_random_seed(0)  # of 100 starts one is more than 0.01 below the bound
        ids = {"center": [0, 2, 5], "context": [[1, 3], [0, 0], [4, 3]]}
        batch = {name: tf.constant(values, tf.int64) for name, values in ids.items()}
        assert_gradients_are_slopes(Word2Vec(options).build(batch, training=False).loss)
        with tf.variable_scope("", reuse=True):
            loss = Word2Vec(options).build(batch, training=True).loss
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            # The sample for a word excludes the words that are to be predicted from it.
            assert np.log(2) * (1 + 3) - 0.01 <= session.run(loss) <= np.log(2) * (1 + 4) + 0.01

"""The recurrent language model: shapes, first loss, gradients, sampling in training only, and a learned chain."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from models.lstm_lm import LstmLm
from ps_trainer.data.generators.markov_text import MarkovText
from ps_trainer.data.pipeline.shard import Shard
from tests.testing.gradients import assert_gradients_are_slopes
from tests.testing.repetitions import representatives

VOCAB, BATCH, STEPS = 11, 4, 5
SMALL = {"vocab_size": VOCAB, "dim": 3, "units": 4}
IDS = np.random.RandomState(0).randint(0, VOCAB, (BATCH, STEPS + 1))


def build(ids, training=False, **options):
    return LstmLm(LstmLm.Options(**{**SMALL, **options})).build({"ids": tf.convert_to_tensor(ids)}, training=training)


def run(fetches, feed_dict=None):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches, feed_dict)


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        yield graph


@pytest.mark.parametrize("loss", ["full_softmax", "sampled_softmax"])
def test_output_has_one_prediction_per_word_and_one_metric_per_example(loss):
    output = build(IDS, loss=loss, num_sampled=6)
    output_v = run(output)
    assert output_v.loss.shape == ()
    assert output_v.predictions.shape == (BATCH, STEPS)
    assert {name: value.shape for name, value in output_v.metrics.items()} == {
        "nats_per_token": (BATCH,),
        "accuracy": (BATCH,),
    }
    assert output_v.loss == pytest.approx(output_v.metrics["nats_per_token"].mean(), rel=1e-6)
    np.testing.assert_allclose(output_v.metrics["accuracy"], (output_v.predictions == IDS[:, 1:]).mean(axis=1))


def test_batch_size_may_be_unknown():
    ids = tf.placeholder(tf.int64, [None, STEPS + 1])
    assert run(build(ids).predictions, {ids: IDS[:3]}).shape == (3, STEPS)


@pytest.mark.parametrize("loss", ["full_softmax", "sampled_softmax"])
def test_at_the_start_all_words_are_about_equally_likely(loss):
    assert run(build(IDS, loss=loss, num_sampled=6).loss) == pytest.approx(np.log(VOCAB), rel=0.1)


def test_gradients_are_slopes_of_the_loss():
    assert_gradients_are_slopes(build(IDS, training=True, num_layers=2).loss)


def test_a_prediction_depends_on_earlier_words_only():
    ids = tf.placeholder(tf.int64, [1, STEPS + 1])
    predictions = build(ids, units=16).predictions
    loss = build_again(ids, units=16)
    other = IDS[:1].copy()
    other[0, 3] = (other[0, 3] + 1) % VOCAB
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first, second = (session.run([predictions, loss], {ids: value}) for value in (IDS[:1], other))
    np.testing.assert_array_equal(first[0][0, :3], second[0][0, :3])
    assert first[1] != second[1]


def build_again(ids, **options):
    with tf.variable_scope("", reuse=True):
        return build(ids, **options).loss


@pytest.mark.parametrize("options", [{"dropout": 0.5}, {"loss": "sampled_softmax", "num_sampled": 6}])
def test_dropout_and_sampling_are_for_training_only(options):
    losses = [build(IDS, training=True, **options).loss, build_again(tf.constant(IDS), **options)]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first, second = (session.run(losses) for _ in range(2))
    assert first[0] != second[0]
    assert first[1] == second[1]


def test_with_a_sample_only_rows_of_tables_have_gradients():
    loss = build(IDS, training=True, loss="sampled_softmax", num_sampled=6).loss
    variables = {variable.op.name: variable for variable in tf.trainable_variables()}
    assert set(variables) == {"embedding", "output", "lstm0/kernel", "lstm0/bias"}
    for table in ("embedding", "output"):
        assert isinstance(tf.gradients(loss, variables[table])[0], tf.IndexedSlices)


# With a sample, too, the full softmax evaluates. Both losses have the right gradients at the start.
@pytest.mark.parametrize("loss", representatives(("full_softmax", "sampled_softmax"), ("sampled_softmax",)))
def test_learns_a_chain_of_one_word(loss):
    """The loss comes within a tenth of its perplexity in seconds; `benchmarks.models` trains to a twentieth."""
    source = MarkovText(MarkovText.Options(num_words=8, order=1, num_successors=3, context_length=8, num_train=8000))
    train = source.train(shard=Shard(0, 1), batch_size=16, seed=0, num_epochs=None)
    train = tf.data.make_initializable_iterator(train)
    test = tf.data.make_initializable_iterator(source.test(batch_size=source.num_test_examples))
    options = {"vocab_size": source.vocab_size, "dim": 8, "units": 16, "loss": loss, "num_sampled": 6}
    step = tf.train.AdamOptimizer(0.02).minimize(build(train.get_next()["ids"], training=True, **options).loss)
    evaluated = build_again(test.get_next()["ids"], **options)
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), train.initializer, test.initializer])
        for _ in range(200):
            session.run(step)
        perplexity = np.exp(session.run(evaluated))
    assert perplexity / np.exp(source.chain.entropy_rate) < 1.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "sampled_softmax", "num_sampled": 12}, "num_sampled=12 exceeds vocab_size=11"),
    ],
)
def test_wrong_option_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        LstmLm.Options(**{**SMALL, **options})

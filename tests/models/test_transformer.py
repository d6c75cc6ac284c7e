"""The translating transformer: its output, its first loss, and that it learns a small language."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from models.layers import END_ID, PADDING_ID, START_ID
from models.transformer import Transformer
from ps_trainer.config import TrainConfig
from tests.testing.cluster import InProcessCluster
from tests.testing.gradients import assert_gradients_are_slopes

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

SOURCE = np.array([[4, 5, 6, 2, 0], [7, 2, 0, 0, 0], [5, 5, 5, 5, 2]])
TARGET = np.array([[4, 6, 2, 0], [5, 5, 5, 2], [7, 2, 0, 0]])


def create(**options):
    fields = {"source_vocab_size": 8, "target_vocab_size": 9, "dim": 8, "num_heads": 2, "hidden": 12, "num_layers": 1}
    return Transformer(Transformer.Options(**{**fields, **options}))


def build(model, training, source=SOURCE, target=TARGET):
    return model.build(
        {"source": tf.convert_to_tensor(source), "target": tf.convert_to_tensor(target)}, training=training
    )


def run(fetches):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches)


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        tf.set_random_seed(0)
        yield


@pytest.mark.parametrize("beam_size", [1, 3])
def test_output_has_a_translation_and_metrics_for_each_example(beam_size):
    training = build(create(), True)
    with tf.variable_scope("", reuse=True):
        evaluated = build(create(beam_size=beam_size), False)
    training_v, evaluated_v = run([training, evaluated])
    assert training_v.predictions.shape == evaluated_v.predictions.shape == (3, 4)
    assert set(training_v.metrics) == {"log_loss"}
    assert set(evaluated_v.metrics) == {"log_loss", "exact_match"}
    assert all(values.shape == (3,) for values in evaluated_v.metrics.values())
    assert evaluated_v.loss == pytest.approx(training_v.loss, rel=1e-5)
    num_symbols = np.sum(TARGET != 0, axis=1)
    assert evaluated_v.loss_weight == np.sum(num_symbols)
    assert evaluated_v.loss == pytest.approx(np.average(evaluated_v.metrics["log_loss"], weights=num_symbols), rel=1e-5)


def test_padding_for_all_texts_of_a_batch_changes_nothing():
    padded = [np.pad(ids, [[0, 0], [0, 3]]) for ids in (SOURCE, TARGET)]
    losses = [build(create(), True, *padded).loss]
    with tf.variable_scope("", reuse=True):
        of_any_length = (tf.placeholder_with_default(tf.constant(ids), [3, None]) for ids in (SOURCE, TARGET))
        losses.append(build(create(), True, *of_any_length).loss)
    padded_v, cut_v = run(losses)
    assert cut_v == pytest.approx(padded_v, rel=1e-6)


def test_at_the_start_all_symbols_are_about_equally_likely():
    random = np.random.RandomState(0)
    model = Transformer(Transformer.Options())
    output = build(model, True, random.randint(4, 34, (32, 12)), random.randint(4, 18, (32, 12)))
    assert sum(variable.shape.num_elements() for variable in tf.trainable_variables()) == 238_226
    assert run(output.loss) == pytest.approx(np.log(18), rel=0.02)


def test_gradients_are_slopes_of_the_loss():
    assert_gradients_are_slopes(build(create(label_smoothing=0.1), True).loss)


def test_padding_changes_nothing():
    wide = [np.pad(ids, [(0, 0), (0, 3)]) for ids in (SOURCE, TARGET)]
    narrow_output = build(create(), False)
    with tf.variable_scope("", reuse=True):
        wide_output = build(create(), False, *wide)
    narrow_v, wide_v = run([narrow_output, wide_output])
    np.testing.assert_allclose(narrow_v.metrics["log_loss"], wide_v.metrics["log_loss"], rtol=1e-5)


def test_label_smoothing_is_in_the_training_loss_only():
    outputs = []
    for smoothing, training in ((0.0, True), (0.2, True), (0.2, False)):
        with tf.variable_scope("", reuse=bool(outputs)):
            outputs.append(build(create(label_smoothing=smoothing), training).loss)
    plain, smoothed, evaluated = run(outputs)
    assert smoothed != pytest.approx(plain, rel=1e-3)
    assert evaluated == pytest.approx(plain, rel=1e-6)


def test_translations_agree_with_teacher_forcing():
    """If the target is the greedy translation, each symbol is the most probable one after those before it."""
    model = create()
    translation = build(model, False).predictions
    with tf.variable_scope("", reuse=True):
        forced = model.build(
            {"source": tf.constant(SOURCE), "target": tf.ensure_shape(translation, [3, 4])}, training=True
        )
    translation_v, forced_v = run([translation, forced.predictions])
    for translated, told in zip(translation_v, forced_v, strict=True):
        end = list(translated).index(2) + 1 if 2 in translated else len(translated)
        is_symbol = ~np.isin(told[:end], [PADDING_ID, START_ID])  # a translation never contains the others
        assert is_symbol.any()
        np.testing.assert_array_equal(translated[:end][is_symbol], told[:end][is_symbol])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 9}, "dim=9 must be even and a multiple of num_heads=2"),
        ({"num_heads": 3}, "dim=8 must be even and a multiple of num_heads=3"),
        ({"beam_size": 10}, "beam_size=10 exceeds target_vocab_size=9"),
    ],
)
def test_wrong_option_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        create(**options)


# `test_equality.py` compares models with attention on a cluster with one process; tests/inference trains one that
# translates.
@pytest.mark.full
def test_small_numbers_are_translated_on_a_cluster():
    """Numbers up to 199; training shows nine tenths of them."""
    config = TrainConfig(
        model="transformer", model_option=("dim=32", "num_layers=1", "hidden=64", "beam_size=2"), dataset="numbers",
        dataset_option=("max_number=199", "num_train=180", "num_test=20"), update="sync", optimizer="adam",
        learning_rate=0.005, batch_size=32, max_steps=150, report_secs=1.0, recover_timeout_secs=0.0,
    )  # fmt: skip
    config.check()
    with InProcessCluster(1, 2) as cluster:
        worker = cluster.run(config)[0].worker
    assert worker.summary.metrics["exact_match"] >= 0.7


@pytest.mark.parametrize("length_penalty", [0.0, 1.5])
def test_the_search_finds_the_best_of_all_translations(length_penalty):
    """Every text of a vocabulary of 5 and of at most 3 symbols, scored in NumPy by the model's own logits."""
    model, length, vocab = create(target_vocab_size=5), 3, 5
    found = model.translate(tf.constant(SOURCE[:1]), length, beam_size=vocab**2, length_penalty=length_penalty)
    texts = [
        (*text, *[PADDING_ID] * (length - len(text)))
        for size in range(1, length + 1)
        for text in itertools.product((END_ID, 3, 4), repeat=size)
        if END_ID not in text[:-1] and (text[-1] == END_ID or size == length)
    ]
    before = [[START_ID, *text[:-1]] for text in texts]
    source = tf.constant(SOURCE[:1].repeat(len(texts), axis=0))
    with tf.variable_scope("", reuse=True):
        logits = model._decode(
            tf.constant(before, tf.int64), model._encode(source, training=False), source, training=False
        )
    found_v, logits_v = run([found, logits])
    shares = np.where(np.isin(np.arange(vocab), [PADDING_ID, START_ID]), -np.inf, logits_v)
    shares -= np.log(np.exp(shares).sum(axis=-1, keepdims=True))
    scores = []
    for text, share in zip(texts, shares, strict=True):
        num_symbols = sum(symbol != PADDING_ID for symbol in text)
        scores.append(sum(share[at, text[at]] for at in range(num_symbols)) / ((5 + num_symbols) / 6) ** length_penalty)
    assert tuple(found_v[0]) == texts[int(np.argmax(scores))]

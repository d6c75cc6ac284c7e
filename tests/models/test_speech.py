"""The speech model: the loss and the predictions of CTC by their definitions, gradients, padding, options."""

from __future__ import annotations

import collections
import itertools
import math

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from models.speech import Speech
from tests.testing.gradients import assert_gradients_are_slopes

BATCH, FRAMES, FEATURES, SYMBOLS = 3, 5, 4, 2
LENGTHS = [5, 4, 3]
IDS = [[0, 1, -1], [1, 1, -1], [0, -1, -1]]
SMALL = {"num_classes": SYMBOLS, "units": (3,)}
SOUND = np.random.RandomState(0).normal(size=(BATCH, FRAMES, FEATURES)).astype(np.float32)


def batch_of(frames=SOUND, lengths=LENGTHS, ids=IDS):
    return {
        "frames": tf.convert_to_tensor(frames),
        "num_frames": tf.constant(lengths, tf.int64),
        "ids": tf.constant(ids, tf.int64),
        "num_ids": tf.reduce_sum(tf.cast(tf.constant(ids) >= 0, tf.int64), axis=1),
    }


def build(batch=None, training=False, **options):
    return Speech(Speech.Options(**{**SMALL, **options})).build(batch or batch_of(), training=training)


def run(fetches, feed_dict=None):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches, feed_dict)


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        yield graph


def logits():
    return tf.get_default_graph().get_tensor_by_name("logits/BiasAdd:0")


def collapse(alignment):
    """The symbols without repetitions and then without blanks."""
    return tuple(symbol for symbol, _ in itertools.groupby(alignment) if symbol != SYMBOLS)


def probabilities(logits_TN):
    """Sequence -> its probability, and alignment -> its probability, summed over all alignments one by one."""
    shares = np.exp(logits_TN - np.logaddexp.reduce(logits_TN, axis=1, keepdims=True))
    by_sequence, by_alignment = collections.Counter(), {}
    for alignment in itertools.product(range(SYMBOLS + 1), repeat=len(shares)):
        by_alignment[alignment] = np.prod(shares[np.arange(len(shares)), alignment])
        by_sequence[collapse(alignment)] += by_alignment[alignment]
    return by_sequence, by_alignment


def symbols_of(predictions):
    return [tuple(row[row >= 0]) for row in predictions]


def edits(one, other):
    """Levenshtein's distance."""
    if not one or not other:
        return len(one) + len(other)
    return min(edits(one[1:], other) + 1, edits(one, other[1:]) + 1, edits(one[1:], other[1:]) + (one[0] != other[0]))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("beam_width", [0, 100])
def test_loss_predictions_and_error_rate_are_those_of_the_definition(cell, beam_width):
    random = np.random.RandomState(3)  # more certain than a new network is
    output = build(batch_of(10 * SOUND), cell=cell, beam_width=beam_width, units=(8, 8))
    kernel = next(v for v in tf.global_variables() if v.op.name == "logits/kernel")
    sharp = kernel.assign(random.normal(scale=3, size=kernel.shape))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(sharp)
        output_v, logits_v = session.run([output, logits()])
    assert output_v.predictions.shape == (BATCH, FRAMES)
    losses = []
    for at, (length, ids) in enumerate(zip(LENGTHS, IDS, strict=True)):
        truth = tuple(i for i in ids if i >= 0)
        by_sequence, by_alignment = probabilities(logits_v[at, :length].astype(np.float64))
        losses.append(-np.log(by_sequence[truth]))
        best = (
            max(by_sequence, key=by_sequence.get) if beam_width else collapse(max(by_alignment, key=by_alignment.get))
        )
        assert symbols_of(output_v.predictions)[at] == best
        assert output_v.metrics["label_error_rate"][at] == pytest.approx(edits(best, truth) / len(truth))
    assert output_v.loss == pytest.approx(np.mean(losses), rel=1e-4)


def test_at_the_start_all_alignments_are_about_equally_likely():
    """For T frames, binomial(T + L - repetitions, 2 L) alignments give a transcript of L symbols."""
    num_frames, ids = 60, [[0, 1, 2, 3, 3, 4]]
    sound = np.random.RandomState(0).normal(size=(1, num_frames, FEATURES)).astype(np.float32)
    loss = run(build(batch_of(sound, [num_frames], ids), num_classes=10, units=(8,)).loss)
    expected = num_frames * np.log(10 + 1) - np.log(math.comb(num_frames + 6 - 1, 2 * 6))
    assert loss == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_gradients_are_slopes_of_the_loss(cell):
    assert_gradients_are_slopes(build(training=True, cell=cell, units=(3, 2)).loss)


def test_values_after_the_end_of_a_sound_do_not_matter():
    frames = tf.placeholder(tf.float32, [None, FRAMES, FEATURES])
    output = build(batch_of(frames), units=(3, 3))
    other = SOUND.copy()
    for at, length in enumerate(LENGTHS):
        other[at, length:] = 99
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first, second = (session.run(output, {frames: sound}) for sound in (SOUND, other))
    assert first.loss == second.loss
    np.testing.assert_array_equal(first.predictions, second.predictions)


def test_dropout_changes_the_loss_in_training_only():
    losses = []
    for training in (True, False):
        with tf.variable_scope("", reuse=not training):
            losses.append(build(training=training, dropout=0.5).loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first, second = (session.run(losses) for _ in range(2))
    assert first[0] != second[0]
    assert first[1] == second[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"units": ()}, "units is empty; give at least one layer"),
    ],
)
def test_wrong_option_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        Speech.Options(**options)

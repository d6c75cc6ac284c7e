"""Decoding against a search through all texts, and step by step."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from models.layers import END_ID as END
from models.layers import PADDING_ID as PADDING
from models.layers import START_ID as START
from models.layers import decode

LENGTH, VOCAB = 3, 5
SAYABLE = [symbol for symbol in range(VOCAB) if symbol not in (PADDING, START)]


def table_of(seed, batch_size=2):
    """Logits [B, LENGTH, VOCAB, VOCAB] of the next symbol, by position and previous symbol."""
    return np.random.RandomState(seed).normal(scale=2, size=(batch_size, LENGTH, VOCAB, VOCAB)).astype(np.float32)


def decoded(table, beam_size, length_penalty=0.0):
    with tf.Graph().as_default(), tf.Session() as session:
        tables = tf.repeat(tf.constant(table), beam_size, axis=0)

        def next_logits(before, at):
            return tf.gather(tables[:, at], before[:, at], axis=1, batch_dims=1)

        ids = decode(
            next_logits, tf.constant(len(table)), length=LENGTH, beam_size=beam_size, length_penalty=length_penalty
        )
        assert ids.shape.as_list() == [None, LENGTH]
        return session.run(ids)


def log_share(logits):
    """Log-probabilities among the allowed next symbols; minus infinity for the others."""
    masked = np.where(np.isin(np.arange(VOCAB), SAYABLE), logits, -np.inf)
    return masked - np.log(np.exp(masked).sum(axis=-1, keepdims=True))


def log_p_of(table, text):
    """Log-probability of one example: the sum over the symbols up to the end."""
    total, before = 0.0, START
    for at, symbol in enumerate(text):
        if before == END:
            break
        total += log_share(table[at, before])[symbol]
        before = symbol
    return total


def all_texts():
    """All allowed texts: neither padding nor the start before an end, and only padding after it."""
    for text in itertools.product(range(VOCAB), repeat=LENGTH):
        end = text.index(END) if END in text else LENGTH
        is_said = all(symbol not in (PADDING, START) for symbol in text[:end])
        if is_said and all(symbol == PADDING for symbol in text[end + 1 :]):
            yield text


@pytest.mark.parametrize("seed", range(4))
def test_a_beam_of_one_is_greedy(seed):
    table = table_of(seed)
    for example, ids in zip(table, decoded(table, beam_size=1), strict=True):
        wanted, before = [], START
        for at in range(LENGTH):
            before = PADDING if END in wanted else max(SAYABLE, key=lambda symbol: example[at, before, symbol])  # noqa: B023
            wanted.append(before)
        assert list(ids) == wanted


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_beam_that_holds_everything_finds_the_best_text(seed, length_penalty):
    table = table_of(seed)

    def score(example, text):
        num_symbols = sum(symbol != PADDING for symbol in text)
        return log_p_of(example, text) / ((5 + num_symbols) / 6) ** length_penalty

    for example, ids in zip(table, decoded(table, VOCAB**2, length_penalty), strict=True):
        best = max(all_texts(), key=lambda text: score(example, text))
        assert tuple(ids) == best


def test_a_beam_finds_a_text_that_greedy_decoding_misses():
    """The best first symbol, 3, is a dead end: all symbols after it are equally likely."""
    table = np.zeros((1, LENGTH, VOCAB, VOCAB), np.float32)
    table[0, 0, START, [3, 4]] = [5.0, 4.9]
    table[0, 1:, 4, END] = 20.0
    assert decoded(table, 1)[0, 0] == 3
    np.testing.assert_array_equal(decoded(table, 2), [[4, END, PADDING]])


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("likely", [PADDING, START])
def test_neither_padding_nor_the_start_comes_before_the_end(likely, beam_size):
    table = np.zeros((1, LENGTH, VOCAB, VOCAB), np.float32)
    table[..., likely] = 20.0
    table[..., 3] = 2.0
    np.testing.assert_array_equal(decoded(table, beam_size), [[3, 3, 3]])


def test_decoding_ends_when_all_texts_have_ended():
    """There is no table for a second symbol, so a request for one fails."""
    table = np.full((2, 1, VOCAB, VOCAB), 0, np.float32)
    table[..., END] = 10
    with tf.Graph().as_default(), tf.Session() as session:

        def next_logits(before, at):
            with tf.control_dependencies([tf.debugging.assert_equal(at, 0)]):
                return tf.gather(tf.constant(table[:, 0]), before[:, 0], axis=1, batch_dims=1)

        ids = session.run(decode(next_logits, tf.constant(2), length=50))
    np.testing.assert_array_equal(ids, [[END, *[PADDING] * 49]] * 2)

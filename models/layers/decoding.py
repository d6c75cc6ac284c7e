"""Makes texts by a model that says, of what it has so far, what comes next.

Shape suffixes: B batch, K hypotheses of an example, N = B * K, L symbols of a text, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow.compat.v1 as tf

_MASKED_SCORE = -1e9  # as the logarithm of a probability

PADDING_ID, START_ID, END_ID = range(3)
"""The numbers that are no symbols: filling up, in front of a text, behind it."""


def decode(
    next_logits: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    batch_size: tf.Tensor,
    *,
    length: int,
    beam_size: int = 1,
    length_penalty: float = 0.0,
) -> tf.Tensor:
    """The most probable text of each example, by beam search; with `beam_size` 1 the greedy one.

    Kept are the `beam_size` most probable beginnings of each example; a text that has ended stays among them as it is.
    A text that has not ended goes on with a symbol or with the end, never with padding or the start; the
    probabilities are those among what it may go on with.
    At the end the one is taken whose log-probability, divided by ((5 + symbols) / 6) ** `length_penalty`, is largest.

    Source: Y. Wu et al., "Google's Neural Machine Translation System", 2016, equation 14, for the penalty.

    Args:
        next_logits: called once, in the body of a `tf.while_loop`, with beginnings int64 [N, L + 1] (the start, the
            symbols so far, and padding) and the position of the last symbol, int32 []; gives the logits of the next
            one, float32 [N, V]. The hypotheses of an example follow each other. Variables that it asks for must have
            been made before.
        batch_size: B, int32 [].
        length: L, the most symbols of a text, the end among them.
        beam_size: K.
        length_penalty: 0 = none; larger values favour longer texts.

    Returns:
        int64 [B, L]: the symbols, the end, then padding; without an end where there was no room for it.
    """
    positions = tf.range(length + 1)
    ids_BKL = tf.tile(tf.constant([[[START_ID, *[PADDING_ID] * length]]], tf.int64), [batch_size, beam_size, 1])
    # Of the first beginnings, which are all alike, only one may go on.
    log_p_BK = tf.tile(tf.constant([[0.0, *[_MASKED_SCORE] * (beam_size - 1)]]), [batch_size, 1])
    is_done_BK = tf.zeros([batch_size, beam_size], tf.bool)

    def goes_on(at: tf.Tensor, _ids: tf.Tensor, _log_p: tf.Tensor, is_done_BK: tf.Tensor) -> tf.Tensor:
        return tf.logical_and(at < length, tf.logical_not(tf.reduce_all(is_done_BK)))

    def extend(at: tf.Tensor, ids_BKL: tf.Tensor, log_p_BK: tf.Tensor, is_done_BK: tf.Tensor) -> tuple[tf.Tensor, ...]:
        logits_NV = next_logits(tf.reshape(ids_BKL, [-1, length + 1]), at)
        size = int(logits_NV.shape[1])
        sayable_V = tf.constant(~np.isin(np.arange(size), [PADDING_ID, START_ID]))
        next_NV = tf.nn.log_softmax(tf.where_v2(sayable_V, logits_NV, _MASKED_SCORE))
        next_BKV = tf.reshape(next_NV, [batch_size, beam_size, size])
        only_padding_V = tf.constant(np.where(np.arange(size) == PADDING_ID, 0, _MASKED_SCORE), tf.float32)
        next_BKV = tf.where_v2(is_done_BK[..., tf.newaxis], only_padding_V, next_BKV)
        total_BS = tf.reshape(log_p_BK[..., tf.newaxis] + next_BKV, [batch_size, beam_size * size])
        log_p_BK, choice_BK = tf.nn.top_k(total_BS, beam_size)
        symbol_BK = tf.cast(choice_BK % size, tf.int64)
        ids_BKL = tf.gather(ids_BKL, choice_BK // size, axis=1, batch_dims=1)
        ids_BKL = tf.where_v2(tf.equal(positions, at + 1), symbol_BK[..., tf.newaxis], ids_BKL)
        was_done_BK = tf.gather(is_done_BK, choice_BK // size, axis=1, batch_dims=1)
        return at + 1, ids_BKL, log_p_BK, tf.logical_or(was_done_BK, tf.equal(symbol_BK, END_ID))

    state = (tf.constant(0), ids_BKL, log_p_BK, is_done_BK)
    shapes: tuple[list[int | None], ...] = ([], [None, beam_size, length + 1], [None, beam_size], [None, beam_size])
    invariants = tuple(tf.TensorShape(shape) for shape in shapes)
    _, ids_BKL, log_p_BK, _ = tf.while_loop(goes_on, extend, state, invariants)
    num_symbols_BK = tf.reduce_sum(tf.cast(tf.not_equal(ids_BKL[..., 1:], PADDING_ID), tf.float32), axis=2)
    best_B = tf.argmax(log_p_BK / ((5 + num_symbols_BK) / 6) ** length_penalty, axis=1)
    return tf.gather(ids_BKL[..., 1:], best_B, axis=1, batch_dims=1)

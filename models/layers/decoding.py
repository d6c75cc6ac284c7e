"""Generates texts with a model that predicts the next symbol from the symbols so far.

Shape suffixes: B batch, K hypotheses of an example, N = B * K, L symbols of a text, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow.compat.v1 as tf

_MASKED_LOG_P = -1e9  # a probability of 0; with -inf, sums of masked hypotheses could not be compared

PADDING_ID, START_ID, END_ID = range(3)
"""Reserved numbers: padding, the start of a text, and the end of a text."""


def decode(
    next_logits: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    batch_size: tf.Tensor,
    *,
    length: int,
    beam_size: int = 1,
    length_penalty: float = 0.0,
) -> tf.Tensor:
    """Finds the most probable text of each example by beam search; `beam_size` 1 is greedy search.

    The search keeps the `beam_size` most probable hypotheses of each example. A finished text stays among them
    unchanged. An unfinished text continues with a symbol or with the end, but never with padding or the start; their
    probabilities are excluded from the softmax. In the end the search returns the text with the largest log
    probability divided by ((5 + symbols) / 6) ** `length_penalty`.

    Source: Y. Wu et al., "Google's Neural Machine Translation System", 2016, equation 14, for the penalty.

    Args:
        next_logits: Function that is called once, in the body of a `tf.while_loop`. It gets hypotheses, int64
            [N, L + 1] (the start, the symbols so far, and padding), and the position of the last symbol, int32 []. It
            returns the logits of the next symbol, float32 [N, V]. The K hypotheses of an example are neighbours. The
            variables that it uses must exist before the call.
        batch_size: int32 [], number of examples, B.
        length: Most symbols of a text including the end, L.
        beam_size: Number of hypotheses, K.
        length_penalty: Exponent of the penalty; 0 = none, larger values favour longer texts.

    Returns:
        int64 [B, L]: the symbols, the end, then padding; a text of L symbols has no end.
    """

    def is_unfinished(at: tf.Tensor, _ids: tf.Tensor, _log_p: tf.Tensor, is_done_BK: tf.Tensor) -> tf.Tensor:
        return tf.logical_and(at < length, tf.logical_not(tf.reduce_all(is_done_BK)))

    def extend(at: tf.Tensor, ids_BKL: tf.Tensor, log_p_BK: tf.Tensor, is_done_BK: tf.Tensor) -> tuple[tf.Tensor, ...]:
        logits_NV = next_logits(tf.reshape(ids_BKL, [-1, length + 1]), at)
        return at + 1, *_extend(logits_NV, at, ids_BKL, log_p_BK, is_done_BK)

    ids_BKL = tf.tile(tf.constant([[[START_ID, *[PADDING_ID] * length]]], tf.int64), [batch_size, beam_size, 1])
    # The K first hypotheses of an example are equal. Only one may continue, or all K would stay equal.
    log_p_BK = tf.tile(tf.constant([[0.0, *[_MASKED_LOG_P] * (beam_size - 1)]]), [batch_size, 1])
    state = (tf.constant(0), ids_BKL, log_p_BK, tf.zeros([batch_size, beam_size], tf.bool))
    # The static batch size is lost in the loop's body, so the loop must be told that it may change.
    shapes: tuple[list[int | None], ...] = ([], [None, beam_size, length + 1], [None, beam_size], [None, beam_size])
    invariants = tuple(tf.TensorShape(shape) for shape in shapes)
    _, ids_BKL, log_p_BK, _ = tf.while_loop(is_unfinished, extend, state, invariants)
    num_symbols_BK = tf.reduce_sum(tf.cast(tf.not_equal(ids_BKL[..., 1:], PADDING_ID), tf.float32), axis=2)
    best_B = tf.argmax(log_p_BK / ((5 + num_symbols_BK) / 6) ** length_penalty, axis=1)
    return tf.gather(ids_BKL[..., 1:], best_B, axis=1, batch_dims=1)


def _extend(
    logits_NV: tf.Tensor, at: tf.Tensor, ids_BKL: tf.Tensor, log_p_BK: tf.Tensor, is_done_BK: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Extends hypotheses by a symbol and keeps the best K of each example.

    Args:
        logits_NV: float32 [N, V], logits of the next symbol.
        at: int32 [], position of the last symbol.
        ids_BKL: int64 [B, K, L + 1], hypotheses.
        log_p_BK: float32 [B, K], their log probabilities.
        is_done_BK: bool [B, K], whether they have ended.

    Returns:
        New values of the last three arguments.
    """
    beam_size, length, size = int(ids_BKL.shape[1]), int(ids_BKL.shape[2]), int(logits_NV.shape[1])
    may_follow_V = tf.constant(~np.isin(np.arange(size), [PADDING_ID, START_ID]))
    next_NV = tf.nn.log_softmax(tf.where_v2(may_follow_V, logits_NV, _MASKED_LOG_P))
    next_BKV = tf.reshape(next_NV, [-1, beam_size, size])
    # A finished text continues with padding only, at no cost. With more continuations its copies would fill the beam.
    only_padding_V = tf.constant(np.where(np.arange(size) == PADDING_ID, 0, _MASKED_LOG_P), tf.float32)
    next_BKV = tf.where_v2(is_done_BK[..., tf.newaxis], only_padding_V, next_BKV)
    total_BS = tf.reshape(log_p_BK[..., tf.newaxis] + next_BKV, [-1, beam_size * size])
    log_p_BK, choice_BK = tf.nn.top_k(total_BS, beam_size)
    # A choice is a number in K * V: the hypothesis that is extended, and the symbol.
    symbol_BK = tf.cast(choice_BK % size, tf.int64)
    ids_BKL = tf.gather(ids_BKL, choice_BK // size, axis=1, batch_dims=1)
    ids_BKL = tf.where_v2(tf.equal(tf.range(length), at + 1), symbol_BK[..., tf.newaxis], ids_BKL)
    was_done_BK = tf.gather(is_done_BK, choice_BK // size, axis=1, batch_dims=1)
    return ids_BKL, log_p_BK, tf.logical_or(was_done_BK, tf.equal(symbol_BK, END_ID))

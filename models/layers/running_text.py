"""Losses of word vectors over running text: all pairs of near words of a batch, as products of matrices.

Shape suffixes: B example, L word of an example, N block of an example, K word of a block, F word in or near a block
(K + 2 W), P place near a word (2 W + 1, the rightmost first), D features, S sample.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow.compat.v1 as tf

from .sampled import SAMPLERS

BLOCK = 32
"""Least number of words whose scores with the words near them one product computes."""

PAIR_LOSSES = ("negative_sampling", "nce")
"""Losses that `pair_loss` computes: those that are sums over a pair's words."""


def pair_loss(
    word_BL: tf.Tensor,
    reach_BL: tf.Tensor,
    window: int,
    hidden: Callable[[tf.Tensor], tf.Tensor],
    output: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
    *,
    vocab_size: int,
    num_sampled: int,
    loss: str = "negative_sampling",
    sampler: str = "log_uniform",
    sample_weight: float = 1.0,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the loss of `sampled_loss`, summed over the pairs of each example, without a row for each pair.

    The pairs of word i are those with the words i - `reach` .. i + `reach`, except itself. A row per distinct word is
    looked up, and spread once for each word of the text. So the cost of a word hardly grows with the number of its
    pairs. A word n of the sample counts as often as word i has pairs whose other word is not n.

    Args:
        word_BL: int64 [B, L], ids of consecutive words, then any ids as padding.
        reach_BL: int64 [B, L], number of words on each side that a word is paired with, at least 1; 0 = padding.
        window: Largest `reach`, W; a larger one counts as W.
        hidden: Function of words, int64 [B, L], that returns their h, float32 [B, L, D].
        output: Function of classes, int64 [N], that returns their v, float32 [N, D], and b, float32 [N].
        vocab_size: Number of classes.
        num_sampled: Size of the sample, S, drawn once for the batch and without repetition.
        loss: One of `PAIR_LOSSES`.
        sampler: Distribution of the sample, one of `SAMPLERS`.
        sample_weight: Factor of the losses of the sample.

    Returns:
        (loss, number of pairs), float32 [B] each.
    """
    is_word_BL = reach_BL > 0
    reach_BL = tf.minimum(reach_BL, window)
    shape, flat = tf.shape(word_BL), tf.reshape(word_BL, [-1])
    sample_S, expected, expected_S = SAMPLERS[sampler](
        flat[:, tf.newaxis], 1, num_sampled, unique=True, range_max=vocab_size
    )
    sample_S = tf.stop_gradient(sample_S)
    vectors, biases = output(tf.concat([flat, sample_S], axis=0))
    # Split, not sliced: the gradient of a split joins its parts, without zeros that are added up.
    sizes = [tf.size(flat), num_sampled]
    (vectors, vector_SD), (biases, bias_S) = tf.split(vectors, sizes), tf.split(biases, sizes)
    h_BLD = hidden(word_BL)
    vector_BLD = tf.reshape(vectors, tf.shape(h_BLD))
    shift_BL, shift_S = tf.reshape(biases, shape), bias_S
    if loss != "negative_sampling":
        shift_BL -= tf.math.log(tf.reshape(expected, shape))
        shift_S -= tf.math.log(expected_S)
    is_pair_BPL = _pairs(is_word_BL, reach_BL, window)
    pair_BPL = tf.cast(is_pair_BPL, tf.float32)
    right_BPL = _near_scores(h_BLD, vector_BLD, window) + tf.stack(_moved(shift_BL, window), axis=1)
    count_BL = tf.reduce_sum(pair_BPL, axis=1)
    wrong_BLS = tf.reshape(
        tf.matmul(tf.reshape(h_BLD, [-1, h_BLD.shape[-1]]), vector_SD, transpose_b=True) + shift_S,
        tf.concat([shape, [num_sampled]], axis=0),
    )
    weight_BLS = count_BL[..., tf.newaxis] - _pairs_with(word_BL, is_word_BL, reach_BL, sample_S)
    # softplus(-x) = -log sigma(x), but log(sigma(x)) would be -inf where sigma(x) is rounded to 0.
    loss_B = tf.reduce_sum(pair_BPL * tf.nn.softplus(-right_BPL), axis=[1, 2])
    loss_B += sample_weight * tf.reduce_sum(weight_BLS * tf.nn.softplus(wrong_BLS), axis=[1, 2])
    return loss_B, tf.reduce_sum(count_BL, axis=1)


def contexts(word_BL: tf.Tensor, reach_BL: tf.Tensor, window: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the words near each word, for losses that need a row for each pair.

    Args:
        word_BL: As for `pair_loss`.
        reach_BL: As for `pair_loss`.
        window: As for `pair_loss`.

    Returns:
        (words, which of them are paired with the word), int64 and bool [B, L, 2 W + 1]; place W is the word itself.
    """
    is_pair_BPL = _pairs(reach_BL > 0, tf.minimum(reach_BL, window), window)
    return tf.stack(_moved(word_BL, window), axis=2), tf.transpose(is_pair_BPL, [0, 2, 1])


def _moved(value_BL: tf.Tensor, window: int) -> list[tf.Tensor]:
    """Returns for each place P the value of the word there, 0 beyond the ends: [B, L] each."""
    padded = tf.pad(value_BL, [[0, 0], [window, window]])
    length = tf.shape(value_BL)[1]
    return [padded[:, at : at + length] for at in range(2 * window, -1, -1)]


def _pairs(is_word_BL: tf.Tensor, reach_BL: tf.Tensor, window: int) -> tf.Tensor:
    """Returns which words near a word it is paired with, bool [B, P, L]."""
    is_near = [(reach_BL >= abs(at)) if at else tf.zeros_like(is_word_BL) for at in range(window, -window - 1, -1)]
    return tf.stack(is_near, axis=1) & tf.stack(_moved(is_word_BL, window), axis=1)


def _near_scores(h_BLD: tf.Tensor, vector_BLD: tf.Tensor, window: int) -> tf.Tensor:
    """Computes h[i] . v[j] for each word i and each word j near it, float32 [B, P, L]."""
    size, dim = max(BLOCK, 2 * window), h_BLD.shape[-1]
    # The batch's size is named, not -1, which is 0 where the examples have no words.
    batch, length = tf.shape(h_BLD)[0], tf.shape(h_BLD)[1]
    missing = tf.math.floormod(-length, size)
    number = (length + missing) // size
    h_BNKD = tf.reshape(tf.pad(h_BLD, [[0, 0], [0, missing], [0, 0]]), [batch, number, size, dim])
    # One more block, so that each block is followed by the first words of the next one.
    padded = tf.pad(vector_BLD, [[0, 0], [window, missing + size - window], [0, 0]])
    blocks = tf.reshape(padded, [batch, number + 1, size, dim])
    vector_BNFD = tf.concat([blocks[:, :-1], blocks[:, 1:, : 2 * window]], axis=2)
    scores_BNKF = tf.matmul(h_BNKD, vector_BNFD, transpose_b=True)
    # Diagonal k of a block holds the scores of each word with the word k - W places to its right.
    scores_BNPK = tf.linalg.diag_part(scores_BNKF, k=(0, 2 * window))
    places = 2 * window + 1
    scores = tf.reshape(tf.transpose(scores_BNPK, [0, 2, 1, 3]), [batch, places, number * size])
    return scores[:, :, :length]


def _pairs_with(word_BL: tf.Tensor, is_word_BL: tf.Tensor, reach_BL: tf.Tensor, sample_S: tf.Tensor) -> tf.Tensor:
    """Counts the pairs of each word whose other word is the word n of the sample, float32 [B, L, S]."""
    is_BLS = tf.equal(tf.where_v2(is_word_BL, word_BL, -1)[..., tf.newaxis], sample_S)
    found_BLS = tf.cast(is_BLS, tf.float32)
    # The words from one place to another are the difference of two sums from the beginning.
    before = tf.pad(tf.cumsum(found_BLS, axis=1), [[0, 0], [1, 0], [0, 0]])
    length = tf.shape(word_BL, out_type=tf.int64)[1]
    at_L = tf.range(length)
    first_BL, last_BL = tf.maximum(at_L - reach_BL, 0), tf.minimum(at_L + reach_BL, length - 1)
    return (
        tf.gather(before, last_BL + 1, batch_dims=1)
        - tf.gather(before, first_BL, batch_dims=1)
        - found_BLS * tf.cast(is_word_BL, tf.float32)[..., tf.newaxis]
    )

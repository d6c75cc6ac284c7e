"""Losses against a sample of the classes, where there are too many to compare with all of them.

Shape suffixes: B batch, T classes to be told of an example, D features, S sample.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow.compat.v1 as tf

SAMPLED_LOSSES = ("negative_sampling", "nce", "sampled_softmax")
SAMPLERS = {
    "log_uniform": tf.random.log_uniform_candidate_sampler,
    "uniform": tf.random.uniform_candidate_sampler,
}
_MASKED_SCORE = -1e9  # as a logit


def sampled_loss(
    h_BD: tf.Tensor,
    told_BT: tf.Tensor,
    output: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
    *,
    vocab_size: int,
    num_sampled: int,
    loss: str = "sampled_softmax",
    sampler: str = "log_uniform",
) -> tf.Tensor:
    """The loss of telling classes t against `num_sampled` others n, drawn for the whole batch.

    With s(w) = h . v[w] + b[w], and those n left out that are t,

        negative_sampling   -log sigma(s(t)) - sum of log sigma(-s(n))
        nce                 the same with s(w) - log(expected number of w in the sample) in place of s(w)
        sampled_softmax     -log(exp s(t) / (exp s(t) + sum of exp s(n))), with the same

    Source: see `models.word2vec`.

    Args:
        h_BD: float32 [B, D].
        told_BT: int64 [B, T].
        output: gives for class numbers, int64 [N], their v, float32 [N, D], and b, float32 [N]; called once, so that
            of tables only the rows of these classes travel.
        vocab_size: number of classes.
        num_sampled: S, at most `vocab_size`; drawn without repetition.
        loss: one of `SAMPLED_LOSSES`.
        sampler: one of `SAMPLERS`; log_uniform is for classes that are numbered from the most frequent one on.

    Returns:
        float32 [B, T].
    """
    told = tf.reshape(told_BT, [-1, 1])
    sample_S, expected_told, expected_S = SAMPLERS[sampler](told, 1, num_sampled, unique=True, range_max=vocab_size)
    sample_S = tf.stop_gradient(sample_S)
    num_told = tf.shape(told)[0]
    vectors, biases = output(tf.concat([told[:, 0], sample_S], axis=0))
    shape = tf.shape(told_BT)
    vector_BTD = tf.reshape(vectors[:num_told], tf.concat([shape, [h_BD.shape[1]]], axis=0))
    right_BT = tf.einsum("bd,btd->bt", h_BD, vector_BTD) + tf.reshape(biases[:num_told], shape)
    wrong_BS = tf.matmul(h_BD, vectors[num_told:], transpose_b=True) + biases[num_told:]
    if loss != "negative_sampling":
        right_BT -= tf.math.log(tf.reshape(expected_told, shape))
        wrong_BS -= tf.math.log(expected_S)
    is_told_BTS = tf.equal(told_BT[..., tf.newaxis], sample_S)
    wrong_BTS = tf.where_v2(is_told_BTS, _MASKED_SCORE, wrong_BS[:, tf.newaxis])
    if loss == "sampled_softmax":
        all_logits = tf.concat([right_BT[..., tf.newaxis], wrong_BTS], axis=2)
        return tf.reduce_logsumexp(all_logits, axis=2) - right_BT
    return tf.nn.softplus(-right_BT) + tf.reduce_sum(tf.nn.softplus(wrong_BTS), axis=2)

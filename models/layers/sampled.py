"""Losses against a sample of the classes, for models with too many classes to compute all logits.

Shape suffixes: B batch, T true classes of an example, D features, S sample.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow.compat.v1 as tf

SAMPLED_LOSSES = ("negative_sampling", "nce", "sampled_softmax")
"""Names of the losses."""

SAMPLERS = {
    "log_uniform": tf.random.log_uniform_candidate_sampler,
    "uniform": tf.random.uniform_candidate_sampler,
}
"""Distributions of the sample, by name."""

_MASKED_LOGIT = -1e9  # a probability of 0; finite, so that no gradient becomes NaN


def sampled_loss(
    h_BD: tf.Tensor,
    true_BT: tf.Tensor,
    output: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
    *,
    vocab_size: int,
    num_sampled: int,
    loss: str = "sampled_softmax",
    sampler: str = "log_uniform",
    sample_weight: float = 1.0,
) -> tf.Tensor:
    """Computes the loss of true classes t against `num_sampled` sampled classes n, one sample for the whole batch.

    With s(w) = h . v[w] + b[w], and without those n that equal t,

        negative_sampling   -log sigma(s(t)) - sum of log sigma(-s(n))
        nce                 the same with s(w) - log(expected number of w in the sample) in place of s(w)
        sampled_softmax     -log(exp s(t) / (exp s(t) + sum of exp s(n))), with the same

    Source: T. Mikolov et al., "Distributed Representations of Words and Phrases and their Compositionality", NIPS 2013;
    M. Gutmann, A. Hyvärinen, "Noise-contrastive estimation", AISTATS 2010; S. Jean et al., "On Using Very Large Target
    Vocabulary for Neural Machine Translation", ACL 2015.

    Args:
        h_BD: float32 [B, D], features of the examples.
        true_BT: int64 [B, T], true classes.
        output: Function of classes, int64 [N], that returns their v, float32 [N, D], and b, float32 [N]. It is called
            once, so only the rows of these classes travel if v and b are tables.
        vocab_size: Number of classes.
        num_sampled: Size of the sample, S, at most `vocab_size`; drawn without repetition.
        loss: Name of the loss, one of `SAMPLED_LOSSES`.
        sampler: Distribution of the sample, one of `SAMPLERS`; log_uniform is for classes sorted by frequency.
        sample_weight: Factor of the sum over the sample; sampled_softmax has none.

    Returns:
        float32 [B, T].
    """
    true = tf.reshape(true_BT, [-1, 1])
    sample_S, expected_true, expected_S = SAMPLERS[sampler](true, 1, num_sampled, unique=True, range_max=vocab_size)
    sample_S = tf.stop_gradient(sample_S)
    num_true = tf.shape(true)[0]
    vectors, biases = output(tf.concat([true[:, 0], sample_S], axis=0))
    shape = tf.shape(true_BT)
    # Split, not sliced: the gradient of a split joins its parts, without zeros that are added up.
    true_vectors, vectors_SD = tf.split(vectors, [num_true, num_sampled])
    true_biases, biases_S = tf.split(biases, [num_true, num_sampled])
    vector_BTD = tf.reshape(true_vectors, tf.concat([shape, [h_BD.shape[1]]], axis=0))
    right_BT = tf.einsum("bd,btd->bt", h_BD, vector_BTD) + tf.reshape(true_biases, shape)
    wrong_BS = tf.matmul(h_BD, vectors_SD, transpose_b=True) + biases_S
    if loss != "negative_sampling":
        right_BT -= tf.math.log(tf.reshape(expected_true, shape))
        wrong_BS -= tf.math.log(expected_S)
    is_true_BTS = tf.equal(true_BT[..., tf.newaxis], sample_S)
    wrong_BTS = tf.where_v2(is_true_BTS, _MASKED_LOGIT, wrong_BS[:, tf.newaxis])
    if loss == "sampled_softmax":
        all_logits = tf.concat([right_BT[..., tf.newaxis], wrong_BTS], axis=2)
        # In this form no exponential overflows, and no logarithm gets a probability that was rounded to 0.
        return tf.reduce_logsumexp(all_logits, axis=2) - right_BT
    # softplus(-x) = -log sigma(x), but log(sigma(x)) would be -inf where sigma(x) is rounded to 0.
    of_sample_BT = tf.reduce_sum(tf.nn.softplus(wrong_BTS), axis=2)
    # Without the product of 1, which is a separate op.
    return tf.nn.softplus(-right_BT) + (of_sample_BT if sample_weight == 1 else sample_weight * of_sample_BT)

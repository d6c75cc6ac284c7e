"""Output of a model, and losses that models share.

Shape suffixes: B batch, N classes.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow.compat.v1 as tf

from .pooled import Pooled


class ModelOutput(NamedTuple):
    """Output of a model's `build`.

    Attributes:
        loss: Scalar float32 that training minimises: the mean over the batch's examples or over other terms.
        predictions: [B, ...]; of a classifier the probability of each class, float32 [B, N].
        metrics: float32 [B] by name, one value per example. Evaluation reports the mean over all examples.
        pooled: Metrics by name that are computed from all test examples together, because they are not means.
        loss_weight: Scalar, the number of terms that the loss is the mean of. Needed if batches of the same size differ
            in it, as in the number of symbols of texts. Evaluation weighs batches by it. If empty, evaluation weighs
            them by their numbers of examples. (Empty instead of None, so that a session can run the whole output.)
    """

    loss: tf.Tensor
    predictions: tf.Tensor
    metrics: dict[str, tf.Tensor]
    pooled: dict[str, Pooled] = {}
    loss_weight: tf.Tensor | tuple[()] = ()


def classifier_output(logits_BN: tf.Tensor, label_B: tf.Tensor) -> ModelOutput:
    """Returns mean softmax cross-entropy, class probabilities, and "accuracy".

    Args:
        logits_BN: float32 [B, N].
        label_B: int64 [B], 0 <= label < N. Any other label ends the run with an error (CPU) or a NaN loss (GPU).
    """
    loss_B = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label_B, logits=logits_BN)
    is_right_B = tf.equal(tf.argmax(logits_BN, axis=1, output_type=label_B.dtype), label_B)
    return ModelOutput(
        loss=tf.reduce_mean(loss_B),
        predictions=tf.nn.softmax(logits_BN),
        metrics={"accuracy": tf.cast(is_right_B, tf.float32)},
    )


def weight_decay(rate: float) -> tf.Tensor:
    """Returns `rate / 2` times the sum of the squares of all trained variables with two dimensions or more.

    A model adds it to the loss after it has built all layers. Biases have one dimension and do not count. An embedding
    table does count, and its gradient becomes as large as the table.
    """
    kernels = [kernel for kernel in tf.trainable_variables() if kernel.shape.rank > 1]
    return rate * tf.add_n([tf.nn.l2_loss(kernel) for kernel in kernels])

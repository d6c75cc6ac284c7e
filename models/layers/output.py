"""What a model gives, and losses that models share.

Shape suffixes: B batch, N classes.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow.compat.v1 as tf

from .pooled import Pooled


class ModelOutput(NamedTuple):
    """What `build` of a model gives.

    Attributes:
        loss: scalar float32, the mean over the batch's examples or other terms; what training makes small.
        predictions: [B, ...]; a classifier gives the probability of each class, float32 [B, N].
        metrics: name -> float32 [B], one value per example; its mean over the data is what is reported.
        pooled: name -> a metric of all test examples together, for one that is no mean over them.
        loss_weight: scalar; how many terms the loss is the mean of, where their number differs between batches of the
            same size, such as the symbols of texts. Evaluation weighs batches by it; empty: by their examples. (Not
            None, so that a session can run the whole output.)
    """

    loss: tf.Tensor
    predictions: tf.Tensor
    metrics: dict[str, tf.Tensor]
    pooled: dict[str, Pooled] = {}
    loss_weight: tf.Tensor | tuple[()] = ()


def classifier_output(logits_BN: tf.Tensor, label_B: tf.Tensor) -> ModelOutput:
    """Mean softmax cross-entropy, class probabilities, and "accuracy".

    Args:
        logits_BN: float32 [B, N].
        label_B: int64 [B], 0 <= label < N; another label ends the run with an error (on a CPU) or a loss of NaN.
    """
    loss_B = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label_B, logits=logits_BN)
    is_right_B = tf.equal(tf.argmax(logits_BN, axis=1, output_type=label_B.dtype), label_B)
    return ModelOutput(
        loss=tf.reduce_mean(loss_B),
        predictions=tf.nn.softmax(logits_BN),
        metrics={"accuracy": tf.cast(is_right_B, tf.float32)},
    )


def weight_decay(rate: float) -> tf.Tensor:
    """`rate / 2` times the sum of the squares of all that is trained and has two dimensions or more: of no bias.

    To be added to the loss, after all layers have been built. An embedding table is among them; its gradient is then
    as large as the table.
    """
    kernels = [kernel for kernel in tf.trainable_variables() if kernel.shape.rank > 1]
    return rate * tf.add_n([tf.nn.l2_loss(kernel) for kernel in kernels])

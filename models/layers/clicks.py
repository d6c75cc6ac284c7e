"""Parts of models that predict one of two classes from sparse features, such as clicks.

Shape suffixes: B batch, C columns of categories, V vectors of an example, F factors.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from .output import ModelOutput
from .pooled import roc_auc
from .tables import assert_ids


def column_rows(table_name: str, ids_BC: tf.Tensor, num_buckets: int) -> tf.Tensor:
    """Computes the rows of ids in a table that holds `num_buckets` rows for each column, one column after the other.

    With one table, a step needs one look-up instead of one for each column.

    Args:
        table_name: Name of the table, for the message about an id out of range.
        ids_BC: int64 [B, C], 0 <= id < num_buckets.
        num_buckets: Number of ids in each column.

    Returns:
        int64 [B, C].

    Raises:
        tf.errors.InvalidArgumentError: While the graph runs, if an id is out of range: its row is that of another
            column.
    """
    first_C = num_buckets * tf.range(ids_BC.shape[1], dtype=tf.int64)
    with tf.control_dependencies([assert_ids(table_name, num_buckets, "num_buckets", ids_BC)]):
        return ids_BC + first_C


def pair_products(x_BVF: tf.Tensor) -> tf.Tensor:
    """Computes the sum of the dot products of all pairs of an example's vectors, in time linear in their number.

    Source: S. Rendle, "Factorization Machines", ICDM 2010, lemma 3.1.

    Args:
        x_BVF: float32 [B, V, F].

    Returns:
        float32 [B].
    """
    square_of_sum_BF = tf.reduce_sum(x_BVF, axis=1) ** 2
    sum_of_squares_BF = tf.reduce_sum(x_BVF**2, axis=1)
    return tf.reduce_sum(square_of_sum_BF - sum_of_squares_BF, axis=1) / 2


def click_output(logit_B: tf.Tensor, label_B: tf.Tensor) -> ModelOutput:
    """Builds the output of a model of two classes.

    Args:
        logit_B: float32 [B], the logit of label 1.
        label_B: int64 [B], 0 or 1.

    Returns:
        Mean log loss; the probability of label 1, float32 [B]; "accuracy", "log_loss", and "auc" of all examples.
    """
    loss_B = tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.cast(label_B, tf.float32), logits=logit_B)
    is_right_B = tf.equal(logit_B > 0, label_B > 0)
    return ModelOutput(
        loss=tf.reduce_mean(loss_B),
        predictions=tf.sigmoid(logit_B),
        metrics={"accuracy": tf.cast(is_right_B, tf.float32), "log_loss": loss_B},
        pooled={"auc": roc_auc(logit_B, label_B)},
    )

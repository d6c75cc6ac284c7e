"""Metrics that are computed from all test examples together, because they are not means over examples.

Shape suffixes: B batch; n all examples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf


class Pooled(NamedTuple):
    """A metric that is computed at the end, from the tensors of all batches.

    Attributes:
        tensors: Tensors [B, ...] of a batch; all batches have the same dimensions except the first.
        compute: Function of the arrays [n, ...] of all batches, joined, that returns a number.
    """

    tensors: tuple[tf.Tensor, ...]
    compute: Callable[..., float]


def roc_auc(score_B: tf.Tensor, label_B: tf.Tensor) -> Pooled:
    """Returns the area under the ROC curve as a pooled metric.

    Args:
        score_B: float32 [B], higher if label 1 is more likely.
        label_B: int64 [B], 0 or 1.
    """
    return Pooled((score_B, label_B), area_under_roc)


def area_under_roc(score_n: np.ndarray, label_n: np.ndarray) -> float:
    """Computes the probability that an example with label 1 has a higher score than one with label 0.

    Equal scores count half.

    Source: J. A. Hanley, B. J. McNeil, "The meaning and use of the area under a receiver operating characteristic (ROC)
    curve", Radiology 143, 1982: it is the Wilcoxon statistic.

    Args:
        score_n: float [n], scores of the examples.
        label_n: [n], 0 or 1.

    Returns:
        Area in 0..1; NaN if all labels are the same.
    """
    _, place_n, counts = np.unique(score_n, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    rank_n = (last - (counts - 1) / 2)[place_n]  # from 1; equal scores get the mean of their ranks
    num_ones = np.count_nonzero(label_n)
    num_pairs = num_ones * (len(label_n) - num_ones)
    if not num_pairs:
        # Without pairs the area is undefined. NaN meets no bound, so a target metric cannot be reached by it.
        return float("nan")
    return float((rank_n[label_n > 0].sum() - num_ones * (num_ones + 1) / 2) / num_pairs)

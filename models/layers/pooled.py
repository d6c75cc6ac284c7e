"""Metrics of all test examples together, where these are no mean over examples.

Shape suffixes: B batch; n all examples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf


class Pooled(NamedTuple):
    """A metric that is computed at the end, from what each batch gives.

    Attributes:
        tensors: [B, ...] each; all but the first dimension are the same in each batch.
        compute: from the arrays [n, ...] of all batches, joined, to a number.
    """

    tensors: tuple[tf.Tensor, ...]
    compute: Callable[..., float]


def roc_auc(score_B: tf.Tensor, label_B: tf.Tensor) -> Pooled:
    """The area under the ROC curve.

    Args:
        score_B: float32 [B], higher where label 1 is more likely.
        label_B: int64 [B], 0 or 1.
    """
    return Pooled((score_B, label_B), area_under_roc)


def area_under_roc(score_n: np.ndarray, label_n: np.ndarray) -> float:
    """The chance that an example with label 1 has a higher score than one with label 0; equal scores count half.

    Source: J. A. Hanley, B. J. McNeil, "The meaning and use of the area under a receiver operating characteristic (ROC)
    curve", Radiology 143, 1982: it is the Wilcoxon statistic.

    Args:
        score_n: float [n].
        label_n: [n], 0 or 1.

    Returns:
        0..1; NaN where all labels are the same.
    """
    _, place_n, counts = np.unique(score_n, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    rank_n = (last - (counts - 1) / 2)[place_n]  # from 1; equal scores share the middle of their ranks
    num_ones = np.count_nonzero(label_n)
    num_pairs = num_ones * (len(label_n) - num_ones)
    if not num_pairs:
        return float("nan")
    return float((rank_n[label_n > 0].sum() - num_ones * (num_ones + 1) / 2) / num_pairs)

"""Attention, and the blocks that transformers are made of.

A mask is a bool tensor that broadcasts to [B, H, Q, K], True where query q may look at key k.

Shape suffixes: B batch, T positions, Q positions that ask, K positions that are asked, D features, H heads, E features
of a head.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow.compat.v1 as tf

from .feedforward import dense, dropout, layer_norm

_MASKED_SCORE = -1e9  # as a score


def multi_head_attention(
    x_BQD: tf.Tensor, memory_BKD: tf.Tensor, num_heads: int, name: str, mask: tf.Tensor | None = None
) -> tf.Tensor:
    """Attention of `x` to `memory` with `num_heads` heads; to itself where the two are the same.

        head h   softmax(q k^T / sqrt(E)) v      q = x @ query, k = memory @ key, v = memory @ value, the h-th E of each
        output   the heads side by side @ output

    A query that may look nowhere sees the mean of all.

    Variables: `<name>/query`, `key`, `value`, `output`, dense layers of D units.

    Source: A. Vaswani et al., "Attention Is All You Need", NIPS 2017, section 3.2.

    Args:
        x_BQD: float32 [B, Q, D]; D is known when the graph is built.
        memory_BKD: float32 [B, K, any].
        num_heads: H; divides D.
        name: variable scope.
        mask: bool, broadcasts to [B, H, Q, K]; None = everyone may look everywhere.

    Returns:
        float32 [B, Q, D].

    Raises:
        ValueError: `num_heads` does not divide D.
    """
    dim = int(x_BQD.shape[-1])
    if dim % num_heads:
        raise ValueError(f"attention {name!r}: num_heads={num_heads} does not divide the {dim} features")
    with tf.variable_scope(name):
        query_BHQE = _split(dense(x_BQD, dim, "query"), num_heads)
        key_BHKE = _split(dense(memory_BKD, dim, "key"), num_heads)
        value_BHKE = _split(dense(memory_BKD, dim, "value"), num_heads)
        score_BHQK = tf.matmul(query_BHQE, key_BHKE, transpose_b=True) * (dim // num_heads) ** -0.5
        if mask is not None:
            score_BHQK = tf.where_v2(mask, score_BHQK, _MASKED_SCORE)
        seen_BHQE = tf.matmul(tf.nn.softmax(score_BHQK), value_BHKE)
        return dense(_join(seen_BHQE), dim, "output")


def transformer_block(
    x_BTD: tf.Tensor,
    *,
    num_heads: int,
    hidden: int,
    name: str,
    training: bool,
    mask: tf.Tensor | None = None,
    memory_BKD: tf.Tensor | None = None,
    memory_mask: tf.Tensor | None = None,
    dropout_rate: float = 0.0,
    activation: Callable[[tf.Tensor], tf.Tensor] = tf.nn.relu,
) -> tf.Tensor:
    """A layer of a transformer: attention to itself, attention to `memory` if there is one, and a feed-forward part.

    Each part reads layer_norm(x), and what it gives is added to x, after dropout. (In the paper of 2017 the norm stands
    behind the addition, which needs a rate that rises slowly.) After the last block the caller norms once more.

    Source: A. Vaswani et al., 2017; R. Xiong et al., "On Layer Normalization in the Transformer Architecture", ICML
    2020 (figure 1b).

    Args:
        x_BTD: float32 [B, T, D].
        num_heads: of each attention.
        hidden: units of the feed-forward part.
        name: variable scope.
        training: whether there is dropout.
        mask: where a position may look among its own kind: see the module's docstring.
        memory_BKD: float32 [B, K, D], what a decoder looks at; None for none.
        memory_mask: where a position may look in `memory_BKD`.
        dropout_rate: 0 <= rate < 1.
        activation: of the hidden units.

    Returns:
        float32 [B, T, D].
    """
    with tf.variable_scope(name):
        y_BTD = layer_norm(x_BTD, "norm")
        y_BTD = multi_head_attention(y_BTD, y_BTD, num_heads, "attention", mask)
        x_BTD += dropout(y_BTD, dropout_rate, training=training)
        if memory_BKD is not None:
            y_BTD = layer_norm(x_BTD, "memory_norm")
            y_BTD = multi_head_attention(y_BTD, memory_BKD, num_heads, "memory_attention", memory_mask)
            x_BTD += dropout(y_BTD, dropout_rate, training=training)
        y_BTD = dense(layer_norm(x_BTD, "hidden_norm"), hidden, "hidden", activation)
        return x_BTD + dropout(dense(y_BTD, int(x_BTD.shape[-1]), "out"), dropout_rate, training=training)


def causal_mask(length: int) -> tf.Tensor:
    """Mask [1, 1, length, length] by which a position sees itself and those before it."""
    return tf.constant(np.tril(np.ones((1, 1, length, length), bool)))


def padding_mask(ids_BK: tf.Tensor, padding_id: int = 0) -> tf.Tensor:
    """Mask [B, 1, 1, K] by which nobody sees the positions that are filled up."""
    return tf.not_equal(ids_BK, padding_id)[:, tf.newaxis, tf.newaxis]


def sinusoidal_positions(length: int, dim: int) -> tf.Tensor:
    """float32 [length, dim]: position t as sin(t / 10000 ** (2 i / dim)) for i = 0, 1, …, then the cosines of these.

    Source: A. Vaswani et al., 2017, section 3.5, where sines and cosines take turns.

    Args:
        length: number of positions.
        dim: features, an even number.

    Raises:
        ValueError: `dim` is odd.
    """
    if dim % 2:
        raise ValueError(f"sinusoidal positions have an even number of features, got {dim}")
    angle = np.arange(length)[:, np.newaxis] / 10000 ** (np.arange(0, dim, 2) / dim)
    return tf.constant(np.concatenate([np.sin(angle), np.cos(angle)], axis=1), tf.float32)


def _split(x_BTD: tf.Tensor, num_heads: int) -> tf.Tensor:
    """[B, T, D] as [B, H, T, E]."""
    shape = tf.shape(x_BTD)
    size = int(x_BTD.shape[-1]) // num_heads
    return tf.transpose(tf.reshape(x_BTD, [shape[0], shape[1], num_heads, size]), [0, 2, 1, 3])


def _join(x_BHTE: tf.Tensor) -> tf.Tensor:
    """[B, H, T, E] as [B, T, D]."""
    shape = tf.shape(x_BHTE)
    dim = int(x_BHTE.shape[1]) * int(x_BHTE.shape[3])
    return tf.reshape(tf.transpose(x_BHTE, [0, 2, 1, 3]), [shape[0], shape[2], dim])

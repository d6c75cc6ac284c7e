"""Attention, and the blocks of transformers.

A mask is a bool tensor that broadcasts to [B, H, Q, K]. It is True where query q may attend to key k.

Shape suffixes: B batch, T positions, Q queries, K keys, D features, H heads, E features of a head.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from .feedforward import dense, dropout, layer_norm

_MASKED_SCORE = -1e9  # not -inf: a query that may attend to no key would have a softmax of NaN


def multi_head_attention(
    x_BQD: tf.Tensor, memory_BKD: tf.Tensor, num_heads: int, name: str, mask: tf.Tensor | None = None
) -> tf.Tensor:
    """Builds attention of `x` to `memory` with `num_heads` heads; self-attention if the two are the same.

        head h   softmax(q k^T / sqrt(E)) v      q = x @ query, k = memory @ key, v = memory @ value, the h-th E of each
        output   the concatenated heads @ output

    A query that the mask allows no key gets the mean of all values.

    Variables: `<name>/query`, `key`, `value`, `output`, dense layers of D units.

    Source: A. Vaswani et al., "Attention Is All You Need", NIPS 2017, section 3.2.

    Args:
        x_BQD: float32 [B, Q, D], with static D.
        memory_BKD: float32 [B, K, any].
        num_heads: Number of heads, H, which divides D.
        name: Name of the variable scope.
        mask: bool, broadcasts to [B, H, Q, K]; None = every query may attend to every key.

    Returns:
        float32 [B, Q, D].

    Raises:
        ValueError: `num_heads` does not divide D.
    """
    dim = int(x_BQD.shape[-1])
    if dim % num_heads:
        raise ValueError(f"attention {name!r}: num_heads={num_heads} does not divide the {dim} features")
    with tf.variable_scope(name):
        query_BHQE = _split_heads(dense(x_BQD, dim, "query"), num_heads)
        key_BHKE = _split_heads(dense(memory_BKD, dim, "key"), num_heads)
        value_BHKE = _split_heads(dense(memory_BKD, dim, "value"), num_heads)
        # A sum of E products has E times the variance of one, and the softmax of large scores has hardly any gradient.
        score_BHQK = tf.matmul(query_BHQE, key_BHKE, transpose_b=True) * (dim // num_heads) ** -0.5
        if mask is not None:
            score_BHQK = tf.where_v2(mask, score_BHQK, _MASKED_SCORE)
        seen_BHQE = tf.matmul(tf.nn.softmax(score_BHQK), value_BHKE)
        return dense(_merge_heads(seen_BHQE), dim, "output")


class BlockOptions(NamedTuple):
    """Settings that all blocks of a transformer share.

    Attributes:
        num_heads: Number of heads of each attention, which divides D.
        hidden: Number of units of the feed-forward part.
        dropout_rate: Share of the values to drop in training, 0 <= rate < 1.
        activation: Activation function of the hidden units.
    """

    num_heads: int
    hidden: int
    dropout_rate: float = 0.0
    activation: Callable[[tf.Tensor], tf.Tensor] = tf.nn.relu


class Memory(NamedTuple):
    """Output of an encoder, to which the blocks of a decoder attend.

    Attributes:
        x_BKD: float32 [B, K, D].
        mask: bool, broadcasts to [B, H, T, K], True where a position may attend to the memory; None = everywhere.
    """

    x_BKD: tf.Tensor
    mask: tf.Tensor | None = None


def transformer_block(
    x_BTD: tf.Tensor,
    options: BlockOptions,
    name: str,
    *,
    training: bool,
    mask: tf.Tensor | None = None,
    memory: Memory | None = None,
) -> tf.Tensor:
    """Builds a block of a transformer: self-attention, attention to `memory` if there is one, and a feed-forward part.

    Each part reads layer_norm(x), and its output is added to x, after dropout. (The paper of 2017 normalises after the
    addition, and then training needs a learning rate that rises slowly.) After the last block the caller has to
    normalise once more.

    Source: A. Vaswani et al., 2017; R. Xiong et al., "On Layer Normalization in the Transformer Architecture", ICML
    2020 (figure 1b).

    Args:
        x_BTD: float32 [B, T, D].
        options: Settings of the block.
        name: Name of the variable scope.
        training: Whether to apply dropout.
        mask: bool, broadcasts to [B, H, T, T], True where a position may attend to another; None = everywhere.
        memory: Output of an encoder, for a block of a decoder.

    Returns:
        float32 [B, T, D].
    """
    rate = options.dropout_rate
    with tf.variable_scope(name):
        y_BTD = layer_norm(x_BTD, "norm")
        y_BTD = multi_head_attention(y_BTD, y_BTD, options.num_heads, "attention", mask)
        x_BTD += dropout(y_BTD, rate, training=training)
        if memory is not None:
            y_BTD = layer_norm(x_BTD, "memory_norm")
            y_BTD = multi_head_attention(y_BTD, memory.x_BKD, options.num_heads, "memory_attention", memory.mask)
            x_BTD += dropout(y_BTD, rate, training=training)
        y_BTD = dense(layer_norm(x_BTD, "hidden_norm"), options.hidden, "hidden", options.activation)
        return x_BTD + dropout(dense(y_BTD, int(x_BTD.shape[-1]), "out"), rate, training=training)


def length_of(x_BT: tf.Tensor) -> int | tf.Tensor:
    """Returns the number of positions of sequences [B, T, ...]: a number if it is known, else an int32 scalar."""
    length = x_BT.shape.as_list()[1]
    return tf.shape(x_BT)[1] if length is None else length


def causal_mask(length: int | tf.Tensor) -> tf.Tensor:
    """Returns a mask [1, 1, length, length] that lets each position attend to itself and the positions before it."""
    if isinstance(length, int):
        return tf.constant(np.tril(np.ones((1, 1, length, length), bool)))
    at = tf.range(length)
    return (at[:, tf.newaxis] >= at)[tf.newaxis, tf.newaxis]


def padding_mask(ids_BK: tf.Tensor, padding_id: int = 0) -> tf.Tensor:
    """Returns a mask [B, 1, 1, K] that lets no position attend to padding."""
    return tf.not_equal(ids_BK, padding_id)[:, tf.newaxis, tf.newaxis]


def sinusoidal_positions(length: int | tf.Tensor, dim: int) -> tf.Tensor:
    """Encodes positions, float32 [length, dim]: sin(t / 10000 ** (2 i / dim)) for i = 0, 1, …, then the cosines.

    Source: A. Vaswani et al., 2017, section 3.5, where sines and cosines alternate.

    Args:
        length: Number of positions, or an int32 scalar.
        dim: Number of features, even.

    Raises:
        ValueError: `dim` is odd.
    """
    if dim % 2:
        raise ValueError(f"sinusoidal positions need an even number of features, got {dim}")
    divisor = 10000 ** (np.arange(0, dim, 2) / dim)
    if isinstance(length, int):
        angle = np.arange(length)[:, np.newaxis] / divisor
        return tf.constant(np.concatenate([np.sin(angle), np.cos(angle)], axis=1), tf.float32)
    angle_TE = tf.cast(tf.range(length), tf.float64)[:, tf.newaxis] / divisor
    return tf.cast(tf.concat([tf.sin(angle_TE), tf.cos(angle_TE)], axis=1), tf.float32)


def _split_heads(x_BTD: tf.Tensor, num_heads: int) -> tf.Tensor:
    """Reshapes [B, T, D] to [B, H, T, E]."""
    shape = tf.shape(x_BTD)
    size = int(x_BTD.shape[-1]) // num_heads
    return tf.transpose(tf.reshape(x_BTD, [shape[0], shape[1], num_heads, size]), [0, 2, 1, 3])


def _merge_heads(x_BHTE: tf.Tensor) -> tf.Tensor:
    """Reshapes [B, H, T, E] to [B, T, D]."""
    shape = tf.shape(x_BHTE)
    dim = int(x_BHTE.shape[1]) * int(x_BHTE.shape[3])
    return tf.reshape(tf.transpose(x_BHTE, [0, 2, 1, 3]), [shape[0], shape[2], dim])

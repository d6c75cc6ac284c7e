"""Recurrent layers: LSTM and GRU over whole sequences, forward, backward or both.

A layer is one `tf.while_loop` over time, so its size in the graph does not grow with the sequence. The body uses values
of variables that were read before the loop, because the parameter store returns tensors instead of variables.

Shape suffixes: B batch, T time, D features, U units, G units of all gates together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow.compat.v1 as tf


class Recurrence(NamedTuple):
    """Output of a recurrent layer.

    Attributes:
        output_BTU: float32 [B, T, U], h after each step; zeros after a sequence's end.
        state: (c, h) of an LSTM or (h,) of a GRU, each float32 [B, U], after the last step taken. A backward layer
            takes the first step of a sequence last.
    """

    output_BTU: tf.Tensor
    state: tuple[tf.Tensor, ...]


def lstm(
    x_BTD: tf.Tensor,
    units: int,
    name: str,
    *,
    length_B: tf.Tensor | None = None,
    is_backward: bool = False,
    state: tuple[tf.Tensor, ...] | None = None,
    forget_bias: float = 1.0,
) -> Recurrence:
    """Builds long short-term memory, without peepholes.

        i, f, g, o = [x_t, h] @ kernel + bias
        c = sigmoid(f + forget_bias) * c + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)

    Source: S. Hochreiter, J. Schmidhuber, "Long Short-Term Memory", Neural Computation 9(8), 1997; F. Gers et al.,
    "Learning to Forget", 2000; W. Zaremba et al., "Recurrent Neural Network Regularization", 2014.

    Variables: `<name>/kernel` [D + U, 4 U], Glorot uniform; `<name>/bias` [4 U], zeros.

    Args:
        x_BTD: float32 [B, T, D], with static D.
        units: Number of units, U.
        name: Name of the variable scope.
        length_B: int32 or int64 [B], number of steps of each sequence, at most T; None = T.
        is_backward: Whether to go from each sequence's own last step to its first.
        state: (c, h) before the first step taken, each float32 [B, U]; None = zeros.
        forget_bias: Number added to f, so that the forget gate of a new layer is open and it remembers.

    Raises:
        ValueError: `x_BTD` is not of rank 3, or D is unknown.
    """

    def step(x_BG: tf.Tensor, state: tuple[tf.Tensor, ...], kernel_UG: tf.Tensor) -> tuple[tf.Tensor, ...]:
        c_BU, h_BU = state
        # `_recur` has computed the input's part and the bias, x_BG, for all steps at once.
        i_BU, f_BU, g_BU, o_BU = tf.split(x_BG + tf.matmul(h_BU, kernel_UG), 4, axis=1)
        c_BU = tf.sigmoid(f_BU + forget_bias) * c_BU + tf.sigmoid(i_BU) * tf.tanh(g_BU)
        return c_BU, tf.sigmoid(o_BU) * tf.tanh(c_BU)

    state = state or _zeros(x_BTD, units, count=2)
    return _recur(step, x_BTD, units, 4 * units, name, length_B=length_B, is_backward=is_backward, state=state)


def gru(
    x_BTD: tf.Tensor,
    units: int,
    name: str,
    *,
    length_B: tf.Tensor | None = None,
    is_backward: bool = False,
    state: tuple[tf.Tensor, ...] | None = None,
) -> Recurrence:
    """Builds a gated recurrent unit as first published, with the reset gate before the matrix product.

        r, u = sigmoid([x_t, h] @ kernel[:, :2U] + bias[:2U])
        g = tanh([x_t, r * h] @ kernel[:, 2U:] + bias[2U:])
        h = u * h + (1 - u) * g

    Source: K. Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine
    Translation", EMNLP 2014.

    Variables: `<name>/kernel` [D + U, 3 U], Glorot uniform; `<name>/bias` [3 U], zeros.

    Args:
        x_BTD: float32 [B, T, D], with static D.
        units: Number of units, U.
        name: Name of the variable scope.
        length_B: int32 or int64 [B], number of steps of each sequence, at most T; None = T.
        is_backward: Whether to go from each sequence's own last step to its first.
        state: (h,) before the first step taken, float32 [B, U]; None = zeros.

    Raises:
        ValueError: `x_BTD` is not of rank 3, or D is unknown.
    """

    def step(x_BG: tf.Tensor, state: tuple[tf.Tensor, ...], kernel_UG: tf.Tensor) -> tuple[tf.Tensor, ...]:
        (h_BU,) = state
        gates_BG = tf.sigmoid(x_BG[:, : 2 * units] + tf.matmul(h_BU, kernel_UG[:, : 2 * units]))
        r_BU, u_BU = tf.split(gates_BG, 2, axis=1)
        g_BU = tf.tanh(x_BG[:, 2 * units :] + tf.matmul(r_BU * h_BU, kernel_UG[:, 2 * units :]))
        return (u_BU * h_BU + (1 - u_BU) * g_BU,)

    state = state or _zeros(x_BTD, units, count=1)
    return _recur(step, x_BTD, units, 3 * units, name, length_B=length_B, is_backward=is_backward, state=state)


def bidirectional(
    layer: Callable[..., Recurrence], x_BTD: tf.Tensor, units: int, name: str, *, length_B: tf.Tensor | None = None
) -> tf.Tensor:
    """Concatenates the outputs of a forward and a backward layer.

    Variables: those of `layer`, in `<name>/forward` and in `<name>/backward`.

    Args:
        layer: Kind of layer, `lstm` or `gru`.
        x_BTD: float32 [B, T, D], with static D.
        units: Number of units of each direction, U.
        name: Name of the variable scope.
        length_B: int32 or int64 [B], number of steps of each sequence, at most T; None = T.

    Returns:
        float32 [B, T, 2 U]; zeros after a sequence's end.
    """
    with tf.variable_scope(name):
        forward = layer(x_BTD, units, "forward", length_B=length_B)
        backward = layer(x_BTD, units, "backward", length_B=length_B, is_backward=True)
    return tf.concat([forward.output_BTU, backward.output_BTU], axis=2)


def _zeros(x_BTD: tf.Tensor, units: int, count: int) -> tuple[tf.Tensor, ...]:
    return (tf.zeros([tf.shape(x_BTD)[0], units]),) * count


def _recur(
    step: Callable[..., tuple[tf.Tensor, ...]],
    x_BTD: tf.Tensor,
    units: int,
    num_gate_units: int,
    name: str,
    *,
    length_B: tf.Tensor | None,
    is_backward: bool,
    state: tuple[tf.Tensor, ...],
) -> Recurrence:
    """Builds the loop over time. One matrix product before it computes the input's part of the gates for all steps.

    A step beyond a sequence's end does not change its state. So a backward layer, which takes these steps first, still
    has the initial state when it reaches the sequence's last step.
    """
    if x_BTD.shape.rank != 3 or x_BTD.shape[2] is None:
        raise ValueError(f"recurrent layer {name!r} needs [batch, time, known features], got shape {x_BTD.shape}")
    num_features = int(x_BTD.shape[2])
    with tf.variable_scope(name):
        kernel = tf.convert_to_tensor(
            tf.get_variable(
                "kernel", [num_features + units, num_gate_units], initializer=tf.glorot_uniform_initializer()
            )
        )
        bias_G = tf.convert_to_tensor(tf.get_variable("bias", [num_gate_units], initializer=tf.zeros_initializer()))
        # One variable for the inputs' and the state's part, so that it travels in one message in either layout.
        kernel_UG = kernel[num_features:]
        x_TBG = tf.tensordot(tf.transpose(x_BTD, [1, 0, 2]), kernel[:num_features], axes=1) + bias_G
        num_steps = tf.shape(x_TBG)[0]
        # Arrays: a slice at the loop's counter would have a gradient as large as the whole tensor in each step.
        inputs = tf.TensorArray(tf.float32, num_steps, element_shape=x_TBG.shape[1:]).unstack(x_TBG)
        outputs = tf.TensorArray(tf.float32, num_steps, element_shape=state[-1].shape)

        def body(count: tf.Tensor, outputs: tf.TensorArray, *state: tf.Tensor) -> tuple[tf.Tensor, ...]:
            at = num_steps - 1 - count if is_backward else count
            new_state = step(inputs.read(at), state, kernel_UG)
            # The hidden state h comes last in the state of both kinds of layer.
            output_BU = new_state[-1]
            if length_B is not None:
                is_within_B1 = (tf.cast(at, length_B.dtype) < length_B)[:, tf.newaxis]
                new_state = tuple(
                    tf.where_v2(is_within_B1, new, old) for new, old in zip(new_state, state, strict=True)
                )
                output_BU = tf.where_v2(is_within_B1, output_BU, 0.0)
            return (count + 1, outputs.write(at, output_BU), *new_state)

        _, outputs, *state = tf.while_loop(lambda count, *_: count < num_steps, body, (0, outputs, *state))
        output_BTU = tf.transpose(outputs.stack(), [1, 0, 2])
        # The loop's result has no static shape, but the layers that follow need the number of features.
        output_BTU.set_shape([x_BTD.shape[0], x_BTD.shape[1], units])
        return Recurrence(output_BTU, tuple(state))

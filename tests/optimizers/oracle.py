"""The optimizers in NumPy float64, and a runner of the real ones, for the tests beside it."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow.compat.v1 as tf

LEARNING_RATE = 0.05

Rows = tuple[np.ndarray, list[int]]  # values [rows, ...] and the row number of each, which may repeat
State = dict[str, np.ndarray]  # "w" and the slots


@dataclasses.dataclass(frozen=True)
class Trace:
    """Values of the parameter and of its slots, before the first step and after each step."""

    states: list[State]
    names: list[str]  # of all variables, sorted


def run(component, initial: np.ndarray, gradients: list[np.ndarray | Rows], rate: float = LEARNING_RATE) -> Trace:
    """Applies `gradients` one after the other to a variable `w` by `component.create(...)`."""
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=tf.constant(initial, tf.float32), use_resource=True)
        step = tf.placeholder(tf.int64, [])
        is_sparse = isinstance(gradients[0], tuple)
        values = tf.placeholder(tf.float32, [None, *initial.shape[1:]] if is_sparse else initial.shape)
        indices = tf.placeholder(tf.int64, [None])
        gradient = tf.IndexedSlices(values, indices, initial.shape) if is_sparse else values
        optimizer = component.create(tf.constant(rate), step)
        apply_op = optimizer.apply_gradients([(gradient, w)])
        fetches = {"w": w, **{name: optimizer.get_slot(w, name) for name in optimizer.get_slot_names()}}
        session.run(tf.global_variables_initializer())
        states = [session.run(fetches)]
        for number, g in enumerate(gradients):
            feeds = {values: g[0], indices: g[1]} if is_sparse else {values: g}
            session.run(apply_op, {step: number, **feeds})
            states.append(session.run(fetches))
        return Trace(states, sorted(v.op.name for v in tf.global_variables()))


def sgd(s: State, g: np.ndarray, t: int, lr: float) -> State:
    """One update of the state `s`; `t` counts from 1. The functions below have the same form."""
    return {"w": s["w"] - lr * g}


def momentum(s: State, g: np.ndarray, t: int, lr: float, mu: float = 0.9, nesterov: bool = False) -> State:
    v = mu * s["momentum"] + g
    return {"w": s["w"] - lr * (g + mu * v if nesterov else v), "momentum": v}


def adagrad(s: State, g: np.ndarray, t: int, lr: float) -> State:
    a = s["accumulator"] + g * g
    return {"w": s["w"] - lr * g / np.sqrt(a), "accumulator": a}


def rmsprop(s: State, g: np.ndarray, t: int, lr: float, decay: float, mu: float, eps: float) -> State:
    new = {"rms": decay * s["rms"] + (1 - decay) * g * g}
    variance = new["rms"]
    if "mg" in s:
        new["mg"] = decay * s["mg"] + (1 - decay) * g
        variance = variance - new["mg"] ** 2
    new["momentum"] = mu * s["momentum"] + lr * g / np.sqrt(variance + eps)
    return {"w": s["w"] - new["momentum"], **new}


def ftrl(s: State, g: np.ndarray, t: int, lr: float, l1: float, l2: float, power: float = -0.5) -> State:
    a = s["accum"] + g * g
    z = s["linear"] + g - (a**-power - s["accum"] ** -power) / lr * s["w"]
    w = np.where(np.abs(z) > l1, (np.sign(z) * l1 - z) / (a**-power / lr + 2 * l2), 0.0)
    return {"w": w, "accum": a, "linear": z}


def adam(s: State, g: np.ndarray, t: int, lr: float, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> State:
    m = b1 * s["m"] + (1 - b1) * g
    v = b2 * s["v"] + (1 - b2) * g * g
    w = s["w"] - lr * np.sqrt(1 - b2**t) / (1 - b1**t) * m / (np.sqrt(v) + eps)
    return {"w": w, "m": m, "v": v}


def as_dense(g: Rows, shape: tuple[int, ...]) -> np.ndarray:
    """The gradient of a whole table: repeated rows are summed, and the others are 0."""
    dense = np.zeros(shape)
    np.add.at(dense, g[1], g[0])
    return dense


def by_rows(update, s: State, g: Rows, t: int, lr: float, **options) -> State:
    """`update` for the rows in `g` only."""
    rows = sorted(set(g[1]))
    new = {name: value.copy() for name, value in s.items()}
    changed = update(
        {name: value[rows] for name, value in s.items()}, as_dense(g, s["w"].shape)[rows], t, lr, **options
    )
    for name, value in changed.items():
        new[name][rows] = value
    return new


def assert_follows(trace: Trace, update, gradients: list, tolerance: float = 2e-6, **options) -> None:
    """Asserts that the states of `trace` follow from its first state by `update`."""
    expected = {name: value.astype(np.float64) for name, value in trace.states[0].items()}
    for t, (g, actual) in enumerate(zip(gradients, trace.states[1:], strict=True), start=1):
        expected = update(expected, g, t, LEARNING_RATE, **options)
        assert expected.keys() == actual.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(actual[name], value, rtol=tolerance, atol=tolerance, err_msg=f"{name} after {t}")

"""`error_feedback` around each lossy transform: the sent values and the residual add up to all gradients."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gradients import lane as lane_lib
from tests.gradients.lane import TABLE, Lane, dense, table_of, variables
from tests.testing import oracles_gradients as oracles

SHAPES = (12, 10), (10,), (31,)
SIZE = 120 + 10 + 31
PARTS = [slice(0, 120), slice(120, 130), slice(130, SIZE)]
LOSSY = [
    "cast",
    "cast:rounding=stochastic",
    "top_k:ratio=0.1",
    "random_k:ratio=0.1,scale=false",
    "threshold:value=1",
    "one_bit",
    "sign:scaled=true",
    "qsgd",
    "terngrad",
    "power_sgd",
    "top_k:ratio=0.1 one_bit",
    "threshold:value=1 cast",
    "power_sgd cast",
]


def site():
    return dense(SIZE, variables(*SHAPES))


@pytest.mark.parametrize("inner", LOSSY)
def test_sent_values_and_residual_add_up_to_all_gradients(inner):
    gradients = lane_lib.gradients(SIZE, num_steps=5)
    with Lane(f"error_feedback {inner}", site()) as lane:
        sent = [lane.send(gradient).values[0] for gradient in gradients]
        residual = lane.state()["dense/error_feedback/residual"]
    total = np.sum(gradients, axis=0)
    np.testing.assert_allclose(np.sum(sent, axis=0) + residual, total, rtol=0, atol=1e-5)
    assert np.abs(residual).max() > 1e-3  # the transform held a part back


@pytest.mark.parametrize(
    ("inner", "code"),
    [
        ("cast", lambda values: oracles.cast(values, "bfloat16")),
        ("top_k:ratio=0.1", lambda values: oracles.at(values, oracles.largest(values, 17))),
        ("threshold:value=1", lambda values: np.where(np.abs(values) >= 1, values, 0)),
        ("one_bit", lambda values: oracles.one_bit(values, PARTS)),
        ("sign:scaled=true", lambda values: oracles.sign(values, PARTS, scaled=True)),
    ],
)
def test_follows_its_equation_step_by_step(inner, code):
    oracle = oracles.ErrorFeedback(SIZE)
    with Lane(f"error_feedback {inner}", site()) as lane:
        for gradient in lane_lib.gradients(SIZE, num_steps=4):
            corrected = oracle.corrected(gradient)
            wanted = oracle.sent(corrected, code(corrected))
            np.testing.assert_allclose(lane.send(gradient).values[0], wanted, rtol=0, atol=1e-6)
            np.testing.assert_allclose(
                lane.state()["dense/error_feedback/residual"], oracle.residual, rtol=0, atol=1e-6
            )


def test_sends_no_more_bytes_than_the_wrapped_transform():
    (gradient,) = lane_lib.gradients(SIZE, num_steps=1)
    with Lane("one_bit", site()) as plain, Lane("error_feedback one_bit", site()) as wrapped:
        assert plain.send(gradient).payload_bytes == wrapped.send(gradient).payload_bytes == -(-SIZE // 8) + 3 * 8


def test_passes_rows_of_tables_unchanged():
    with Lane("error_feedback one_bit", site(), TABLE) as lane:
        for gradient, row in zip(lane_lib.gradients(SIZE), lane_lib.rows(5), strict=True):
            np.testing.assert_array_equal(lane.send(gradient, row).values[1], table_of(row))
        assert list(lane.state()) == ["dense/error_feedback/residual"]


def test_encodes_rows_of_tables_by_what_needs_no_feedback():
    with Lane("error_feedback top_k:ratio=0.1 cast", site(), TABLE) as lane:
        for gradient, row in zip(lane_lib.gradients(SIZE), lane_lib.rows(5), strict=True):
            arrived = lane.send(gradient, row).values[1]
            np.testing.assert_array_equal(arrived, oracles.cast(table_of(row), "bfloat16"))
        assert list(lane.state()) == ["dense/error_feedback/residual"]


def test_clipping_comes_before_it():
    gradient = np.float32([3, 4, 0])
    with Lane("clip_norm:norm=1 error_feedback top_k:ratio=0.3", dense(3)) as lane:
        np.testing.assert_allclose(lane.send(gradient).values[0], [0, 0.8, 0], rtol=0, atol=1e-6)
        np.testing.assert_allclose(lane.send(gradient).values[0], [1.2, 0, 0], rtol=0, atol=1e-6)


def test_state_is_updated_before_a_message_leaves():
    first, second = lane_lib.gradients(SIZE, num_steps=2)
    states, sent = [], []
    for advance in (True, False):  # without its targets the step only fetches the arrived values
        with Lane("error_feedback terngrad", site()) as lane:
            lane.send(first)
            sent.append(lane.send(second, advance=advance).values[0])
            states.append(lane.state())
    np.testing.assert_array_equal(*sent)
    residuals = [name for name in states[0] if "residual" in name]
    assert residuals
    for name in residuals:
        np.testing.assert_array_equal(states[1][name], states[0][name])


@pytest.mark.parametrize("transforms", ["error_feedback power_sgd", "error_feedback terngrad", "dgc:ratio=0.05"])
def test_continues_from_saved_state_as_if_never_stopped(transforms):
    gradients = lane_lib.gradients(SIZE, num_steps=5)
    with Lane(transforms, site()) as lane:
        for gradient in gradients[:2]:
            lane.send(gradient)
        saved = lane.state()
        wanted = [lane.send(gradient).values[0] for gradient in gradients[2:]]
    with Lane(transforms, site()) as lane:
        lane.restore(saved)
        for gradient, want in zip(gradients[2:], wanted, strict=True):
            np.testing.assert_array_equal(lane.send(gradient).values[0], want)

"""Schedules against their formulas in plain Python, step by step."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer import component_tables
from ps_trainer.errors import OptionError

LEARNING_RATE = 0.3


def values(name: str, option_strings: list[str], steps: list[int]) -> list[float]:
    """The schedule's value at each of `steps`."""
    schedule = component_tables.SCHEDULES.create(name, option_strings)
    with tf.Graph().as_default(), tf.Session() as session:
        step = tf.placeholder(tf.int64, [])
        rate = schedule.build(LEARNING_RATE, step)
        assert rate.dtype == tf.float32
        assert rate.shape.as_list() == []
        return [session.run(rate, {step: number}) for number in steps]


def assert_follows(name, option_strings, formula, steps):
    expected = [LEARNING_RATE * formula(step) for step in steps]
    np.testing.assert_allclose(values(name, option_strings, steps), expected, rtol=1e-5, atol=1e-8)


def piecewise(step):
    return 1.0 if step <= 4 else 0.5 if step <= 7 else 0.01


def cosine(step, alpha=0.0):
    return (1 - alpha) * 0.5 * (1 + math.cos(math.pi * min(step, 20) / 20)) + alpha


def polynomial(step, end=0.0, power=1.0):
    return (1 - end) * (1 - min(step, 20) / 20) ** power + end


PIECEWISE = ["boundaries=4,7", "factors=1,0.5,0.01"]
EXPONENTIAL = ["decay_steps=5", "decay_rate=0.5"]
FORMULAS = {
    "constant": ("constant", [], lambda step: 1.0),
    "piecewise": ("piecewise", PIECEWISE, piecewise),
    "exponential": ("exponential", EXPONENTIAL, lambda step: 0.5 ** (step / 5)),
    "held": ("exponential", [*EXPONENTIAL, "hold_steps=7"], lambda step: 0.5 ** (max(step - 7, 0) / 5)),
    "staircase": ("exponential", [*EXPONENTIAL, "staircase=true"], lambda step: 0.5 ** (step // 5)),
    "cosine": ("cosine", ["decay_steps=20"], cosine),
    "cosine_alpha": ("cosine", ["decay_steps=20", "alpha=0.1"], lambda step: cosine(step, alpha=0.1)),
    "polynomial": ("polynomial", ["decay_steps=20"], polynomial),
    "polynomial_end_power": (
        "polynomial",
        ["decay_steps=20", "end_factor=0.2", "power=2"],
        lambda step: polynomial(step, end=0.2, power=2.0),
    ),
    "inverse_sqrt": ("inverse_sqrt", [], lambda step: 1 / math.sqrt(step + 1)),
}


@pytest.mark.parametrize("case", FORMULAS)
def test_follows_its_formula_at_every_step(case):
    name, option_strings, formula = FORMULAS[case]
    assert_follows(name, option_strings, formula, [*range(26), 1000])


@pytest.mark.parametrize("case", [case for case in FORMULAS if case != "inverse_sqrt"])
def test_warm_up_multiplies_by_a_linear_ramp_that_ends_at_its_last_step(case):
    name, option_strings, formula = FORMULAS[case]
    assert_follows(
        name, [*option_strings, "warmup_steps=6"], lambda step: min(1, (step + 1) / 6) * formula(step), list(range(26))
    )


def test_warm_up_starts_at_a_share_and_reaches_the_full_rate_at_its_last_step():
    first, before_last, last, after = values("constant", ["warmup_steps=10"], [0, 8, 9, 10])
    np.testing.assert_allclose([first, before_last], [LEARNING_RATE / 10, LEARNING_RATE * 9 / 10], rtol=1e-6)
    assert last == after == np.float32(LEARNING_RATE)


def test_inverse_sqrt_is_the_transformers_schedule():
    d_model, warmup_steps = 64, 8

    def vaswani(step):  # equation 3, divided by its peak
        number = step + 1
        rate = d_model**-0.5 * min(number**-0.5, number * warmup_steps**-1.5)
        return rate / (d_model**-0.5 * warmup_steps**-0.5)

    assert vaswani(warmup_steps - 1) == pytest.approx(1.0)
    assert_follows("inverse_sqrt", [f"warmup_steps={warmup_steps}"], vaswani, list(range(40)))


def test_piecewise_equals_tensorflows_at_and_around_the_boundaries():
    with tf.Graph().as_default(), tf.Session() as session:
        step = tf.placeholder(tf.int64, [])
        rate = tf.train.piecewise_constant(step, [4, 7], [LEARNING_RATE * f for f in (1.0, 0.5, 0.01)])
        expected = [session.run(rate, {step: number}) for number in range(12)]
    assert values("piecewise", PIECEWISE, list(range(12))) == expected


def test_piecewise_without_boundaries_is_one_piece():
    assert values("piecewise", ["boundaries=", "factors=0.5"], [0, 10**9]) == [np.float32(LEARNING_RATE * 0.5)] * 2


@pytest.mark.parametrize("name", component_tables.SCHEDULES.names())
def test_defaults_start_at_the_full_rate_and_survive_huge_steps(name):
    first, late = values(name, [], [0, 2**40])
    assert first == np.float32(LEARNING_RATE)
    assert 0 <= late <= first


@pytest.mark.parametrize("name", component_tables.SCHEDULES.names())
def test_all_ops_lie_on_the_callers_device(name):
    schedule = component_tables.SCHEDULES.create(name, ["warmup_steps=3"])
    with tf.Graph().as_default() as graph, tf.device("/job:ps/task:1"):
        schedule.build(LEARNING_RATE, tf.constant(0, tf.int64))
    assert {op.device for op in graph.get_operations()} == {"/job:ps/task:1"}


@pytest.mark.parametrize(
    ("name", "strings", "allowed"),
    [
        ("piecewise", ["boundaries=7,4"], "boundaries=7,4 must increase"),
        ("piecewise", ["boundaries=4,4"], "boundaries=4,4 must increase"),
        ("piecewise", ["boundaries=4"], "factors=1.0,0.1,0.01 has 3 values, but boundaries=4 cut .* 2 pieces"),
    ],
)
def test_rejects_bad_options_and_names_the_allowed_ones(name, strings, allowed):
    with pytest.raises(OptionError, match=f"--schedule_option.*{allowed}"):
        component_tables.SCHEDULES.create(name, strings)

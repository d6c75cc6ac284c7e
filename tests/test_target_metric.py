"""`--target_metric` as text and as a bound."""

from __future__ import annotations

import math

import pytest

from ps_trainer import target_metric
from ps_trainer.errors import OptionError


@pytest.mark.parametrize(
    ("text", "words"),
    {
        "accuracy>=0.97": "accuracy>=0.97",
        " bits_per_character <= 1.9 ": "bits_per_character<=1.9",
        "loss<=1e-3": "loss<=0.001",
        "auc>=-.5": "auc>=-0.5",
    }.items(),
)
def test_is_read_with_spaces_and_any_number(text, words):
    assert str(target_metric.parse(text)) == words


@pytest.mark.parametrize("text", ["", "accuracy", "accuracy>0.9", "accuracy=0.9", ">=1", "a b>=1", "a>=b", "a>=inf"])
def test_other_forms_are_rejected(text):
    with pytest.raises(OptionError, match="write a metric, >= or <=, and a number, as in --target_metric='accuracy"):
        target_metric.parse(text)


@pytest.mark.parametrize(
    ("text", "value", "is_met"),
    [
        ("a>=0.5", 0.5, True),
        ("a>=0.5", 0.49, False),
        ("a<=0.5", 0.5, True),
        ("a<=0.5", 0.51, False),
        ("a>=0.5", math.nan, False),
        ("a<=0.5", math.nan, False),
    ],
)
def test_the_bound_itself_reaches_the_target_and_nan_does_not(text, value, is_met):
    assert target_metric.parse(text).is_met({"a": value, "b": 0.5}) is is_met

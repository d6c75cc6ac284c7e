"""The message to a worker whose settings differ from the chief's."""

from __future__ import annotations

import dataclasses

import pytest

from ps_trainer.config import TrainConfig
from ps_trainer.shared_settings import differences

REASONS = {field.name: field.metadata.get("shared") for field in dataclasses.fields(TrainConfig)}


@pytest.mark.parametrize(
    ("field", "chief", "own", "fix"),
    [
        ("batch_size", 32, 16, "give it --batch_size=32"),
        ("num_epochs", None, 2, "give it --num_epochs=none"),
        ("dataset_option", ("a=1", "b=2"), (), "give it --dataset_option=a=1 --dataset_option=b=2"),
        ("update_option", (), ("k=2",), "give it no --update_option"),
    ],
)
def test_a_difference_names_flag_values_reason_and_fix(field, chief, own, fix):
    chief_agreement, own_agreement = (TrainConfig(**{field: value}).agreement() for value in (chief, own))
    (text,) = differences(chief_agreement, own_agreement, "worker-1")
    values = [list(value) if isinstance(value, tuple) else value for value in (chief, own)]
    assert text == f"--{field}: chief {values[0]!r}, worker-1 {values[1]!r} ({REASONS[field]}; {fix})"


def test_equal_settings_have_no_difference():
    assert differences(TrainConfig().agreement(), TrainConfig(logdir="runs/x").agreement(), "worker-1") == []

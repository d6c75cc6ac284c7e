"""The tiny experiment, fresh for each test."""

from __future__ import annotations

import pytest

from tests.experiments.fakes import Dice


@pytest.fixture
def dice(monkeypatch):
    """The class `Dice`, with nothing executed and nothing failing; what a test sets on it is undone."""
    monkeypatch.setattr(Dice, "executed", [])
    monkeypatch.setattr(Dice, "failing", {})
    monkeypatch.setattr(Dice, "bonus", 0)
    monkeypatch.setattr(Dice, "level", Dice.level)
    return Dice

"""The tiny experiment, fresh for each test."""

from __future__ import annotations

import pytest

from tests.experiments.fakes import Dice


@pytest.fixture
def dice(monkeypatch):
    """The class `Dice` without executed or failing runs; the fixture undoes a test's changes of it."""
    monkeypatch.setattr(Dice, "executed", [])
    monkeypatch.setattr(Dice, "failing", {})
    monkeypatch.setattr(Dice, "bonus", 0)
    monkeypatch.setattr(Dice, "level", Dice.level)
    return Dice

"""Captions are constants, so they state nothing as seen."""

from __future__ import annotations

import re

import pytest

from ps_trainer import registry
from ps_trainer.experiments.harness.plots import Caption

# How a result is told: what lines do, where points are, and how much.
RESULT = re.compile(
    r"\b(rise|fall|grow|shrink|drop|lie|stay|ends? (at|below|above|twice)|bend|follow|level off|steep|flat|near|about"
    r"|higher|highest|lower|lowest|largest at|smallest|longer|shorter|hardly|nearly|almost|together)(s|ly|en)?\b"
)
# In what a plot shows these are names of things, not findings.
ALLOWED = ("largest stable",)


@pytest.mark.parametrize("name", registry.EXPERIMENTS.names())
def test_no_caption_states_a_result_as_seen(name):
    for key, caption in registry.EXPERIMENTS.load(name).captions.items():
        assert isinstance(caption, Caption), key
        shown = caption.shows
        for words in ALLOWED:
            shown = shown.replace(words, "")
        assert not RESULT.search(shown), f"{key}: {RESULT.search(shown)[0]!r} belongs to what is expected"
        assert caption.expected, f"{key} says nothing of what was expected"


@pytest.mark.parametrize(
    "shows", ["The circles lie on the crosses.", "The rates rise steeply.", "Bars fall from 0 on."]
)
def test_a_result_is_noticed(shows):
    assert RESULT.search(shows)


def test_what_was_expected_is_called_so():
    assert str(Caption("Axes.", "a line.")) == "Axes. Expected: a line."

"""Captions are constants, so they must not state a result as seen."""

from __future__ import annotations

import re

import pytest

from ps_trainer import component_tables
from ps_trainer.experiments.harness.plots import Caption

# Words that tell a result: movements of lines, places of points, and amounts.
RESULT = re.compile(
    r"\b(rise|fall|grow|shrink|drop|lie|stay|ends? (at|below|above|twice)|bend|follow|level off|steep|flat|near|about"
    r"|higher|highest|lower|lowest|largest at|smallest|longer|shorter|hardly|nearly|almost|together)(s|ly|en)?\b"
)
# In the description of a plot these words are names, not findings.
ALLOWED = ("largest stable",)


@pytest.mark.parametrize("name", component_tables.EXPERIMENTS.names())
def test_no_caption_states_a_result_as_seen(name):
    for key, caption in component_tables.EXPERIMENTS.load(name).captions.items():
        assert isinstance(caption, Caption), key
        shown = caption.shows
        for words in ALLOWED:
            shown = shown.replace(words, "")
        assert not RESULT.search(shown), f"{key}: {RESULT.search(shown)[0]!r} belongs to what is expected"
        assert caption.expected, f"{key} does not state the expectation"


@pytest.mark.parametrize(
    "shows", ["The circles lie on the crosses.", "The rates rise steeply.", "Bars fall from 0 on."]
)
def test_a_stated_result_is_noticed(shows):
    assert RESULT.search(shows)


def test_an_expectation_is_called_so():
    assert str(Caption("Axes.", "a line.")) == "Axes. Expected: a line."

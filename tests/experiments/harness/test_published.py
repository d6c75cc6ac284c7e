"""The printed form of a number from the literature claims no more than is known."""

from __future__ import annotations

import pytest

from ps_trainer.experiments.harness.published import Published, Tag


def text_of(tag):
    return str(Published("best step", 1.93, "s", tag, "Abadi et al. 2016"))


def test_a_number_that_was_read_names_its_source():
    assert text_of(Tag.READ) == "best step: 1.93 s, Abadi et al. 2016"


@pytest.mark.parametrize(
    ("tag", "word"), [(Tag.SUMMARY, "summary"), (Tag.DERIVED, "derived"), (Tag.MEASURED, "our own")]
)
def test_any_other_number_states_its_origin(tag, word):
    assert word in text_of(tag)
    assert "1.93 s" in text_of(tag)


def test_a_recalled_number_says_so_before_it_names_a_source():
    assert text_of(Tag.RECALLED) == "best step: 1.93 s, recalled, not read again (Abadi et al. 2016)"

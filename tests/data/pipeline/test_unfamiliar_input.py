"""Counts of input that is unlike the training data: by kind, with a few examples, and told once."""

from __future__ import annotations

from collections import Counter

from ps_trainer.data.pipeline.unfamiliar_input import UnfamiliarInput


def test_each_kind_has_its_count_and_the_first_different_examples():
    unfamiliar = UnfamiliarInput()
    assert unfamiliar.take() == ""
    unfamiliar.add("cities", {}, 4)
    assert unfamiliar.take() == ""  # all four were familiar
    unfamiliar.add("cities", {"Rome": 2, "x" * 31: 1}, 1200)
    unfamiliar.add("cities", {"Lima": 1}, 1)
    unfamiliar.add_tokens("word", Counter({"a": 3, "b": 2}) + Counter("cdefg"), {"a"})
    assert unfamiliar.take() == (
        f"input unlike the training data: cities: 4 of 1,201 ('Rome', '{'x' * 30}…', 'Lima'); words that the"
        " vocabulary lacks, read as unknown: 7 of 10 ('b', 'c', 'd', 'e', 'f', …)"
    )
    assert unfamiliar.take() == ""

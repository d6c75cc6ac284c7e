"""Smoothed counts: by hand, as probabilities, and against an implementation with dictionaries."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from benchmarks import ngram
from benchmarks.ngram import NGram


def by_dictionaries(train, order, vocab_size):
    """P(symbol | symbols before) by the definition."""
    groups = {n: Counter() for n in range(1, order + 1)}
    for text in train.tolist():
        for n in groups:
            groups[n].update(tuple(text[at : at + n]) for at in range(len(text) - n + 1))
    counted = {order: groups[order]}
    for n in range(order - 1, 0, -1):
        # The different groups of n + 1 that end with a group of n, divided by the number of those for all of `order`.
        longer = {group[order - n - 1 :] for group in groups[order]}
        counted[n] = Counter(group[1:] for group in longer)

    def probability(symbol, context):
        lower = probability(symbol, context[1:]) if context else 1 / vocab_size
        counts = counted[len(context) + 1]
        after = {group[-1]: count for group, count in counts.items() if group[:-1] == context}
        if not after:
            return lower
        once, twice = (sum(count == times for count in counts.values()) for times in (1, 2))
        discount = once / (once + 2 * twice) if once else 0.5
        kept = max(after.get(symbol, 0) - discount, 0) + discount * len(after) * lower
        return kept / sum(after.values())

    return probability


@pytest.mark.parametrize("order", [1, 2, 4])
def test_equals_the_definition(order):
    random = np.random.RandomState(order)
    train, test = random.randint(0, 4, (6, 15)) ** 2 // 3, random.randint(0, 4, (3, 9)) ** 2 // 3
    bits = NGram(train, order=order, vocab_size=4).bits(test)
    assert bits.shape == (3, 8)
    probability = by_dictionaries(train, order, 4)
    for text, told in zip(test.tolist(), bits, strict=True):
        for at in range(1, len(text)):
            context = tuple(text[max(0, at - order + 1) : at])
            assert told[at - 1] == pytest.approx(-np.log2(probability(text[at], context)), rel=1e-6)


def test_probabilities_of_all_symbols_add_up_to_1():
    model = NGram(np.random.RandomState(0).randint(0, 3, (5, 20)), order=3, vocab_size=5)
    for context in ([0, 1], [2, 2], [4, 4], [4, 0]):
        bits = model.bits(np.array([[*context, symbol] for symbol in range(5)]))[:, -1]
        assert np.sum(2.0**-bits) == pytest.approx(1)


def test_a_certain_symbol_costs_few_bits_and_a_random_one_costs_all():
    cycle = np.arange(400).reshape(1, -1) % 8
    assert NGram(cycle, order=3, vocab_size=8).bits(cycle)[:, 2:].max() < 0.1
    random = np.random.RandomState(0)
    bits = NGram(random.randint(0, 8, (1, 4000)), order=1, vocab_size=8).bits(random.randint(0, 8, (1, 4000)))
    assert bits.mean() == pytest.approx(3, abs=0.01)


def test_orders_that_are_too_large_for_numbers_or_text_are_rejected():
    with pytest.raises(ValueError, match="order=10 of vocab_size=100 symbols do not fit"):
        NGram(np.zeros((1, 20)), order=10, vocab_size=100)
    with pytest.raises(ValueError, match="texts of 3 symbols have no groups of order=4"):
        NGram(np.zeros((1, 3)), order=4, vocab_size=100)


def test_the_command_counts_in_a_dataset(tmp_path, capsys):
    (tmp_path / "train.txt").write_text("abcd" * 200)
    options = [f"--dataset_option={option}" for option in ("train_files=train.txt", "context_length=8")]
    assert ngram.main([*options, f"--data_dir={tmp_path}", "--order=2"]) == 0
    printed = capsys.readouterr().out
    assert "bits per symbol by groups of 2" in printed
    assert float(printed.split(": ")[1].split()[0]) < 0.2


def test_unbroken_text_is_counted_across_the_borders_of_examples(tmp_path, capsys):
    """The first letter of each three determines the second, and leaves one bit if it is "a", in 2/3 of the cases."""
    (tmp_path / "train.txt").write_text("aab" * 300)
    options = [f"--dataset_option={option}" for option in ("train_files=train.txt", "context_length=2")]
    bits = []
    for unbroken in ([], ["--unbroken"]):
        assert ngram.main([*options, f"--data_dir={tmp_path}", "--order=3", *unbroken]) == 0
        bits.append(float(capsys.readouterr().out.split(": ")[1].split()[0]))
    assert bits[0] > 2 / 3 / 2 - 0.05
    assert bits[1] < 0.1

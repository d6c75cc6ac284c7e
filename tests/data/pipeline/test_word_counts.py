"""Words counted in NumPy have the counts of Python's own split and `collections.Counter`."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ps_trainer.data.pipeline import word_counts
from ps_trainer.data.pipeline.word_counts import WordCounts, blocks


def counted(*texts: bytes) -> dict[str, int]:
    counts = WordCounts()
    counts.add(texts)
    return dict(counts.items())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" \n\t",
        b"one",
        b"a b a\na\r\nb\tc\vd\fe  f",
        b"\x00 \x00\x00 a\x00 a \x1c \x1f\x85",  # control characters that are no whitespace among bytes
        "Ä ä é \u00a0 \u2003x 漢字 漢 漢字".encode(),  # wide spaces are no whitespace among bytes either
        b"12345678 123456789 1234567 123456780 12345678" + b" 12345678" * 3,
        b" ".join(b"x" * length for length in range(1, 40)) * 2,
        b"12345678abcdefgh 12345678abcdefgi 12345678abcdefg abcdefgh12345678 abcdefgh 12345678",
    ],
)
def test_words_are_split_and_counted_as_python_does(text):
    text = text.replace(b"\x85", b"\xc2\x85")
    assert counted(text) == {word.decode(): number for word, number in Counter(text.split()).items()}


def test_counts_of_several_blocks_add_up():
    random = np.random.RandomState(0)
    texts = [
        b" ".join(b"%x" % int(number) for number in random.zipf(1.2, 5000).clip(max=10**12) * 0x1357) for _ in range(5)
    ]
    assert counted(*texts) == Counter(b" ".join(texts).decode().split())


def test_words_whose_hashes_agree_in_the_filters_bits_are_told_apart(monkeypatch):
    monkeypatch.setattr(word_counts, "_FILTER_SHIFT", np.uint64(63))
    texts = [b"new words come in each block", b"each block has other words", b"yes words"]
    assert counted(*texts) == Counter(b" ".join(texts).decode().split())


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_blocks_end_between_words(size, monkeypatch):
    monkeypatch.setattr(word_counts, "_BLOCK_BYTES", 10)
    text = b"a few words\nof a text, some_longer_than_a_block, and a last one"
    found = list(blocks(text[at : at + size] for at in range(0, len(text), size)))
    assert b"".join(found) == text
    assert [word for block in found for word in block.split()] == text.split()
    assert len(found) > 3 or size == 100

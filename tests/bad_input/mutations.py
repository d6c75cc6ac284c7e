"""Random changes of valid input; a seed gives the same changes each time."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

_PIECES = (
    *("", " ", ",", ":", "=", "-", ".", "/", "%", '"', "'", "[", "]", "{", "}", "\\", "\n", "\t", "\0", "\r"),
    *("0", "-1", "1e309", "nan", "inf", "none", "true", "9" * 30, "9" * 5000, "0x1", "1_0", "٣", "²", "½"),
    *("é", "\ufeff", "\ud800", "\U0001f600", "null", "NaN", "[[", "{}", "--", "unix:", "http://", "::", "%s", "{0}"),
)


def texts(seeds: Sequence[str], count: int, seed: int) -> Iterator[str]:
    """`count` texts, each one a valid text of `seeds` with one to four random changes."""
    rng = random.Random(seed)
    for _ in range(count):
        text = rng.choice(seeds)
        for _ in range(rng.randint(1, 4)):
            text = _change(rng, text, rng.choice(_PIECES))
        yield text


def contents(seeds: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """`count` contents of files, changed by flipped bits, cuts and insertions."""
    rng = random.Random(seed)
    for _ in range(count):
        content = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 3)):
            # headers are short, so half of all changes are made there
            position = rng.randrange(min(len(content), rng.choice((20, len(content)))) or 1)
            kind = rng.randrange(4)
            if kind == 0 and content:
                content[position % len(content)] ^= 1 << rng.randrange(8)
            elif kind == 1:
                del content[position:]
            elif kind == 2:
                content[position:position] = rng.randbytes(rng.randint(1, 8))
            else:
                content[position : position + 4] = rng.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff"))
        yield bytes(content)


def _change(rng: random.Random, text: str, piece: str) -> str:
    start = rng.randint(0, len(text))
    end = rng.randint(start, len(text))
    kind = rng.randrange(5)
    if kind == 0:
        return text[:start] + piece + text[start:]
    if kind == 1:
        return text[:start] + piece + text[end:]
    if kind == 2:
        return text[:start] + text[end:]
    if kind == 3:
        return text[:start] + text[start:end] * 3 + text[end:]
    return text[:start]

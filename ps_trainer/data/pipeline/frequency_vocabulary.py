"""The words or characters of a text, numbered from the most frequent one on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.text_stream import Document

UNKNOWN = {"char": "\ufffd", "word": "<unk>"}
LINE_END = {"char": "\n", "word": "<eos>"}
_LINE_END_WORD = b" <eos> "
_NUM_CODES = 0x110000
_NUM_HASHES = 2**62  # so many that two of a million words share one with a chance of 1 in 10 million


class RankedVocabulary(NamedTuple):
    """Which word or character has which id.

    Ids go from the most frequent to the rarest; equally frequent ones as their bytes are sorted. Always there: what
    stands for everything else ("<unk>"; of characters U+FFFD), and the end of a line ("<eos>"; the newline).

    Attributes:
        unit: "char" or "word".
        tokens: id -> word or character.
        counts: id -> how often it is in the text that the vocabulary was made from.
    """

    unit: str
    tokens: tuple[str, ...]
    counts: tuple[int, ...]

    @property
    def unknown(self) -> int:
        """The id of everything else."""
        return self.tokens.index(UNKNOWN[self.unit])

    @property
    def line_end(self) -> int:
        """The id of the end of a line."""
        return self.tokens.index(LINE_END[self.unit])

    @property
    def num_ids(self) -> int:
        """Of the text that the vocabulary was made from."""
        return sum(self.counts)

    def encoder(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """A function of a piece of text, scalar string, that gives its ids, int32 [N].

        To be called in the graph in which the function is used.
        """
        keys_of = _codes if self.unit == "char" else _hashes
        keys = keys_of(tf.constant("".join(self.tokens) if self.unit == "char" else " ".join(self.tokens)))
        # By searching, because a lookup table is a resource that somebody would have to initialise.
        ids = tf.argsort(keys)
        keys = tf.gather(keys, ids)

        def encode(text: tf.Tensor) -> tf.Tensor:
            wanted = keys_of(text)
            at = tf.minimum(tf.searchsorted(keys, wanted), len(self.tokens) - 1)
            return tf.where_v2(tf.equal(tf.gather(keys, at), wanted), tf.gather(ids, at), self.unknown)

        return encode

    def stream(self, documents: Sequence[Document]) -> tf.data.Dataset:
        """Vectors int32 that together are the ids of texts, one after the other, at least one text."""
        pieces = documents[0].pieces(self.unit)
        for one in documents[1:]:
            pieces = pieces.concatenate(one.pieces(self.unit))
        return pieces.map(self.encoder())

    def word_ids(self, document: Document) -> np.ndarray:
        """The ids of a text of words, int32 [N], in Python and in memory; the same as those of `stream`."""
        ids = {token.encode(): number for number, token in enumerate(self.tokens)}
        pieces = [[ids.get(word, self.unknown) for word in words] for words in _words(document)]
        return np.concatenate([np.array(piece, np.int32) for piece in pieces])


def ranked_vocabulary(documents: Iterable[Document], unit: str, max_tokens: int) -> RankedVocabulary:
    """The vocabulary of texts, by reading them once.

    Args:
        documents: the texts.
        unit: "char" or "word".
        max_tokens: so many of the most frequent are kept; the others count as unknown. At least 2.

    Raises:
        DataError: a file cannot be read, or is not UTF-8.
    """
    counts: Counter[str] = Counter()
    for one in documents:
        counts.update(count(one, unit))
    unknown, line_end = UNKNOWN[unit], LINE_END[unit]
    special = {unknown: counts.pop(unknown, 0), line_end: counts.pop(line_end, 0)}
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    kept = max_tokens - len(special)
    special[unknown] += sum(number for _, number in ordered[kept:])
    ordered = sorted([*ordered[:kept], *special.items()], key=lambda item: (-item[1], item[0]))
    tokens, numbers = zip(*ordered, strict=True)
    return RankedVocabulary(unit, tokens, numbers)


def count(document: Document, unit: str) -> Counter[str]:
    """How often each word or character is in a text; each newline is a word, "<eos>".

    Raises:
        DataError: the file cannot be read, or is not UTF-8.
    """
    return _count_chars(document) if unit == "char" else _count_words(document)


def _codes(text: tf.Tensor) -> tf.Tensor:
    """The number of each character in Unicode, int32 [N]."""
    return tf.strings.unicode_decode(text, "UTF-8")


def _hashes(text: tf.Tensor) -> tf.Tensor:
    """A number for each word, int64 [N]."""
    text = tf.strings.regex_replace(text, "\n", _LINE_END_WORD)
    return tf.strings.to_hash_bucket_fast(tf.strings.split([text], result_type="RaggedTensor").values, _NUM_HASHES)


def _count_chars(document: Document) -> Counter[str]:
    counts, left = np.zeros(_NUM_CODES, np.int64), b""
    for chunk in document.chunks():
        text = left + chunk
        whole = text.decode("utf-8", "ignore")  # of text that is UTF-8 this leaves out a cut character at its end only
        left = text[len(whole.encode()) :]
        counts += np.bincount(np.frombuffer(whole.encode("utf-32-le"), np.uint32), minlength=_NUM_CODES)
    return Counter({chr(code): int(counts[code]) for code in np.flatnonzero(counts)})


def _count_words(document: Document) -> Counter[str]:
    counts: Counter[bytes] = Counter()
    for words in _words(document):
        counts.update(words)
    return Counter({word.decode(): number for word, number in counts.items()})


def _words(document: Document) -> Iterator[list[bytes]]:
    """The words of a text, many at a time."""
    left = b""
    for chunk in document.chunks():
        text = left + chunk
        cut = max(text.rfind(b" "), text.rfind(b"\n")) + 1
        yield text[:cut].replace(b"\n", _LINE_END_WORD).split()
        left = text[cut:]
    yield left.split()

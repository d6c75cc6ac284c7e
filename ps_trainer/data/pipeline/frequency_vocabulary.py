"""Vocabularies of running text: words or characters, numbered from the most frequent to the rarest.

`sequence_vocabulary.py` is for single sentences: its lowest ids are reserved for padding, start and end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.text_stream import Document
from ps_trainer.data.pipeline.word_counts import WordCounts, blocks

UNKNOWN = {"char": "\ufffd", "word": "<unk>"}
LINE_END = {"char": "\n", "word": "<eos>"}
_LINE_END_WORD = b" <eos> "
_NUM_CODES = 0x110000
_NUM_HASHES = 2**62  # among a million words, two have the same hash with a probability of 1 in 10 million


class FrequencyVocabulary(NamedTuple):
    """Ids of the words or characters of running text.

    Ids go from the most frequent to the rarest token, unless they are those of another run. Equally frequent tokens are
    sorted by their bytes. Every vocabulary has a token for all unknown ones ("<unk>"; U+FFFD among characters) and one
    for the end of a line ("<eos>"; the newline among characters).

    Attributes:
        unit: Kind of the tokens, "char" or "word".
        tokens: Words or characters by id.
        counts: Occurrences of each token in the text that the vocabulary was made from, by id.
    """

    unit: str
    tokens: tuple[str, ...]
    counts: tuple[int, ...]

    @property
    def unknown(self) -> int:
        """Id of all tokens that the vocabulary does not have."""
        return self.tokens.index(UNKNOWN[self.unit])

    @property
    def line_end(self) -> int:
        """Id of the end of a line."""
        return self.tokens.index(LINE_END[self.unit])

    @property
    def num_ids(self) -> int:
        """Number of tokens in the text that the vocabulary was made from."""
        return sum(self.counts)

    def encoder(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """Returns a function that maps a piece of text, scalar string, to its ids, int32 [N].

        The function can be used only in the graph in which `encoder` was called.
        """
        keys_of = _codes if self.unit == "char" else _hashes
        keys = keys_of(tf.constant("".join(self.tokens) if self.unit == "char" else " ".join(self.tokens)))
        # A lookup table would be a resource that every user of the dataset has to initialise; a binary search is not.
        ids = tf.argsort(keys)
        keys = tf.gather(keys, ids)

        def encode(text: tf.Tensor) -> tf.Tensor:
            wanted = keys_of(text)
            at = tf.minimum(tf.searchsorted(keys, wanted), len(self.tokens) - 1)
            return tf.where_v2(tf.equal(tf.gather(keys, at), wanted), tf.gather(ids, at), self.unknown)

        return encode

    def encode_batch(self, text_B: tf.Tensor) -> tf.RaggedTensor:
        """Builds the ops from texts, string [B], to their ids, int32 [B, lengths]."""
        if self.unit == "char":
            tokens = tf.strings.unicode_split(text_B, "UTF-8")
        else:
            tokens = tf.strings.split(
                tf.strings.regex_replace(text_B, "\n", _LINE_END_WORD), result_type="RaggedTensor"
            )
        joined = tf.strings.reduce_join(tokens.values, separator="" if self.unit == "char" else " ")
        return tokens.with_values(self.encoder()(joined))

    def stream(self, documents: Sequence[Document]) -> tf.data.Dataset:
        """Returns int32 vectors which, joined, are the ids of the texts in order. At least one text is needed."""
        pieces = documents[0].pieces(self.unit)
        for one in documents[1:]:
            pieces = pieces.concatenate(one.pieces(self.unit))
        return pieces.map(self.encoder())

    def word_ids(self, document: Document) -> np.ndarray:
        """Computes the ids of a text of words, int32 [N], in Python and in memory; they equal those of `stream`."""
        return np.concatenate(list(self.word_ids_by_piece(document)))

    def word_ids_by_piece(self, document: Document) -> Iterator[np.ndarray]:
        """Computes the ids of a text of words, int32 [N] for each piece of the text."""
        ids, unknown = {token.encode(): number for number, token in enumerate(self.tokens)}, self.unknown
        for words in _words(document):
            yield np.array([ids.get(word, unknown) for word in words], np.int32)


def make_vocabulary(
    documents: Iterable[Document], unit: str, max_tokens: int, tokens: Sequence[str] = ()
) -> FrequencyVocabulary:
    """Reads texts once and makes their vocabulary.

    Args:
        documents: Texts to read.
        unit: Kind of the tokens, "char" or "word".
        max_tokens: Most tokens to keep, at least 2; the rarer ones become the unknown token.
        tokens: Tokens of a vocabulary of this unit, by id, to keep in their order in place of the most frequent ones.

    Raises:
        DataError: A file cannot be read, or is not UTF-8.
    """
    counts: Counter[str] = Counter()
    for document in documents:
        counts.update(count(document, unit))
    unknown, line_end = UNKNOWN[unit], LINE_END[unit]
    if tokens:
        given = {token: counts.pop(token, 0) for token in tokens}
        given[unknown] += sum(counts.values())
        return FrequencyVocabulary(unit, tuple(given), tuple(given.values()))
    special = {unknown: counts.pop(unknown, 0), line_end: counts.pop(line_end, 0)}
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    kept = max_tokens - len(special)
    special[unknown] += sum(number for _, number in ordered[kept:])
    ordered = sorted([*ordered[:kept], *special.items()], key=lambda item: (-item[1], item[0]))
    tokens, numbers = zip(*ordered, strict=True)
    return FrequencyVocabulary(unit, tokens, numbers)


def count(document: Document, unit: str) -> Counter[str]:
    """Counts each word or character of a text. Among words, each newline counts as the word "<eos>".

    Raises:
        DataError: The file cannot be read, or is not UTF-8.
    """
    return _count_chars(document) if unit == "char" else _count_words(document)


def _codes(text: tf.Tensor) -> tf.Tensor:
    """Returns the Unicode code point of each character, int32 [N]."""
    return tf.strings.unicode_decode(text, "UTF-8")


def _hashes(text: tf.Tensor) -> tf.Tensor:
    """Returns the hash of each word, int64 [N]."""
    text = tf.strings.regex_replace(text, "\n", _LINE_END_WORD)
    return tf.strings.to_hash_bucket_fast(tf.strings.split([text], result_type="RaggedTensor").values, _NUM_HASHES)


def _count_chars(document: Document) -> Counter[str]:
    counts, num_codes, left = np.zeros(_NUM_CODES, np.int64), 0, b""
    for chunk in document.chunks():
        text = left + chunk
        # `chunks` has checked that the text is UTF-8, so "ignore" drops only a character that the chunk's end cuts.
        whole = text.decode("utf-8", "ignore")
        left = text[len(whole.encode()) :]
        found = np.bincount(np.frombuffer(whole.encode("utf-32-le"), np.uint32))
        counts[: len(found)] += found
        num_codes = max(num_codes, len(found))  # most texts have low codes only
    return Counter({chr(code): int(counts[code]) for code in np.flatnonzero(counts[:num_codes])})


def _count_words(document: Document) -> Counter[str]:
    counts = WordCounts()
    counts.add(blocks(document.chunks()))
    return Counter(dict(counts.items())) + Counter({LINE_END["word"]: counts.num_lines})


def _words(document: Document) -> Iterator[list[bytes]]:
    """Yields the words of a text in order, many at a time."""
    left = b""
    for chunk in document.chunks():
        text = left + chunk
        cut = max(text.rfind(b" "), text.rfind(b"\n")) + 1
        yield text[:cut].replace(b"\n", _LINE_END_WORD).split()
        left = text[cut:]
    yield left.split()

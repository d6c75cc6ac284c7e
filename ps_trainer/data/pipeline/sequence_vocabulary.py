"""Vocabularies of single texts, such as sentences: the lowest numbers are reserved for padding, start and end.

`frequency_vocabulary.py` is for running text, which needs no such numbers.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError

PADDING, START, END, UNKNOWN = range(4)
"""Reserved numbers: padding, the start of a text, the end of a text, and a symbol that the vocabulary does not have."""

UNITS = ("word", "char")
"""Kinds of symbols."""


class SequenceVocabulary:
    """Symbols (words or characters) and their numbers, from 4 on, above `PADDING`, `START`, `END` and `UNKNOWN`.

    Words are separated by ASCII white space. A "char" is any Unicode character, white space included.

    Args:
        symbols: Symbols in UTF-8, each once, in the order of their numbers.
        unit: Kind of the symbols, "word" or "char".
    """

    def __init__(self, symbols: Sequence[bytes], unit: str):
        self.symbols = tuple(symbols)
        self.unit = unit
        self._numbers = {symbol: number for number, symbol in enumerate(self.symbols, UNKNOWN + 1)}

    @classmethod
    def of(cls, texts: Iterable[bytes], unit: str, max_size: int) -> SequenceVocabulary:
        """Makes a vocabulary of the most frequent symbols of some texts, sorted by frequency, then by bytes.

        Args:
            texts: Texts in UTF-8. Every other byte counts as U+FFFD if the unit is "char".
            unit: Kind of the symbols, "word" or "char".
            max_size: Largest number of numbers, the four reserved ones included.

        Raises:
            OptionError: `unit` is not a known unit.
        """
        check_unit("unit", unit)
        counts = collections.Counter(symbol for text in texts for symbol in split(text, unit))
        ranked = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
        return cls(ranked[: max_size - len(range(UNKNOWN + 1))], unit)

    def __len__(self) -> int:
        """Returns the number of numbers, the reserved ones included; every number is less."""
        return UNKNOWN + 1 + len(self.symbols)

    def encode(self, text: bytes, length: int) -> list[int]:
        """Returns the numbers of a text's symbols, then `END`, then `PADDING`; a longer text is cut, without `END`."""
        numbers = [self._numbers.get(symbol, UNKNOWN) for symbol in split(text, self.unit)]
        return [*numbers, END, *[PADDING] * length][:length]

    def decode(self, numbers: Iterable[int]) -> str:
        """Returns the text up to the first `END` or `PADDING`; `UNKNOWN` and `START` become U+FFFD."""
        words = []
        for number in numbers:
            if number in (END, PADDING):
                break
            words.append(self.symbols[number - UNKNOWN - 1].decode() if number > UNKNOWN else "\ufffd")
        return (" " if self.unit == "word" else "").join(words)

    def encode_batch(self, text_B: tf.Tensor, length: int) -> tf.Tensor:
        """Builds the ops of `encode` for a batch of texts. The session has to run `tf.tables_initializer` first.

        Args:
            text_B: string [B], the texts.
            length: Number of columns of the result, L.

        Returns:
            int64 [B, L].
        """
        is_word = self.unit == "word"
        symbols = (
            tf.strings.split(text_B, result_type="RaggedTensor")
            if is_word
            else tf.strings.unicode_split(text_B, "UTF-8")
        )
        with tf.control_dependencies(None):  # a check of the texts must not hold up the table
            known = tf.lookup.KeyValueTensorInitializer(
                tf.constant(self.symbols, tf.string), tf.range(UNKNOWN + 1, len(self), dtype=tf.int64)
            )
            table = tf.lookup.StaticHashTable(known, UNKNOWN)
        numbers = symbols.with_values(table.lookup(symbols.values))
        # `to_tensor` with a shape pads shorter texts and cuts longer ones.
        padded_BL = numbers.to_tensor(PADDING, shape=[None, length])
        # To append the ends to the ragged tensor would take four times as many ops.
        is_end_BL = tf.equal(tf.range(length, dtype=tf.int64), numbers.row_lengths()[:, tf.newaxis])
        return tf.where_v2(is_end_BL, tf.constant(END, tf.int64), padded_BL)


def check_unit(name: str, unit: str) -> None:
    """Raises OptionError if an option's value is not a unit."""
    if unit not in UNITS:
        raise OptionError(f"{name}={unit} must be one of {', '.join(UNITS)}")


def split(text: bytes, unit: str) -> list[bytes]:
    """Splits a text in UTF-8 into symbols."""
    # Bytes, not `str`: `str.split` also cuts at Unicode's spaces, where `tf.strings.split` does not.
    return text.split() if unit == "word" else [symbol.encode() for symbol in text.decode(errors="replace")]

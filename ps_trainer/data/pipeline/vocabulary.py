"""Texts as numbers: symbols, which are words or characters, counted and numbered."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError

PADDING, START, END, UNKNOWN = range(4)
"""The numbers that no symbol has: filling up, in front of a text, behind it, in place of a symbol not known."""

UNITS = ("word", "char")


class Vocabulary:
    """Symbols and their numbers, from 4 on; those below are `PADDING`, `START`, `END` and `UNKNOWN`.

    A "word" is what stands between ASCII white space, a "char" a character of Unicode, white space included.

    Args:
        symbols: in UTF-8, each once, in the order of their numbers.
        unit: "word" or "char".
    """

    def __init__(self, symbols: Sequence[bytes], unit: str):
        self.symbols = tuple(symbols)
        self.unit = unit
        self._numbers = {symbol: number for number, symbol in enumerate(self.symbols, UNKNOWN + 1)}

    @classmethod
    def of(cls, texts: Iterable[bytes], unit: str, max_size: int) -> Vocabulary:
        """The most frequent symbols of some texts, the most frequent one first; of equal ones the lesser first.

        Args:
            texts: UTF-8; of other bytes each counts as U+FFFD where the unit is "char".
            unit: "word" or "char".
            max_size: the most numbers there may be, the lowest four included.

        Raises:
            OptionError: no such unit.
        """
        check_unit("unit", unit)
        counts = collections.Counter(symbol for text in texts for symbol in split(text, unit))
        ranked = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
        return cls(ranked[: max_size - len(range(UNKNOWN + 1))], unit)

    def __len__(self) -> int:
        """How many numbers there are; all are less."""
        return UNKNOWN + 1 + len(self.symbols)

    def encode(self, text: bytes, length: int) -> list[int]:
        """The numbers of a text's symbols, then `END`, then `PADDING`; a text that is too long has no end."""
        numbers = [self._numbers.get(symbol, UNKNOWN) for symbol in split(text, self.unit)]
        return [*numbers, END, *[PADDING] * length][:length]

    def decode(self, numbers: Iterable[int]) -> str:
        """The text up to the first `END` or `PADDING`; a symbol not known, or a start, is U+FFFD."""
        words = []
        for number in numbers:
            if number in (END, PADDING):
                break
            words.append(self.symbols[number - UNKNOWN - 1].decode() if number > UNKNOWN else "\ufffd")
        return (" " if self.unit == "word" else "").join(words)

    def encode_batch(self, text_B: tf.Tensor, length: int) -> tf.Tensor:
        """`encode` for many texts, by ops; needs `tf.tables_initializer` to be run.

        Args:
            text_B: string [B].
            length: L.

        Returns:
            int64 [B, L].
        """
        is_word = self.unit == "word"
        symbols = (
            tf.strings.split(text_B, result_type="RaggedTensor")
            if is_word
            else tf.strings.unicode_split(text_B, "UTF-8")
        )
        known = tf.lookup.KeyValueTensorInitializer(
            tf.constant(self.symbols, tf.string), tf.range(UNKNOWN + 1, len(self), dtype=tf.int64)
        )
        table = tf.lookup.StaticHashTable(known, UNKNOWN)
        numbers = symbols.with_values(table.lookup(symbols.values))
        ends = tf.fill([tf.shape(text_B)[0], 1], tf.constant(END, tf.int64))
        return tf.concat([numbers, ends], axis=1).to_tensor(PADDING, shape=[None, length])


def check_unit(name: str, unit: str) -> None:
    """Raises OptionError where an option's value is no unit."""
    if unit not in UNITS:
        raise OptionError(f"{name}={unit} must be one of {', '.join(UNITS)}")


def split(text: bytes, unit: str) -> list[bytes]:
    """The symbols of a text in UTF-8."""
    return text.split() if unit == "word" else [symbol.encode() for symbol in text.decode(errors="replace")]

"""Numbers in English words and Chinese characters: a small language pair with known correct translations."""

from __future__ import annotations

import dataclasses
import pathlib

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.formats import parallel_text
from ps_trainer.data.pipeline.array_source import ArraySource, check_bytes
from ps_trainer.data.pipeline.sequence_vocabulary import SequenceVocabulary
from ps_trainer.errors import OptionError
from ps_trainer.options import option

MAX_LENGTH = 12
"""Length of the longest number in words or characters, including the end."""

_LARGEST = 999_999
_BELOW_20 = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_DIGITS = "零一二三四五六七八九"
_PLACES = ((1000, "千"), (100, "百"), (10, "十"), (1, ""))


class Numbers(ArraySource):
    """Numbers in English words and in Chinese characters; no test number is a training number.

    Batches: "source" int64 [B, 12], the English words; "target" int64 [B, 12], the Chinese characters. Words and
    characters have the same numbers as in dataset `parallel_text` with the files of `data generate`. The numbers are
    drawn from 0..max_number with equal probabilities, without repetition.

    Args:
        options: Sizes and seed.
        data_dir: Not used.

    Attributes:
        source_vocabulary: Vocabulary of the English words.
        target_vocabulary: Vocabulary of the Chinese characters.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Numbers`."""

        max_number: int = option(_LARGEST, "largest number that can be drawn", least=1, most=_LARGEST)
        num_train: int = option(20000, "number of training examples", least=1)
        num_test: int = option(1000, "number of test examples", least=1)
        seed: int = option(0, "seed of the numbers drawn", least=0, below=2**32)

        def __post_init__(self) -> None:
            if self.num_train + self.num_test > self.max_number + 1:
                raise OptionError(
                    f"num_train={self.num_train} and num_test={self.num_test} together exceed the"
                    f" {self.max_number + 1} numbers from 0 to max_number; lower one of them, or raise max_number"
                )
            check_bytes(2 * MAX_LENGTH * max(self.num_train, self.num_test), "num_train or num_test")

    def __init__(self, options: Options, *, data_dir: str | None = None):
        del data_dir
        texts = {split: _texts(numbers) for split, numbers in _draw(options).items()}
        vocabularies = {
            "source": SequenceVocabulary.of(map(str.encode, texts["train"]["en"]), "word", max_size=100),
            "target": SequenceVocabulary.of(map(str.encode, texts["train"]["zh"]), "char", max_size=100),
        }
        self.source_vocabulary, self.target_vocabulary = vocabularies.values()
        self.source_vocab_size, self.target_vocab_size = len(self.source_vocabulary), len(self.target_vocabulary)
        arrays = [
            {
                # A byte per number, because the arrays become part of the graph; both vocabularies are small.
                side: np.array(
                    [vocabulary.encode(text.encode(), MAX_LENGTH) for text in texts[split][language]], np.int8
                )
                for (side, vocabulary), language in zip(vocabularies.items(), ("en", "zh"), strict=True)
            }
            for split in ("train", "test")
        ]
        super().__init__(*arrays, num_classes=None)

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {side: tf.cast(numbers, tf.int64) for side, numbers in batch.items()}


def generate(options: Numbers.Options, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes numbers in English and Chinese as aligned text: train.en, train.zh, test.en, test.zh.

    `--dataset=parallel_text --dataset_option=target_unit=char --dataset_option=max_length=12` reads them.
    """
    files = []
    for split, numbers in _draw(options).items():
        files += parallel_text.write(folder, split, _texts(numbers))
    return files


def english(number: int) -> str:
    """Writes 0..999,999 in words, without hyphens and "and": "twelve thousand three hundred forty five"."""
    if number < 20:
        return _BELOW_20[number]
    if number < 100:
        head, rest = _TENS[number // 10 - 2], number % 10
    elif number < 1000:
        head, rest = f"{_BELOW_20[number // 100]} hundred", number % 100
    else:
        head, rest = f"{english(number // 1000)} thousand", number % 1000
    return f"{head} {english(rest)}" if rest else head


def chinese(number: int) -> str:
    """Writes 0..999,999 in characters, in groups of four digits with 零 for zeros inside: 一万二千三百四十五."""
    if number == 0:
        return _DIGITS[0]
    high, low = divmod(number, 10_000)
    text = f"{_four_digits(high)}万" if high else ""
    if high and 0 < low < 1000:
        text += _DIGITS[0]
    text += _four_digits(low)
    return text[1:] if text.startswith("一十") else text  # at the beginning, ten is 十 instead of 一十


def _four_digits(number: int) -> str:
    text, has_zero = "", False
    for place, name in _PLACES:
        digit = number // place % 10
        if digit:
            text += (_DIGITS[0] if has_zero and text else "") + _DIGITS[digit] + name
        has_zero = not digit
    return text


def _draw(options: Numbers.Options) -> dict[str, list[int]]:
    numbers = np.random.RandomState(options.seed).permutation(options.max_number + 1).tolist()
    num_train = options.num_train
    return {"train": numbers[:num_train], "test": numbers[num_train : num_train + options.num_test]}


def _texts(numbers: list[int]) -> dict[str, list[str]]:
    return {"en": [english(number) for number in numbers], "zh": [chinese(number) for number in numbers]}

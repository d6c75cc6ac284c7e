"""Numbers in words, and the files of them that the loader of parallel text reads."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.data.formats.parallel_text import ParallelText
from ps_trainer.data.generators.number_words import Numbers, chinese, english, generate
from ps_trainer.errors import OptionError
from tests.data.reading import read_batches

SMALL = Numbers.Options(max_number=99_999, num_train=300, num_test=40)


def all_of_test(source):
    (batch,) = read_batches(lambda: source.test(batch_size=source.num_test_examples))
    return batch


@pytest.mark.parametrize(
    ("number", "in_english", "in_chinese"),
    [
        (0, "zero", "零"),
        (7, "seven", "七"),
        (10, "ten", "十"),
        (14, "fourteen", "十四"),
        (20, "twenty", "二十"),
        (42, "forty two", "四十二"),
        (105, "one hundred five", "一百零五"),
        (110, "one hundred ten", "一百一十"),
        (1_000, "one thousand", "一千"),
        (1_001, "one thousand one", "一千零一"),
        (1_010, "one thousand ten", "一千零一十"),
        (10_000, "ten thousand", "一万"),
        (10_203, "ten thousand two hundred three", "一万零二百零三"),
        (20_010, "twenty thousand ten", "二万零一十"),
        (100_000, "one hundred thousand", "十万"),
        (104_015, "one hundred four thousand fifteen", "十万四千零一十五"),
        (999_999, "nine hundred ninety nine thousand nine hundred ninety nine", "九十九万九千九百九十九"),
    ],
)
def test_numbers_have_their_usual_words(number, in_english, in_chinese):
    assert english(number) == in_english
    assert chinese(number) == in_chinese


def test_no_two_numbers_have_the_same_words():
    numbers = [*range(12_000), *range(99_000, 112_000), *range(999_000, 1_000_000)]
    assert len({english(number) for number in numbers}) == len({chinese(number) for number in numbers}) == len(numbers)
    assert max(len(chinese(number)) for number in numbers) + 1 == 12
    assert max(len(english(number).split()) for number in numbers) + 1 <= 12


def test_no_test_example_is_a_training_example():
    source = Numbers(SMALL)
    assert (source.num_train_examples, source.num_test_examples) == (300, 40)
    train, test = (
        {source.source_vocabulary.decode(row) for row in source.arrays[split]["source"]} for split in ("train", "test")
    )
    assert (len(train), len(test)) == (300, 40)
    assert not train & test


def test_source_and_target_are_the_same_number():
    source = Numbers(SMALL)
    batch = all_of_test(source)
    chinese_of = {english(number): chinese(number) for number in range(100_000)}
    for words, characters in zip(batch["source"], batch["target"], strict=True):
        assert chinese_of[source.source_vocabulary.decode(words)] == source.target_vocabulary.decode(characters)


def test_the_files_are_read_like_the_built_in_set(tmp_path):
    files = generate(SMALL, tmp_path)
    assert [file.name for file in files] == ["train.en", "train.zh", "test.en", "test.zh"]
    options = ParallelText.Options(target_unit="char", max_length=12)
    read, built_in = all_of_test(ParallelText(options, data_dir=str(tmp_path))), all_of_test(Numbers(SMALL))
    assert built_in["source"].dtype == np.int64
    for side in ("source", "target"):
        np.testing.assert_array_equal(read[side], built_in[side])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"max_number": 99, "num_train": 90, "num_test": 11},
            "num_train=90 and num_test=11 together exceed the 100 numbers",
        ),
    ],
)
def test_wrong_option_is_named(options, message):
    with pytest.raises(OptionError, match=message):
        Numbers.Options(**options)

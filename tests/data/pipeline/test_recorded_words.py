"""The words of a run are written beside its checkpoints, and read back without the corpus."""

from __future__ import annotations

import pytest

from ps_trainer.config import TrainConfig
from ps_trainer.data.formats.text import Text
from ps_trainer.data.generators.number_words import Numbers
from ps_trainer.data.pipeline import recorded_words
from ps_trainer.data.pipeline.recorded_words import RecordedWords
from ps_trainer.errors import DataError
from ps_trainer.training import run_files


def recorded(folder, dataset):
    run_files.write_vocabulary(TrainConfig(logdir=str(folder)), dataset)
    return recorded_words.read(folder)


@pytest.mark.parametrize("unit", ["char", "word"])
def test_words_of_a_text_are_read_back_by_id(tmp_path, unit):
    text = 'the cat said "né\\o"\tto\u2028the dog\r\nand 犬\n' * 20
    (tmp_path / "train.txt").write_bytes(text.encode())
    options = Text.Options(unit=unit, context_length=4, train_files=("train.txt",))
    dataset = Text(options, data_dir=str(tmp_path))
    words = recorded(tmp_path / "run", dataset)["text"]
    assert (words.unit, words.tokens, words.counts) == tuple(dataset.vocabulary)
    assert words.id_of("犬") == dataset.vocabulary.tokens.index("犬")
    assert words.id_of("absent") is None
    assert words.special == ({"<unk>", "<eos>"} if unit == "word" else {"\ufffd"})


def test_both_languages_have_their_words_after_the_reserved_numbers(tmp_path):
    dataset = Numbers(Numbers.Options(num_train=50, num_test=5))
    words = recorded(tmp_path, dataset)
    assert set(words) == {"source", "target"}
    assert words["source"].tokens[:4] == recorded_words.RESERVED
    (number,) = dataset.source_vocabulary.encode(b"thousand", 1)
    assert words["source"].id_of("thousand") == number


def test_words_at_the_end_of_a_line_become_newlines():
    words = RecordedWords("word", ("<unk>", "<eos>", "a", "b"))
    assert words.text_of([2, 3, 1, 2, 0, 9]) == "a b\na \ufffd \ufffd"


def test_a_run_without_words_removes_those_of_an_earlier_run(tmp_path):
    recorded(tmp_path, Numbers(Numbers.Options(num_train=50, num_test=5)))
    with pytest.raises(DataError, match=r"vocabulary.json does not exist.*continue such a run"):
        recorded(tmp_path, object())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"text": 1}', '{"text": {"unit": "word", "tokens": [], "counts": []}}',
     '{"text": {"unit": "word", "tokens": ["a", "b"], "counts": [1]}}'],
)  # fmt: skip
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / recorded_words.FILE).write_text(content)
    with pytest.raises(DataError, match=r"vocabulary.json cannot be read .*continue the run"):
        recorded_words.read(tmp_path)

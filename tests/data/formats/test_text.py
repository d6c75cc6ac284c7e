"""Text: windows that predict every id once, files of all forms, broken files, and the vocabulary."""

from __future__ import annotations

import gzip
import zipfile
from collections import Counter

import numpy as np
import pytest

from ps_trainer.data.formats.text import Text, python_documentation
from ps_trainer.data.pipeline import recorded_words, text_stream
from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.data.pipeline.frequency_vocabulary import make_vocabulary
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.data.pipeline.text_stream import Document, document
from ps_trainer.errors import DataError, OptionError
from tests.data.reading import read_column
from tests.data.sharding import assert_every_record_once, assert_parts_are_test_batches
from tests.testing.repetitions import repetitions

THREE_LINES = "the cat sat\non the mat\nthe end\n"


def create(folder, **options):
    return Text(Text.Options(**options), data_dir=None if folder is None else str(folder))


def train_windows(source):
    return read_column(lambda: source.train(shard=Shard(0, 1), batch_size=1, seed=0, num_epochs=1), "ids")


def test_windows_of_words_predict_each_word_and_line_end_once(tmp_path):
    (tmp_path / "train.txt").write_text(THREE_LINES)
    (tmp_path / "test.txt").write_text("a cat\nsat on\n")
    source = create(tmp_path, unit="word", context_length=3)
    # The 3 line ends and the 3 "the" are equally frequent, and "<" sorts before "t".
    assert source.vocabulary.tokens == ("<eos>", "the", "cat", "end", "mat", "on", "sat", "<unk>")
    assert source.vocab_size == 8
    assert (source.num_train_examples, source.num_test_examples) == (11 // 3, 6 // 3)
    windows = train_windows(source)
    assert sorted(map(list, windows)) == [[0, 1, 2, 6], [1, 4, 0, 1], [6, 0, 5, 1]]
    test = read_column(lambda: source.test(batch_size=4), "ids")
    np.testing.assert_array_equal(test, [[0, 7, 2, 0], [0, 6, 5, 0]])
    assert test.dtype == np.int64


def test_windows_of_characters_need_no_words(tmp_path):
    (tmp_path / "train.txt").write_text("é漢é漢é漢éb")
    source = create(tmp_path, context_length=2, test_share=0.25)
    assert source.vocabulary.tokens == ("é", "漢", "b", "\n", "\ufffd")
    assert (source.num_train_examples, source.num_test_examples) == (3, 1)
    assert sorted(map(list, train_windows(source))) == [[1, 0, 1], [1, 0, 1], [3, 0, 1]]
    np.testing.assert_array_equal(read_column(lambda: source.test(batch_size=1), "ids"), [[1, 0, 2]])


def test_another_file_is_read_with_the_vocabulary_of_the_training_file(tmp_path):
    (tmp_path / "train.txt").write_text(THREE_LINES)
    (tmp_path / "new").write_text("the dog sat")
    source = create(tmp_path, unit="word", context_length=3, test_share=0.3)
    np.testing.assert_array_equal(read_column(lambda: source.read(tmp_path / "new", 4), "ids"), [[0, 1, 7, 6]])


def test_windows_cover_all_files_in_order_and_each_is_in_one_shard(tmp_path):
    words = [f"w{number:03}" for number in range(100)]
    (tmp_path / "a").write_text(" ".join(words[:37]) + " ")
    (tmp_path / "b.gz").write_bytes(gzip.compress(" ".join(words[37:]).encode()))
    (tmp_path / "t").write_text("w000")
    source = create(
        tmp_path, unit="word", context_length=1, train_files=("a", "b.gz"), test_files=("t",), max_vocab=1000
    )
    ids = read_column(lambda: source.in_order("train", batch_size=30), "ids")
    assert [source.vocabulary.tokens[i] for i in ids[:, 1]] == words
    assert_every_record_once(source, "ids")
    assert_parts_are_test_batches(source)


@pytest.mark.parametrize("seed", repetitions(range(4)))
@pytest.mark.parametrize("unit", ["char", "word"])
def test_random_texts_are_read_back(tmp_path, monkeypatch, unit, seed):
    """The chunks and blocks are so small that every border occurs."""
    random = np.random.RandomState(seed)
    monkeypatch.setattr(text_stream, "_CHUNK_BYTES", int(random.randint(1, 9)))
    monkeypatch.setattr(text_stream, "_BLOCK_IDS", int(random.randint(1, 9)))
    text = "".join(random.choice(list("ab \n\té漢"), size=random.randint(8, 60))) + "a b"
    packed = gzip.compress(text.encode())
    (tmp_path / "train.txt").write_bytes(packed if random.randint(2) else text.encode())
    (tmp_path / "test.txt").write_text(text)
    source = create(tmp_path, unit=unit, context_length=int(random.randint(1, 4)))
    tokens = list(text) if unit == "char" else text.replace("\n", " <eos> ").split()
    told = len(tokens) // source._stride * source._stride
    windows = read_column(lambda: source.test(batch_size=5), "ids")
    assert [source.vocabulary.tokens[i] for i in windows[:, 1:].ravel()] == tokens[:told]
    np.testing.assert_array_equal(windows[1:, 0], windows[:-1, -1])
    counts = Counter(dict(zip(source.vocabulary.tokens, source.vocabulary.counts, strict=True)))
    assert +counts == Counter(tokens)


def test_rare_words_are_unknown_and_count_as_such():
    text = b"a a a b b c d e <unk>"
    vocabulary = make_vocabulary([Document(None, len(text), text=text)], "word", max_tokens=4)
    assert vocabulary.tokens == ("<unk>", "a", "b", "<eos>")
    assert vocabulary.counts == (4, 3, 2, 0)
    assert (vocabulary.unknown, vocabulary.line_end, vocabulary.num_ids) == (0, 3, 9)


@pytest.mark.parametrize(
    ("names", "num_test"),
    [
        (["ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"], 4),
        (["train.txt.gz"], 1),
        (["text8"], 1),
        (["text8.gz"], 1),
        (["text8.zip"], 1),
    ],
)
def test_files_are_found_by_the_names_of_their_archives(tmp_path, names, num_test):
    for name in names:
        text = b"abcdefgh"
        if name.endswith(".zip"):
            with zipfile.ZipFile(tmp_path / name, "w") as archive:
                archive.writestr("text8", text)
        else:
            (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    source = create(tmp_path, context_length=2)
    assert (source.num_train_examples + (num_test == 1), source.num_test_examples) == (4, num_test)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(
        [*names, *(["text8"] if ".zip" in names[0] else [])]
    )


def test_the_built_in_text_is_pythons_documentation():
    source = create(None, unit="word")
    text = python_documentation().text.decode()
    assert "assert_stmt" in text
    assert source.vocabulary.num_ids == len(text.replace("\n", " <eos> ").split())
    windows = train_windows(source)
    assert windows.shape == (source.num_train_examples, 65)
    assert windows.max() < source.vocab_size


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DataError, match="has none of these files; a text needs .* ptb.train.txt or train.txt or text8"):
        create(tmp_path)
    with pytest.raises(DataError, match="has no b.txt; a text needs --data_dir=<folder> with a.txt, b.txt"):
        (tmp_path / "a.txt").write_text("a")
        create(tmp_path, train_files=("a.txt", "b.txt"))
    with pytest.raises(DataError, match="--data_dir is not given"):
        create(None, train_files=("a.txt",))
    for name in ("train.txt", "text8"):
        (tmp_path / name).write_text("a b c")
    with pytest.raises(
        DataError, match="has several texts: train.txt, text8; choose with --dataset_option=train_files="
    ):
        create(tmp_path)


def test_a_text_to_predict_for_must_be_utf_8(tmp_path):
    (tmp_path / "new").write_bytes(b"a\xff")
    with pytest.raises(DataError, match="new: byte 1: not UTF-8"):
        create(None).read(tmp_path / "new", 2)


def test_a_broken_file_is_named_with_the_position(tmp_path):
    (tmp_path / "train.txt").write_bytes("é".encode() * 40_000 + b"\xff bc")
    with pytest.raises(DataError, match="train.txt: byte 80000: not UTF-8"):
        create(tmp_path)
    (tmp_path / "train.txt").write_bytes("漢".encode()[:2])
    with pytest.raises(DataError, match="train.txt: byte 0: not UTF-8"):
        create(tmp_path)
    (tmp_path / "train.txt").write_bytes(gzip.compress(b"a b c" * 1000)[:-9])
    with pytest.raises(DataError, match="train.txt: cannot be unpacked"):
        create(tmp_path)
    (tmp_path / "train.txt").write_bytes(b"")
    with pytest.raises(DataError, match="train.txt: the file is empty"):
        create(tmp_path)
    (tmp_path / "train.txt").write_bytes(b"a b c")
    with pytest.raises(DataError, match="5 chars to train on and 5 to test on, which is too few for windows of 5"):
        create(tmp_path, context_length=5)
    (tmp_path / "train.txt").unlink()
    (tmp_path / "text8.zip").write_bytes(b"PK")
    with pytest.raises(DataError, match="text8.zip: cannot unpack text8 beside it"):
        create(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["text8.zip"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test_files": ("a",)}, "test_files=a needs train_files"),
    ],
)
def test_wrong_option_is_named(options, message):
    with pytest.raises(OptionError, match=message):
        Text.Options(**options)


def test_a_file_may_be_larger_than_a_chunk(tmp_path):
    text = " ".join(str(number % 997) for number in range(50_000))
    (tmp_path / "train.txt").write_text(text)
    assert document(tmp_path / "train.txt").num_bytes > text_stream._CHUNK_BYTES
    source = create(tmp_path, unit="word", context_length=100)
    windows = train_windows(source)
    test = read_column(lambda: source.test(batch_size=8), "ids")
    counts = Counter(source.vocabulary.tokens[i] for i in np.concatenate([windows, test])[:, 1:].ravel())
    assert counts == Counter(text.split())


def test_words_of_another_run_keep_their_ids(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "train.txt").write_text(THREE_LINES)
    options = {"unit": "word", "context_length": 3}
    before = create(tmp_path, **options)
    text = recorded_words.as_text(recorded_words.vocabularies_of(before))
    (tmp_path / "run/vocabulary.json").write_text(text)
    (tmp_path / "train.txt").write_text(THREE_LINES + "a dog sat on a dog\n" * 3)
    after = create(tmp_path, **options, vocabulary_of=str(tmp_path / "run"))
    assert after.vocabulary.tokens == before.vocabulary.tokens
    assert after.vocabulary.counts == (6, 3, 1, 1, 1, 4, 4, 12)
    assert sum(map(len, train_windows(after))) == 4 * after.num_train_examples
    assert "37.50% of the words of the training text are not in the vocabulary of" in after.advice
    # A command that uses the run needs neither the text nor the other run.
    (tmp_path / "run/vocabulary.json").unlink()
    again = Text(
        Text.Options(**options, vocabulary_of=str(tmp_path / "run")),
        data_dir=str(tmp_path),
        facts=Facts(after.facts.entries),
    )
    assert again.vocabulary == after.vocabulary


def test_a_run_without_such_words_is_named(tmp_path):
    (tmp_path / "train.txt").write_text(THREE_LINES)
    with pytest.raises(DataError, match="none/vocabulary.json does not exist, so the run's words are not known"):
        create(tmp_path, vocabulary_of=str(tmp_path / "none"))
    words = recorded_words.vocabularies_of(create(tmp_path, context_length=3))
    (tmp_path / "vocabulary.json").write_text(recorded_words.as_text(words))
    with pytest.raises(DataError, match="vocabulary_of=.*: the vocabulary text has chars, and these data words"):
        create(tmp_path, unit="word", vocabulary_of=str(tmp_path))
    (tmp_path / "vocabulary.json").write_text(recorded_words.as_text({"source": words["text"]}))
    with pytest.raises(DataError, match="vocabulary_of=.*: the run has the vocabulary source, and not text"):
        create(tmp_path, vocabulary_of=str(tmp_path))

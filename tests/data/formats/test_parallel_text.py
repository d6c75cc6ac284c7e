"""Aligned text: the loader reads, counts, shards and numbers both files together, and names broken lines."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.data import info
from ps_trainer.data.formats.parallel_text import ParallelText, write
from ps_trainer.data.pipeline import recorded_words
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import DataError, OptionError
from tests.data.reading import read_batches
from tests.data.sharding import assert_every_record_once, assert_parts_are_test_batches

TEXTS = {"en": ["a b a", "c", "a\tb"], "zh": ["二三", "三", "二 一"]}


def create(folder, **options):
    fields = {"target_unit": "char", "max_length": 4, "test_files": ("train",), **options}
    return ParallelText(ParallelText.Options(**fields), data_dir=str(folder))


def all_of_test(source):
    (batch,) = read_batches(lambda: source.test(batch_size=source.num_test_examples))
    return batch


@pytest.mark.parametrize("is_packed", [False, True])
def test_words_and_characters_are_numbered_by_frequency(tmp_path, is_packed):
    for path in write(tmp_path, "train", TEXTS):
        if is_packed:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    source = create(tmp_path)
    assert (source.num_train_examples, source.num_test_examples, source.num_classes) == (3, 3, None)
    assert source.source_vocabulary.symbols == (b"a", b"b", b"c")  # frequencies 3, 2 and 1
    assert source.target_vocabulary.symbols == tuple(symbol.encode() for symbol in "三二 一")
    batch = all_of_test(source)
    assert set(batch) == {"source", "target"}
    np.testing.assert_array_equal(batch["source"], [[4, 5, 4, 2], [6, 2, 0, 0], [4, 5, 2, 0]])
    np.testing.assert_array_equal(batch["target"], [[5, 4, 2, 0], [4, 2, 0, 0], [5, 6, 7, 2]])


def test_a_longer_text_is_cut_and_a_rarer_word_is_unknown(tmp_path):
    write(tmp_path, "train", TEXTS)
    batch = all_of_test(create(tmp_path, max_length=2, max_vocab=5))
    np.testing.assert_array_equal(batch["source"], [[4, 3], [3, 2], [4, 3]])
    np.testing.assert_array_equal(batch["target"], [[3, 4], [4, 2], [3, 3]])


def test_numbers_come_from_the_training_files_alone(tmp_path):
    write(tmp_path, "train", TEXTS)
    write(tmp_path, "test", {"en": ["c d"], "zh": ["四"]})
    batch = all_of_test(create(tmp_path, test_files=("test",)))
    np.testing.assert_array_equal(batch["source"], [[6, 3, 2, 0]])
    np.testing.assert_array_equal(batch["target"], [[3, 2, 0, 0]])


def test_words_of_another_run_keep_their_numbers(tmp_path):
    write(tmp_path, "train", TEXTS)
    before = create(tmp_path)
    text = recorded_words.as_text(recorded_words.vocabularies_of(before))
    (tmp_path / "vocabulary.json").write_text(text)
    for path in (tmp_path / "train.en", tmp_path / "train.zh"):
        path.unlink()
    write(tmp_path, "train", {"en": ["c d c d c", "a"], "zh": ["四", "一"]})
    batch = all_of_test(create(tmp_path, vocabulary_of=str(tmp_path)))
    np.testing.assert_array_equal(batch["source"], [[6, 3, 6, 3], [4, 2, 0, 0]])
    np.testing.assert_array_equal(batch["target"], [[3, 2, 0, 0], [7, 2, 0, 0]])


def test_shards_cover_the_pairs_of_all_files_once(tmp_path):
    words = [f"w{i}" for i in range(20)]
    for name, part in (("a", words[:9]), ("b", words[9:])):
        write(tmp_path, name, {"en": part, "de": part})
    source = create(
        tmp_path, target="de", target_unit="word", train_files=("a", "b"), test_files=(), test_every=5, max_length=1
    )
    assert (source.num_train_examples, source.num_test_examples) == (15, 5)
    batch = assert_every_record_once(source, "target")
    np.testing.assert_array_equal(batch["source"], batch["target"])  # still aligned
    held_out = {word for test in assert_parts_are_test_batches(source) for word in test["target"][:, 0]}
    assert len(held_out) == 5 and not held_out & set(batch["target"][:, 0])


@pytest.mark.parametrize(
    ("broken", "line"),
    [({"en": ["a", " ", "b"], "zh": ["一", "二", "三"]}, 2), ({"en": ["a", "b", "c"], "zh": ["", "二", "三"]}, 1)],
)
def test_an_empty_line_beside_a_text_is_named(tmp_path, broken, line):
    write(tmp_path, "train", broken)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=f"train.en: line {line}: not text in UTF-8 both here and .* the .zh file"
    ):
        all_of_test(create(tmp_path))


def test_a_line_that_is_not_utf_8_is_named(tmp_path):
    write(tmp_path, "train", TEXTS)
    (tmp_path / "train.zh").write_bytes("1\n二\n三\n".encode("gbk"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="train.en: line 2: not text in UTF-8 .*c.*\ufffd"):
        all_of_test(create(tmp_path))


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DataError, match="--data_dir is not given; .*with train.en, train.zh$"):
        ParallelText(ParallelText.Options())
    write(tmp_path, "train", TEXTS)
    with pytest.raises(
        DataError,
        match="has no test.en and no test.en.gz; dataset parallel_text needs .*; without test files, leave out test_f",
    ):
        create(tmp_path, test_files=("test",))


def test_different_numbers_of_lines_are_both_named(tmp_path):
    write(tmp_path, "train", {"en": ["a", "b"], "zh": ["一"]})
    with pytest.raises(DataError, match=r"train.en has 2 lines, but .*train.zh has 1; line n of one must be"):
        create(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_files": ()}, "train_files is empty"),
    ],
)
def test_wrong_option_is_named(options, message):
    with pytest.raises(OptionError, match=message):
        ParallelText.Options(**options)


@pytest.mark.parametrize("seed", range(2))
def test_random_texts_are_read_back(tmp_path, seed):
    """The reader gives the vocabulary's own encoding of each line, for any characters and all kinds of white space."""
    random = np.random.RandomState(seed)
    alphabet = list("ab,.'\t \r\u3000\u00e9\u4e00\U0001f600")
    texts = {
        language: ["".join(random.choice(alphabet, size=random.randint(0, 12))) + "x" for _ in range(15)]
        for language in ("en", "zh")
    }
    write(tmp_path, "train", texts)
    source = create(tmp_path, source_unit=("word", "char")[seed % 2], max_length=9)
    batch = all_of_test(source)
    sides = {"source": ("en", source.source_vocabulary), "target": ("zh", source.target_vocabulary)}
    for side, (language, vocabulary) in sides.items():
        read = [text.replace("\r", "").replace("\t", " ").encode() for text in texts[language]]
        np.testing.assert_array_equal(batch[side], [vocabulary.encode(text, 9) for text in read])
        assert all(symbol for symbol in vocabulary.symbols)
        assert 3 not in batch[side]


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_file_to_translate_has_only_the_source_language(tmp_path, is_packed):
    write(tmp_path, "train", TEXTS)
    text = b"c a\tb\na b c a b c\na b c a\n"
    (tmp_path / "more").write_bytes(gzip.compress(text) if is_packed else text)
    source = create(tmp_path)
    (batch,) = read_batches(lambda: source.read(tmp_path / "more", 8))
    np.testing.assert_array_equal(batch["source"], [[6, 4, 5, 2], [4, 5, 6, 4], [4, 5, 6, 4]])
    np.testing.assert_array_equal(batch["target"], [[2, 0, 0, 0]] * 3)
    np.testing.assert_array_equal(batch["is_cut"], [False, True, True])
    assert source.unfamiliar.take() == ""


def test_words_to_translate_that_the_vocabulary_lacks_are_counted(tmp_path):
    write(tmp_path, "train", TEXTS)
    (tmp_path / "more").write_text("a mouse\nb mouse owl\n")
    source = create(tmp_path)
    source.read(tmp_path / "more", 8)
    wanted = "words that the vocabulary lacks, read as unknown: 3 of 5 ('mouse', 'owl')"
    assert source.unfamiliar.take() == f"input unlike the training data: {wanted}"


def test_a_line_without_text_in_a_file_to_translate_is_named(tmp_path):
    write(tmp_path, "train", TEXTS)
    (tmp_path / "more").write_text("a\n\nb\n")
    source = create(tmp_path)
    with pytest.raises(tf.errors.InvalidArgumentError, match="more: line 2: an empty line, or not text in UTF-8"):
        read_batches(lambda: source.read(tmp_path / "more", 8))


def test_without_test_files_every_nth_line_is_a_test_example(tmp_path):
    words = [f"w{at}" for at in range(7)]
    write(tmp_path, "train", {"en": words, "zh": words})
    source = create(tmp_path, test_files=None, test_every=3, target_unit="word", max_length=1)
    symbols = source.source_vocabulary.symbols
    for split, wanted in (("test", words[::3]), ("train", [word for at, word in enumerate(words) if at % 3])):
        (batch,) = read_batches(lambda split=split: source.in_order(split, batch_size=9))
        assert [symbols[number - 4].decode() for number in batch["source"][:, 0]] == wanted
    # With such files, or when the option names them, these are the test examples.
    write(tmp_path, "test", {"en": words[:2], "zh": words[:2]})
    assert create(tmp_path, test_files=None).num_test_examples == 2
    assert create(tmp_path, test_files=None).num_train_examples == 7
    (tmp_path / "test.zh").unlink()
    with pytest.raises(DataError, match="has no test.zh and no test.zh.gz"):
        create(tmp_path, test_files=None)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_a_file_of_two_columns_gives_the_batches_of_two_files(tmp_path, is_packed, end):
    texts = {"en": ["a b a", "c", "a  b"], "zh": ["二三", "三", "二 一"]}
    write(tmp_path, "train", texts)
    pairs = end.join(f"{source}\t{target}" for source, target in zip(*texts.values(), strict=True)) + end
    name = "pairs.tsv.gz" if is_packed else "pairs.tsv"
    content = ("\ufeff" + pairs).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if is_packed else content)
    wanted = create(tmp_path)
    for given in {name, "pairs.tsv"}:
        found = create(tmp_path, train_files=(given,), test_files=(given,))
        assert (found.source_vocabulary.symbols, found.target_vocabulary.symbols) == (
            wanted.source_vocabulary.symbols,
            wanted.target_vocabulary.symbols,
        )
        np.testing.assert_equal(all_of_test(found), all_of_test(wanted))
    split = create(tmp_path, train_files=(name,), test_files=None, test_every=2)
    assert (split.num_train_examples, split.num_test_examples) == (1, 2)


def test_a_line_of_a_file_of_two_columns_with_others_is_named_before_a_training(tmp_path):
    (tmp_path / "pairs.tsv").write_text("a\tb\na\tb\tCC-BY\n")
    with pytest.raises(DataError, match="pairs.tsv: line 2 has 3 columns, and must have 2, .*; cut -f1,2 keeps the"):
        create(tmp_path, train_files=("pairs.tsv",), test_files=())
    message = "; if pairs.tsv has both languages, .*, give --dataset_option=train_files=pairs.tsv$"
    with pytest.raises(DataError, match=f"has no train.en and no train.en.gz; .*{message}"):
        create(tmp_path, test_files=())
    (tmp_path / "pairs.tsv").write_text("a\tb\na\t\n")
    source = create(tmp_path, train_files=("pairs.tsv",), test_files=("pairs.tsv",))
    with pytest.raises(tf.errors.InvalidArgumentError, match="pairs.tsv: line 2: not two texts in UTF-8 with one tab"):
        all_of_test(source)


def test_a_file_to_translate_with_both_languages_is_named_with_the_command_that_cuts_it(tmp_path):
    (tmp_path / "pairs.tsv").write_text("a b\tc\nb\td\n")
    source = create(tmp_path, train_files=("pairs.tsv",), test_files=())
    with pytest.raises(DataError, match="pairs.tsv: a file to translate has the source .* with cut -f1 .*/pairs.tsv$"):
        source.read(tmp_path / "pairs.tsv", 8)
    (tmp_path / "more").write_text("b a\n")
    (batch,) = read_batches(lambda: source.read(tmp_path / "more", 8))
    np.testing.assert_array_equal(batch["source"], [[4, 5, 2, 0]])


def test_a_byte_order_mark_is_not_a_part_of_the_first_word(tmp_path):
    for path in write(tmp_path, "train", TEXTS):
        path.write_text(f"\ufeff{path.read_text()}")
    source = create(tmp_path)
    assert source.source_vocabulary.symbols == (b"a", b"b", b"c")
    np.testing.assert_array_equal(all_of_test(source)["source"][0], [4, 5, 4, 2])


ATTRIBUTED = [
    ("Go.", "Geh.", "CC-BY 2.0 (France) Attribution: tatoeba.org #2877272 (CM) & #8597805 (Roujin)"),
    ("I see.", "Ich sehe.", "CC-BY 2.0 (France) Attribution: tatoeba.org #1 (CK) & #2 (a)"),
    ("Hi.", "Hallo!", "CC-BY 2.0 (France) Attribution: tatoeba.org #538123 (CM) & #380701 (cburgmer)"),
]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_attribution_in_a_third_column_is_not_read(tmp_path, mark):
    (tmp_path / "deu.txt").write_text(mark + "".join("\t".join(row) + "\r\n" for row in ATTRIBUTED), encoding="utf-8")
    write(tmp_path, "train", {"en": [row[0] for row in ATTRIBUTED], "zh": [row[1] for row in ATTRIBUTED]})
    sources = [create(tmp_path, train_files=(name,), test_files=(name,)) for name in ("deu.txt", "train")]
    assert sources[0].source_vocabulary.symbols == sources[1].source_vocabulary.symbols
    assert sources[0].target_vocabulary.symbols == sources[1].target_vocabulary.symbols
    for one, two in zip(*(read_batches(lambda s=s: s.test(batch_size=9)) for s in sources), strict=True):
        for name in ("source", "target"):
            np.testing.assert_array_equal(one[name], two[name])
    lengths = read_batches(lambda: sources[0]._records("test", Shard(0, 1)).batch(9).map(sources[0]._record_lengths))
    assert lengths[0].tolist() == [
        len(f"{mark * (not at)}{a}\t{b}".encode()) for at, (a, b, _) in enumerate(ATTRIBUTED)
    ]
    told = info.describe(tmp_path / "deu.txt", reads_all=True)
    assert "the third column, the attribution of the texts, is not read" in told
    assert "--dataset=parallel_text --dataset_option=train_files=deu.txt" in told


def test_another_third_column_is_named(tmp_path):
    (tmp_path / "a.tsv").write_text("Go.\tGeh.\tx\n")
    with pytest.raises(DataError, match="line 1 has 3 columns, and must have 2, .*; cut -f1,2 keeps the first two"):
        create(tmp_path, train_files=("a.tsv",), test_files=("a.tsv",))


def test_the_advice_about_a_file_of_both_languages_names_the_one_to_train_on(tmp_path):
    for name in ("test.tsv", "train.tsv"):
        (tmp_path / name).write_text("a cat\teine Katze\n")
    with pytest.raises(
        DataError, match="if train.tsv has both languages, .* give --dataset_option=train_files=train.tsv"
    ):
        create(tmp_path, test_files=())

"""Files in the format of LIBSVM: comments, gaps, query ids, and broken lines."""

from __future__ import annotations

import codecs
import gzip

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.data.formats.libsvm import LibSvm
from ps_trainer.errors import DataError, OptionError
from tests.data.reading import read_batches
from tests.testing.repetitions import repetitions

TEXT = """+1 3:1 11:-0.5 14:1e-2
-1 2:.25 # a comment 7:1
 -1 qid:12 5:3.
1
"""


def create(folder, **options):
    return LibSvm(LibSvm.Options(**options), data_dir=str(folder))


def test_examples_are_padded_to_the_longest(tmp_path):
    (tmp_path / "a").write_text(TEXT)
    source = create(tmp_path, train_files=("a",), test_files=("a",))
    assert (source.num_train_examples, source.num_test_examples, source.num_classes) == (4, 4, 2)
    (batch,) = read_batches(lambda: source.test(batch_size=4))
    np.testing.assert_array_equal(batch["ids"], [[3, 11, 14], [2, 0, 0], [5, 0, 0], [0, 0, 0]])
    np.testing.assert_allclose(batch["values"], [[1, -0.5, 0.01], [0.25, 0, 0], [3, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(batch["label"], [1, 0, 0, 1])


@pytest.mark.parametrize("line", ["1 3", "1 a:1", "1 3:x", "x 3:1", "1 -3:1", "1 3: 4", "1,3:1", "", "1 3:1 qid:2"])
def test_a_broken_line_is_named(tmp_path, line):
    (tmp_path / "a").write_text(f"1 1:1\n{line}\n-1 1:1\n")
    source = create(tmp_path, train_files=("a",), test_files=("a",))
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"a: line 2: not <label> <index>:<value> .*: {line}"):
        read_batches(lambda: source.test(batch_size=3))


def test_missing_files_are_named(tmp_path):
    with pytest.raises(OptionError, match="train_files is not given"):
        LibSvm.Options()
    options = LibSvm.Options(train_files=("a", "b"), test_files=("c",))
    with pytest.raises(
        DataError, match="--data_dir is not given; dataset libsvm needs --data_dir=<folder> with a, b, c"
    ):
        LibSvm(options)
    (tmp_path / "a").write_text(TEXT)
    with pytest.raises(DataError, match="has no b, c"):
        LibSvm(options, data_dir=str(tmp_path))


@pytest.mark.parametrize("seed", repetitions(range(5), every=5))
def test_random_examples_are_read_back(tmp_path, seed):
    """Any numbers that are written can be read."""
    random = np.random.RandomState(seed)
    rows, lines = [], []
    for _ in range(20):
        ids = np.sort(random.choice(10**6, size=random.randint(0, 9), replace=False))
        values = random.normal(scale=10.0 ** random.randint(-5, 6), size=len(ids))
        rows.append((random.choice([-1, 1]), ids, values))
        pairs = [f"{i}:{float(value)!r}" for i, value in zip(ids, values, strict=True)]
        lines.append(" ".join([str(rows[-1][0]), *pairs]))
    (tmp_path / "a").write_text("\n".join(lines))
    (batch,) = read_batches(lambda: create(tmp_path, train_files=("a",), test_files=("a",)).test(batch_size=20))
    for i, (label, ids, values) in enumerate(rows):
        assert batch["label"][i] == (label > 0)
        np.testing.assert_array_equal(batch["ids"][i][: len(ids)], ids)
        np.testing.assert_allclose(batch["values"][i][: len(ids)], values, rtol=1e-6)
        assert not batch["values"][i][len(ids) :].any()


def test_the_shares_of_labels_are_those_of_the_training_lines(tmp_path):
    (tmp_path / "train").write_text("".join(f"{'+1' if at % 4 == 1 else -1} 1:{at} # 3\n" for at in range(40)))
    source = LibSvm(LibSvm.Options(train_files=("train",)), data_dir=str(tmp_path))
    training = [at % 4 == 1 for at in range(40) if at % 10]
    assert source.label_shares == pytest.approx((1 - np.mean(training), np.mean(training)))


@pytest.mark.parametrize(
    ("labels", "options", "found"),
    [
        ("1 2 2", {}, [0, 1, 1]),
        ("0 1 1", {}, [0, 1, 1]),
        ("-2 -1 -1", {}, [0, 1, 1]),
        ("0.5 1 3", {"positive_above": 1.0}, [0, 0, 1]),
    ],
)
def test_any_two_labels_are_two_classes(tmp_path, labels, options, found):
    (tmp_path / "a").write_text("".join(f"{label} 1:1\n" for label in labels.split()))
    source = create(tmp_path, train_files=("a",), test_files=("a",), **options)
    (batch,) = read_batches(lambda: source.test(batch_size=9))
    assert batch["label"].tolist() == found
    assert source.label_shares == pytest.approx((1 - np.mean(found), np.mean(found)))


def test_more_than_two_labels_are_named(tmp_path):
    (tmp_path / "a").write_text("0 1:1\n1 1:1\n2.5 1:1\n")
    with pytest.raises(
        DataError, match="a: there are 3 labels, such as 0, 1, 2.5, and .*option=positive_above=<number>"
    ):
        create(tmp_path, train_files=("a",))


def test_normalize_divides_by_the_largest_value_of_the_training_lines(tmp_path):
    lines = [
        "1 1:1000 3:2",
        "-1 qid:7 1:-400 2:0 # 9:9",
        "1 1:100 3:-0.5",
        "-1 5:3",
        "1",
    ]  # lines 1 and 4 are for testing
    (tmp_path / "a.svm").write_text("\n".join(lines) + "\n")
    options = {"train_files": ("a.svm",), "test_every": 3}
    plain = LibSvm(LibSvm.Options(**options), data_dir=str(tmp_path))
    assert plain.num_features == 6
    assert "a value is as large as 400;" in plain.advice and "normalize=true" in plain.advice
    scaled = LibSvm(LibSvm.Options(**options, normalize=True), data_dir=str(tmp_path))
    (batch,) = read_batches(lambda: scaled.in_order("train", batch_size=9))
    np.testing.assert_allclose(batch["values"], [[-1, 0], [0.25, -1], [0, 0]])
    (batch,) = read_batches(lambda: scaled.test(batch_size=9))
    np.testing.assert_allclose(batch["values"], [[2.5, 4], [3, 0]])  # no training line has feature 5
    assert not scaled.advice


def test_an_index_that_no_memory_holds_is_counted_and_not_scaled(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1 1000000000000:2\n0 1:1\n")
    options = {"train_files": ("a.svm",), "test_files": ("a.svm",)}
    assert LibSvm(LibSvm.Options(**options), data_dir=str(tmp_path)).num_features == 10**12 + 1
    with pytest.raises(DataError, match=r"a.svm: normalize=true is for up to \d+ features, .* index is 1000000000000;"):
        LibSvm(LibSvm.Options(**options, normalize=True), data_dir=str(tmp_path))


def test_a_malformed_line_does_not_hide_the_features_of_others(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n0 2:x 4:1\n1 3:1\n")
    assert LibSvm(LibSvm.Options(train_files=("a.svm",)), data_dir=str(tmp_path)).num_features == 5


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ("1 1 1", {}, "all training lines have the label 1, but a model needs two classes; add the other one$"),
        (
            "-1 1 -1",
            {"test_every": 2},
            "all training lines have the label 1, .*; shuffle the lines, as a test line has the other one$",
        ),
        (
            "1 2 3",
            {"positive_above": 3.0},
            "the labels of all training lines are not above positive_above=3, .*between the labels",
        ),
        ("1 2 3", {"positive_above": 0.5}, "the labels of all training lines are above positive_above=0.5,"),
    ],
)
def test_labels_of_one_class_are_rejected(tmp_path, labels, options, message):
    (tmp_path / "a").write_text("".join(f"{label} 1:1\n" for label in labels.split()))
    options = options if "test_every" in options else {"test_files": ("a",), **options}
    with pytest.raises(DataError, match=f"^{tmp_path}/a: {message}"):
        create(tmp_path, train_files=("a",), **options)


@pytest.mark.parametrize("compress", [lambda content: content, gzip.compress])
def test_a_byte_order_mark_is_left_out(tmp_path, compress):
    (tmp_path / "a").write_bytes(compress(codecs.BOM_UTF8 + b"-1 7:500\n1 1:1\n1 2:1\n"))
    source = create(tmp_path, train_files=("a",), test_files=("a",))
    assert (source.num_features, source.label_shares) == (8, pytest.approx((1 / 3, 2 / 3)))
    (batch,) = read_batches(lambda: source.test(batch_size=9))
    assert (batch["ids"][:, 0].tolist(), batch["label"].tolist()) == ([7, 1, 2], [0, 1, 1])
    for content in (b"7:2\n1:1\n", b"-1 7:2\n1 1:1\n"):
        (tmp_path / "new").write_bytes(compress(codecs.BOM_UTF8 + content))
        (batch,) = read_batches(lambda: source.read(tmp_path / "new", 9))
        assert (batch["ids"][:, 0].tolist(), batch["values"][:, 0].tolist()) == ([7, 1], [2.0, 1.0])

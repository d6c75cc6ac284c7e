"""Files in the format of Criteo: missing and negative numbers, hashes, gzip, and broken lines."""

from __future__ import annotations

import codecs
import gzip

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.data import detect_format
from ps_trainer.data.formats import criteo
from ps_trainer.data.formats.criteo import Criteo
from ps_trainer.errors import DataError
from tests.data.reading import read_batches
from tests.data.sharding import assert_every_record_once
from tests.testing.repetitions import repetitions

NUMBERS = ["1", "-3", "", "7", *["0"] * 9]
HASHES = ["68fd1e64", "", "fb936136", *["00000001"] * 23]
LINES = [
    "\t".join(["0", *NUMBERS, *HASHES]),
    "\t".join(["1", *[""] * 39]),
    "\t".join(["1", *["1382"] * 13, *["FFffffff"] * 26]),
]


def create(folder, **options):
    return Criteo(Criteo.Options(**options), data_dir=str(folder))


@pytest.mark.parametrize("is_packed", [False, True])
def test_numbers_are_logarithms_and_hashes_are_buckets(tmp_path, is_packed):
    text = ("\n".join(LINES) + "\n").encode()
    (tmp_path / "train.txt").write_bytes(gzip.compress(text) if is_packed else text)
    source = create(tmp_path, test_files=("train.txt",), num_buckets=1000)
    assert (source.num_train_examples, source.num_test_examples, source.num_classes) == (3, 3, 2)
    (batch,) = read_batches(lambda: source.test(batch_size=3))
    logarithms = [np.log(1 + 1), 0, 0, np.log(1 + 7), *[0] * 9]
    np.testing.assert_allclose(batch["dense"], [logarithms, [0] * 13, [np.log(1 + 1382)] * 13], rtol=1e-6)
    ids = [1 + 0x68FD1E64 % 999, 0, 1 + 0xFB936136 % 999, *[1 + 1] * 23]
    np.testing.assert_array_equal(batch["ids"], [ids, [0] * 26, [1 + 0xFFFFFFFF % 999] * 26])
    np.testing.assert_array_equal(batch["label"], [0, 1, 1])


@pytest.mark.parametrize("categories", ["hex", "text"])
def test_a_byte_order_mark_is_left_out(tmp_path, categories):
    (tmp_path / "train.txt").write_bytes(codecs.BOM_UTF8 + ("\n".join(LINES) + "\n").encode())
    assert detect_format.detect(tmp_path).dataset == "criteo"
    source = create(tmp_path, test_files=("train.txt",), categories=categories)
    for read in (lambda: source.test(batch_size=3), lambda: source.read(tmp_path / "train.txt", 3)):
        (batch,) = read_batches(read)
        np.testing.assert_array_equal(batch["label"], [0, 1, 1])


@pytest.mark.parametrize(
    "line",
    [
        LINES[0].replace("0\t1", "2\t1", 1),
        LINES[0] + "\t",
        LINES[0].rpartition("\t")[0],
        LINES[0].replace("-3", "3.5"),
        LINES[0].replace("68fd1e64", "68fd1e6g"),
        LINES[0].replace("68fd1e64", "68fd1e640"),
        LINES[0].replace("68fd1e64", "48"),
        LINES[0].replace("68fd1e64", "4143"),
        LINES[0].replace("\t", " "),
        "",
    ],
)
def test_a_broken_line_is_named(tmp_path, line):
    (tmp_path / "train.txt").write_text("\n".join([LINES[0], line, LINES[1]]))
    source = create(tmp_path, test_files=("train.txt",))
    with pytest.raises(tf.errors.InvalidArgumentError, match="train.txt: line 2: not 0 or 1, 13 whole numbers and 26"):
        read_batches(lambda: source.test(batch_size=3))


def decimal(num_lines):
    """Lines with decimal ids, which all differ in the first column."""
    return "".join("\t".join(["1", *["0"] * 13, str(i), "48", *[""] * 24]) + "\n" for i in range(1, num_lines + 1))


def test_decimal_ids_are_rejected_with_a_remedy(tmp_path):
    (tmp_path / "train.txt").write_text(decimal(2))
    source = create(tmp_path, test_files=("train.txt",))
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        read_batches(lambda: source.test(batch_size=2))
    assert "train.txt: line 1: not 0 or 1, 13 whole numbers and 26 hashes of 8 hexadecimal digits" in str(caught.value)
    assert "(other ids, such as decimal ones: --dataset_option=categories=text)" in str(caught.value)


def test_a_wrong_line_to_predict_for_names_no_option_of_a_training(tmp_path):
    (tmp_path / "train.txt").write_text("\n".join([*LINES, ""]))
    trained = Criteo(Criteo.Options(test_files=("train.txt",)), data_dir=str(tmp_path))
    (tmp_path / "new.txt").write_text(decimal(2))
    with pytest.raises(tf.errors.InvalidArgumentError, match="new.txt: line 1: not 0 or 1, 13") as caught:
        read_batches(lambda: trained.read(tmp_path / "new.txt", 2))
    assert "--dataset_option" not in str(caught.value)


def test_decimal_ids_of_eight_digits_are_not_read_as_hexadecimal(tmp_path):
    ids = [f"{10_000_000 + i}" for i in range(26 * 5)]
    lines = ["\t".join(["1", *["0"] * 13, *ids[i : i + 26]]) for i in range(0, len(ids), 26)]
    (tmp_path / "train.txt").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=r"a to f, so these are decimal ids; read them with .*categories=text"):
        create(tmp_path, test_files=("train.txt",))
    create(tmp_path, test_files=("train.txt",), categories="text")
    assert "categories=text" in detect_format.detect(tmp_path).options


def test_the_users_own_ids_are_hashed_as_texts(tmp_path):
    (tmp_path / "train.txt").write_text(decimal(9))
    source = create(tmp_path, test_files=("train.txt",), categories="text", num_buckets=2**31)
    (batch,) = read_batches(lambda: source.test(batch_size=9))
    with tf.Session() as session:
        wanted = session.run(1 + tf.strings.to_hash_bucket_fast([str(i) for i in range(1, 10)], 2**31 - 1))
        of_48 = session.run(1 + tf.strings.to_hash_bucket_fast("48", 2**31 - 1))
    np.testing.assert_array_equal(batch["ids"][:, 0], wanted)
    np.testing.assert_array_equal(batch["ids"][:, 1], [of_48] * 9)
    np.testing.assert_array_equal(batch["ids"][:, 2:], np.zeros([9, 24]))


def test_the_number_of_categories_that_share_an_id_is_logged(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text(decimal(500))
    with path.open() as file:
        lines = file.read().splitlines()
    warning = criteo.collision_warning(path, 2**10)
    share = 1 - (1 - 1 / (2**10 - 1)) ** 499
    assert f"first {len(lines)} lines alone have 500 categories in a column; with num_buckets=1024 about" in warning
    assert f"about {share:.0%} of them share an id" in warning and "raise --dataset_option=num_buckets" in warning
    assert criteo.collision_warning(path, 2**20) == ""


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DataError, match="dataset criteo needs --data_dir=<folder> with train.txt"):
        Criteo(Criteo.Options())
    with pytest.raises(DataError, match="has no train.txt, day_1"):
        create(tmp_path, test_files=("day_1",))


@pytest.mark.parametrize("seed", repetitions(range(3), every=3))
def test_random_records_are_read_back(tmp_path, seed):
    random = np.random.RandomState(seed)
    numbers = np.floor(random.lognormal(3, 3, (21, 13))) - 2
    numbers[random.uniform(size=numbers.shape) < 0.3] = np.nan
    hashes = random.randint(0, 2**32, (21, 26))
    hashes[random.uniform(size=hashes.shape) < 0.3] = -1
    labels = random.randint(0, 2, 21)
    criteo.write(tmp_path / "train.txt", labels, numbers, hashes)
    source = create(tmp_path, test_every=21, num_buckets=2**20)
    batch = {
        key: np.concatenate([split[key] for split in (test, train)])
        for test in read_batches(lambda: source.test(batch_size=1))
        for train in read_batches(lambda: source.in_order("train", batch_size=20))
        for key in test
    }
    np.testing.assert_array_equal(batch["label"], labels)
    np.testing.assert_allclose(batch["dense"], np.log1p(np.maximum(np.nan_to_num(numbers), 0)), rtol=1e-5)
    np.testing.assert_array_equal(batch["ids"], np.where(hashes < 0, 0, 1 + hashes % (2**20 - 1)))
    if not seed:
        assert_every_record_once(source, "ids")

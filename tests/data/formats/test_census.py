"""The census income set: the peculiarities of both files, and broken lines."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.data.formats.census import AGES, COLUMNS, NUMBER, Census
from ps_trainer.errors import DataError
from tests.data.reading import read_batches
from tests.data.sharding import assert_every_record_once
from tests.testing.repetitions import repetitions

TRAIN = """\
39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, \
United-States, <=50K
52, Self-emp-not-inc, 209642, HS-grad, 9, Married-civ-spouse, Exec-managerial, Husband, White, Male, 0, 0, 45, \
Outlying-US(Guam-USVI-etc), >50K
17, ?, 191260, 9th, 5, Never-married, ?, Own-child, White, Female, 0, 1902, 24, ?, <=50K

"""
TEST = "|1x3 Cross validator\n" + TRAIN.replace("K\n", "K.\n")


def write(folder, train=TRAIN, test=TEST):
    (folder / "adult.data").write_text(train)
    (folder / "adult.test").write_text(test)


def create(folder):
    return Census(Census.Options(), data_dir=str(folder))


def test_both_files_are_read_with_their_peculiarities(tmp_path):
    write(tmp_path)
    source = create(tmp_path)
    assert (source.num_train_examples, source.num_test_examples, source.num_classes) == (3, 3, 2)
    (train,) = read_batches(lambda: source.in_order("train", batch_size=3))
    (test,) = read_batches(lambda: source.test(batch_size=3))
    (alone,) = read_batches(lambda: source.read(tmp_path / "adult.test", 3))  # the comment in it is not a person
    for key, values in train.items():
        np.testing.assert_array_equal(values, test[key])
        np.testing.assert_array_equal(values, alone[key])
    np.testing.assert_array_equal(train["label"], [0, 1, 0])
    first = [0.39, 13 / 16, 0.40, np.log(1 + 2174) / 12, 0]
    np.testing.assert_allclose(train["dense"][0], first, rtol=1e-6)
    np.testing.assert_allclose(train["dense"][2], [0.17, 5 / 16, 0.24, 0, np.log(1 + 1902) / 12], rtol=1e-6)
    # State-gov is the sixth class of work and Bachelors the first education; 39 is in the group from 35 on.
    np.testing.assert_array_equal(train["ids"][0], [6, 1, 3, 9, 4, 1, 2, 1, 4])
    np.testing.assert_array_equal(train["ids"][1], [2, 4, 1, 5, 3, 1, 2, 7, 7])
    np.testing.assert_array_equal(train["ids"][2], [0, 8, 3, 0, 2, 1, 1, 0, 0])


def test_packed_files_and_a_test_file_without_comment_are_read(tmp_path):
    write(tmp_path, test=TEST.partition("\n")[2])
    for name in ("adult.data", "adult.test"):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
        (tmp_path / name).unlink()
    source = create(tmp_path)
    (test,) = read_batches(lambda: source.test(batch_size=3))
    np.testing.assert_array_equal(test["label"], [0, 1, 0])


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("State-gov", "State gov"), ("39", "39.5"), ("<=50K", "<50K"), (" <=50K", ""), (", 40, ", ", , "), ("?", "")],
)
def test_a_broken_line_is_named(tmp_path, right, wrong):
    write(tmp_path, test=TEST.replace(right, wrong, 1))
    number = 1 + [right in line for line in TEST.splitlines()].index(True)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"adult.test: line {number}: not 15 columns of a person"):
        read_batches(lambda: create(tmp_path).test(batch_size=3))


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DataError, match="dataset census needs --data_dir=<folder> with adult.data and adult.test"):
        Census(Census.Options())
    with pytest.raises(DataError, match="has no adult.data; accepted names: adult.data, adult.data.gz"):
        create(tmp_path)


@pytest.mark.parametrize("seed", repetitions(range(2)))
def test_random_people_are_read_back(tmp_path, seed):
    """Any words that are written can be read."""
    random = np.random.RandomState(seed)
    lines, ids, labels = [], [], []
    for person in range(20):
        words = {
            name: [str(random.randint(0, 99))] if of == NUMBER else ["?", *of.split()] for name, of in COLUMNS.items()
        }
        places = [random.randint(len(of)) for of in words.values()]
        chosen = [of[place] for of, place in zip(words.values(), places, strict=True)]
        chosen[4] = str(person)
        group = sum(int(chosen[0]) >= age for age in AGES)
        ids.append([place for place, of in zip(places, COLUMNS.values(), strict=True) if of != NUMBER] + [group])
        labels.append(random.randint(2))
        lines.append(", ".join([*chosen, ("<=50K", ">50K")[labels[-1]]]))
    write(tmp_path, train="\n".join(lines))
    source = create(tmp_path)
    (batch,) = read_batches(lambda: source.in_order("train", batch_size=20))
    np.testing.assert_array_equal(batch["ids"], ids)
    np.testing.assert_array_equal(batch["label"], labels)
    np.testing.assert_allclose(batch["dense"][:, 1], np.arange(20) / 16)
    if not seed:
        assert_every_record_once(source, "ids")

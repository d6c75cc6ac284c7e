"""MovieLens files of three forms, of three lines each, and broken ones."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.data.formats.movielens import MovieLens
from ps_trainer.errors import DataError
from tests.data.reading import read_batches

ROWS = [("196", "242", "3", "881250949"), ("186", "302", "4", "891717742"), ("6040", "1", "5", "978300760")]
HALVES = [("1", "2", "3.5", "1112486027"), ("1", "29", "0.5", "1112484676"), ("138493", "9", "5.0", "1112484819")]
FORMS = {
    "u.data": ("\t", "", ROWS),
    "ratings.dat": ("::", "", ROWS),
    "ratings.csv": (",", "userId,movieId,rating,timestamp\n", HALVES),
}


def write(folder, name):
    separator, head, rows = FORMS[name]
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(head + "".join(separator.join(row) + "\n" for row in rows))


def create(folder, **options):
    return MovieLens(MovieLens.Options(**options), data_dir=str(folder))


@pytest.mark.parametrize("name", FORMS)
def test_columns_are_numbers_and_the_first_line_belongs_to_the_test_set(tmp_path, name):
    write(tmp_path, name)
    source = create(tmp_path, test_every=2)
    assert (source.num_train_examples, source.num_test_examples, source.num_classes) == (1, 2, None)
    (batch,) = read_batches(lambda: source.test(batch_size=2))
    wanted = [FORMS[name][2][0], FORMS[name][2][2]]
    for column, place in (("user", 0), ("item", 1), ("rating", 2)):
        assert list(batch[column]) == [float(row[place]) for row in wanted]
    assert set(batch) == {"user", "item", "rating"}


def test_the_folder_of_the_archive_is_found_and_two_are_too_many(tmp_path):
    write(tmp_path / "ml-100k", "u.data")
    assert create(tmp_path, test_every=2).num_test_examples == 2
    write(tmp_path / "ml-1m", "ratings.dat")
    with pytest.raises(DataError, match="has several datasets: .*u.data.*ratings.dat"):
        create(tmp_path)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DataError, match="--data_dir is not given; dataset movielens needs .*u.data or ratings.dat"):
        MovieLens(MovieLens.Options())
    with pytest.raises(DataError, match="has none of these files"):
        create(tmp_path)


def test_a_broken_line_is_named(tmp_path):
    write(tmp_path, "u.data")
    with (tmp_path / "u.data").open("a") as file:
        file.write("1\t2\t3\n")
    source = create(tmp_path, test_every=3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="u.data: line 4: not user, item, rating and seconds"):
        read_batches(lambda: source.test(batch_size=2))


@pytest.mark.parametrize("name", FORMS)
def test_random_ratings_are_read_back(tmp_path, name):
    random = np.random.RandomState(len(name))
    separator, head, _ = FORMS[name]
    rows = [(*random.randint(1, 10**9, 2), random.randint(1, 11) / 2, random.randint(0, 2**31)) for _ in range(23)]
    if not head:  # this form has whole stars only
        rows = [(user, item, int(rating + 0.5), seconds) for user, item, rating, seconds in rows]
    (tmp_path / name).write_text(head + "".join(separator.join(map(str, row)) + "\n" for row in rows))
    every = int(random.randint(2, 6))
    source = create(tmp_path, test_every=every)
    split_rows = {"test": rows[::every], "train": [row for at, row in enumerate(rows) if at % every]}
    for split, wanted in split_rows.items():
        (batch,) = read_batches(lambda split=split: source.in_order(split, batch_size=23))
        for place, column in enumerate(("user", "item", "rating")):
            np.testing.assert_array_equal(batch[column], [row[place] for row in wanted])

"""MovieLens files of three forms, of three lines each, and broken ones."""

from __future__ import annotations

import gzip
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.data.formats import movielens
from ps_trainer.data.formats.movielens import MovieLens
from ps_trainer.data.pipeline import recorded_words
from ps_trainer.data.pipeline.facts import Facts
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


def create(folder, facts=None, **options):
    return MovieLens(MovieLens.Options(**options), data_dir=str(folder), facts=facts)


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
        file.write("ann\t2\t3\n")
    source = create(tmp_path, test_every=3)
    message = "u.data: line 4: not user, item, rating and perhaps seconds, .*names in place of .*ids=text.: ann"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
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


@pytest.mark.parametrize("name", FORMS)
def test_mean_and_scale_are_those_of_the_training_ratings(tmp_path, name):
    separator, head, _ = FORMS[name]
    rows = [
        ("1", "2", "1000"),
        ("1", "3", "70"),
        ("2", "3", "-20.5"),
        ("3", "1", "999"),
        ("4", "2", "12"),
        ("5", "2", "3"),
    ]
    (tmp_path / name).write_text(head + "".join(separator.join(row) + "\n" for row in rows))
    for ids in ("number", "text"):
        source = create(tmp_path, ids=ids, test_every=3)
        trained = [70, -20.5, 12, 3]
        assert (source.mean_rating, source.rating_scale) == (
            float(f"{np.mean(trained):.6g}"),
            float(f"{np.std(trained):.6g}"),
        )
    again = create(tmp_path, Facts(source.facts.entries), ids="text", test_every=3)
    assert (again.mean_rating, again.rating_scale) == (source.mean_rating, source.rating_scale)
    del source.facts.entries["rating_scale"]  # as versions before it recorded
    (tmp_path / name).unlink()
    assert create(tmp_path, Facts(source.facts.entries), ids="text", test_every=3).rating_scale is None


def test_equal_ratings_have_the_scale_1(tmp_path):
    (tmp_path / "u.data").write_text("1\t2\t3\n" * 4)
    assert (create(tmp_path).mean_rating, create(tmp_path).rating_scale) == (3.0, 1.0)


# Rows with names, as each form writes them, and the users and items in the order of the file.
NAMED = [(" ann ", "Alien", "5"), ("Bob", "Solaris", "-1.5"), ("ann", "Solaris", "10"), ("7", "8", "3")]
USERS, ITEMS = ["ann", "Bob", "7"], ["Alien", "Solaris", "8"]


@pytest.mark.parametrize("name", FORMS)
def test_names_are_numbered_in_the_order_of_the_file(tmp_path, name):
    separator, head, _ = FORMS[name]
    (tmp_path / name).write_text(head + "".join(separator.join(row) + "\n" for row in NAMED))
    source = create(tmp_path, ids="text", test_every=2)
    assert (source.num_users, source.num_items) == (4, 4)
    for split, rows in (("test", NAMED[::2]), ("train", NAMED[1::2])):
        (batch,) = read_batches(lambda split=split: source.in_order(split, batch_size=9))
        assert list(batch["user"]) == [1 + USERS.index(user.strip()) for user, _, _ in rows]
        assert list(batch["item"]) == [1 + ITEMS.index(item) for _, item, _ in rows]
        assert list(batch["rating"]) == [float(rating) for _, _, rating in rows]
    words = recorded_words.vocabularies_of(source)
    assert words["user"].tokens == ("<unk>", *USERS) and words["item"].tokens == ("<unk>", *ITEMS)


def test_lines_added_later_change_the_number_of_no_name(tmp_path):
    rows = "".join(",".join(row) + "\n" for row in NAMED)
    (tmp_path / "ratings.csv").write_text(f"user,item,rating\n{rows}")
    before = create(tmp_path, ids="text")
    (tmp_path / "ratings.csv").write_text(f"user,item,rating\n{rows}zoe,Brazil,5\n{rows}")
    after = create(tmp_path, ids="text")
    assert after.user_vocabulary.tokens == (*before.user_vocabulary.tokens, "zoe")


def test_names_in_quotes_may_have_commas(tmp_path):
    (tmp_path / "ratings.csv").write_text('user,item,rating\n"Roe, ""J""","Up, down",4\nann,Alien,5\n')
    source = create(tmp_path, ids="text")
    assert source.user_vocabulary.tokens[1:] == ('Roe, "J"', "ann")
    (batch,) = read_batches(lambda: source.test(batch_size=9))
    assert (list(batch["user"]), list(batch["item"]), list(batch["rating"])) == ([1], [1], [4.0])


@pytest.mark.parametrize("name", ["u.data", "ratings.csv"])
def test_names_to_predict_for_come_from_the_record_and_unknown_ones_are_counted(tmp_path, name):
    separator, head, _ = FORMS[name]
    (tmp_path / name).write_text(head + "".join(separator.join(row) + "\n" for row in NAMED))
    facts = create(tmp_path, ids="text").facts
    (tmp_path / name).unlink()
    source = create(tmp_path, Facts(facts.entries), ids="text")
    header = separator.join(["user", "item"]) + "\n" if head else ""
    lines = "".join(separator.join(row) + "\n" for row in [("Bob", "Alien"), ("eve", "Solaris"), ("ann", "Brazil")])
    (tmp_path / "new").write_text(header + lines)
    (batch,) = read_batches(lambda: source.read(tmp_path / "new", 9))
    assert (list(batch["user"]), list(batch["item"])) == ([2, 0, 1], [1, 2, 0])
    assert source.unfamiliar.take() == (
        "input unlike the training data: users without a training line, read as unknown: 1 of 3 ('eve'); items without"
        " a training line, read as unknown: 1 of 3 ('Brazil')"
    )
    assert source.as_lines(["Bob,Alien"]) == ([head.encode().rstrip()] if head else [], [b"Bob,Alien"])
    if head:
        (tmp_path / "new").write_text(lines)
        with pytest.raises(DataError, match="new: line 1 should hold the names of the columns, but is Bob,Alien; put"):
            source.read(tmp_path / "new", 9)


def test_more_names_than_the_graph_can_hold_are_rejected(tmp_path, monkeypatch):
    (tmp_path / "u.data").write_text("ann\tAlien\t5\nann\tUp\t4\n")
    monkeypatch.setattr(movielens, "MAX_NAME_BYTES", len("annAlienUp") - 1)
    with pytest.raises(DataError, match="the names of users and items have 10 bytes, but at most 9 are allowed"):
        create(tmp_path, ids="text")


@pytest.mark.parametrize("first", ["eve,Brazil", "eve,Brazil,", "user7,item3,4", "eve,Brazil,,5"])
def test_a_first_line_of_unknown_names_is_not_taken_for_a_header(tmp_path, first):
    (tmp_path / "ratings.csv").write_text("Kunde,Film,rating\nann,Alien,5\nBob,Up,3\n")
    source = create(tmp_path, Facts(create(tmp_path, ids="text").facts.entries), ids="text")
    (tmp_path / "new").write_text(f"{first}\nann,Alien\n")
    with pytest.raises(DataError, match=f"new: line 1 should hold the names of the columns, but is {first}; put such"):
        source.read(tmp_path / "new", 9)
    for header in (
        "Kunde,Film",
        "kunde,film,rating",
        "userId,movieId,rating,timestamp",
        "\ufeffUser,Item",
        "user,item",
    ):
        (tmp_path / "new").write_text(f"{header}\n{first}\nann,Alien\n", encoding="utf-8")
        (batch,) = read_batches(lambda: source.read(tmp_path / "new", 9))
        assert list(batch["user"]) == [0, 1]


@pytest.mark.parametrize(("row", "ids"), [("ann,Alien,5", "text"), ("1,2,5,9", "number")])
def test_ratings_without_a_header_do_not_lose_the_first_one(tmp_path, row, ids):
    (tmp_path / "ratings.csv").write_text(f"{row}\n" * 3)
    with pytest.raises(DataError, match=f"ratings.csv: line 1 should .*, but is {row}; .* example user,item,rating"):
        create(tmp_path, ids=ids)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("rating,user,item\n5,1,2\n4,3,4\n\n", "user,item,rating\n1,2,5\n3,4,4\n"),
        ("\ufeffItem_ID,userId,stars,when\n2,1,5,9\n4,3,4,9\n", "userId,Item_ID,stars,when\n1,2,5,9\n3,4,4,9\n"),
        ('movie,user,rating\n"Up, ""7""",Zoë,5\nUp,Zoë,4\n', 'user,movie,rating\nZoë,"Up, ""7""",5\nZoë,Up,4\n'),
        ("user,Film,seconds,score\n1,2,99,5\n1,3,99,4\n", "user,Film,score,seconds\n1,2,5,99\n1,3,4,99\n"),
    ],
)
def test_columns_in_another_order_are_refused_with_a_command_that_exchanges_them(tmp_path, text, wanted, pack):
    folder = tmp_path / "own ratings"
    folder.mkdir()
    file = folder / "ratings.csv"
    file.write_bytes(pack(text.encode()))
    ids = "text" if "Up" in text else "number"
    found = re.escape(text.lstrip("\ufeff").partition("\n")[0])
    message = f"its columns are {found}, but .* reads them in the order {wanted.partition(chr(10))[0]}; exchange them: "
    with pytest.raises(DataError, match=message) as caught:
        create(folder, ids=ids)
    command = str(caught.value).partition("exchange them: ")[2]
    path = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(command, shell=True, check=True, env=os.environ | {"PATH": path})
    assert file.read_text(encoding="utf-8") == wanted
    create(folder, ids=ids)
    assert list(folder.iterdir()) == [file]


@pytest.mark.parametrize(("row", "ids"), [("ann,Alien,5", "text"), ("1,2,5", "number")])
def test_exchanged_columns_of_a_file_to_predict_for_are_named(tmp_path, row, ids):
    (tmp_path / "ratings.csv").write_text(f"user,item,rating\n{row}\n{row}\n")
    source = create(tmp_path, ids=ids)
    for header in ("item,user", "rating,user,item", "item,user,rating"):
        (tmp_path / "new").write_text(f"{header}\n{row}\n")
        with pytest.raises(
            DataError, match=f"new: its columns are {header}, .* order user,item; exchange .* each line"
        ):
            source.read(tmp_path / "new", 9)
    (tmp_path / "new").write_text(f"user,movie,seconds,rating\n{row}\n")
    assert len(read_batches(lambda: source.read(tmp_path / "new", 9))) == 1


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("ids", ["text", "number"])
def test_a_byte_order_mark_is_left_out(tmp_path, name, ids):
    separator, head, _ = FORMS[name]
    rows = NAMED if ids == "text" else [("9", "8", "5"), ("2", "1", "3")]
    text = head + "".join(separator.join(row) + "\n" for row in rows)
    (tmp_path / name).write_text(f"\ufeff{text}", encoding="utf-8")
    source = create(tmp_path, ids=ids, test_every=2)
    (batch,) = read_batches(lambda: source.test(batch_size=9))
    if ids == "text":
        assert source.user_vocabulary.tokens[1:] == tuple(USERS) and list(batch["user"]) == [1, 1]
    else:
        assert (source.num_users, source.num_items, list(batch["user"])) == (10, 9, [9])

"""Tables in CSV files against Python's csv module and NumPy: every form, split, dialect, and kind of wrong file."""

from __future__ import annotations

import copy
import csv
import gzip
import io
import re
import subprocess

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints import writer
from ps_trainer.config import TrainConfig
from ps_trainer.data.formats.csv_table import Csv
from ps_trainer.data.pipeline import dataset_record, joined_lines, line_source
from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.errors import DataError, OptionError
from ps_trainer.inference import prediction
from ps_trainer.options import parse
from tests.data.reading import read_batches, read_shards
from tests.data.sharding import assert_every_record_once

NAMES = ["size", "color", "weight", "city", "kind"]


def create(folder, *options, facts=None):
    return Csv(parse(Csv.Options, ["label=kind", *options], "--dataset_option"), data_dir=str(folder), facts=facts)


def random_rows(count, seed=0):
    """Rows with missing values, quoted delimiters and spaces."""
    random = np.random.RandomState(seed)
    cities = ["New York, NY", 'the "Hague"', "Zürich", "", "?"]
    return [
        [
            f"{1.7e9 + random.normal():.6f}",
            str(random.choice(["red", "green", "blue", "NA"])),
            "" if random.rand() < 0.2 else f" {random.normal() * 5:.4g}",
            str(random.choice(cities)),
            str(random.choice(["cat", "dog"])),
        ]
        for _ in range(count)
    ]


def write(path, rows, names=NAMES, **form):
    text = io.StringIO()
    csv.writer(text, **form).writerows([names, *rows] if names else rows)
    path.write_text(text.getvalue(), encoding="utf-8")


class Oracle:
    """The batches that the rows of a file should give, by Python's csv module and NumPy."""

    def __init__(self, path, test_every=10, **form):
        with path.open(encoding="utf-8", newline="") as file:
            rows = [[value.strip() for value in row] for row in csv.reader(file, **form)][1:]
        is_test = np.arange(len(rows)) % test_every == 0
        self.train = [row for row, test in zip(rows, is_test, strict=True) if not test]
        self.test = [row for row, test in zip(rows, is_test, strict=True) if test]

    def numbers(self, rows, column):
        own, all_train = (
            np.array([float(row[column]) if row[column] else np.nan for row in part]) for part in (rows, self.train)
        )
        return np.nan_to_num((own - np.nanmean(all_train)) / np.nanstd(all_train))

    def vocabulary(self, column):
        words = [row[column] for row in self.train if row[column] not in ("", "?", "NA")]
        return sorted(set(words), key=lambda word: (-words.count(word), word))

    def words(self, rows, column):
        known = self.vocabulary(column)
        return np.array([known.index(row[column]) + 1 if row[column] in known else 0 for row in rows])


@pytest.mark.parametrize("split", ["train", "test"])
def test_columns_are_normalised_and_numbered_by_the_training_rows(tmp_path, split):
    write(tmp_path / "train.csv", random_rows(95))
    oracle = Oracle(tmp_path / "train.csv")
    rows = getattr(oracle, split)
    numbers = np.stack([oracle.numbers(rows, 0), oracle.numbers(rows, 2)], axis=1)
    words = np.stack([oracle.words(rows, 1), oracle.words(rows, 3)], axis=1)
    sizes = [1 + len(oracle.vocabulary(column)) for column in (1, 3)]

    source = create(tmp_path, "form=columns")
    (batch,) = read_batches(lambda: source.in_order(split, batch_size=100))
    np.testing.assert_allclose(batch["dense"], numbers, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(batch["ids"], words)
    np.testing.assert_array_equal(batch["label"], [row[4] == "dog" for row in rows])
    assert (source.num_buckets, source.num_classes, source.class_names) == (max(sizes), 2, ("cat", "dog"))

    source = create(tmp_path, "form=sparse")
    (batch,) = read_batches(lambda: source.in_order(split, batch_size=100))
    np.testing.assert_array_equal(batch["ids"][:, 2:], words + [2, 2 + sizes[0]])
    np.testing.assert_array_equal(batch["ids"][:, :2], np.tile([0, 1], [len(rows), 1]))
    np.testing.assert_allclose(batch["values"], np.concatenate([numbers, np.ones_like(words)], 1), rtol=1e-5, atol=1e-5)
    assert source.num_features == 2 + sum(sizes)

    source = create(tmp_path)
    (batch,) = read_batches(lambda: source.in_order(split, batch_size=100))
    ones = [np.eye(size)[words[:, at]][:, 1:] for at, size in enumerate(sizes)]
    np.testing.assert_allclose(batch["image"][:, 0, 0], np.concatenate([numbers, *ones], 1), rtol=1e-5, atol=1e-5)


def test_shards_hold_every_row_once(tmp_path):
    for name in ("a.csv", "b.csv"):
        write(tmp_path / name, random_rows(15, seed=ord(name[0])))
    assert_every_record_once(create(tmp_path, "train_files=a.csv,b.csv"), "image")


def test_numbers_stay_as_they_are_without_normalisation(tmp_path):
    write(tmp_path / "train.csv", [["1.5", "a"], ["-2", "b"], ["7e1", "a"], [".5", "a"]], ["x", "kind"])
    (batch,) = read_batches(lambda: create(tmp_path, "normalize=false", "test_every=2").in_order("test", batch_size=9))
    np.testing.assert_array_equal(batch["image"][:, 0, 0, 0], [1.5, 70])


@pytest.mark.parametrize("factor", [100.0, 1.0, 0.0001])
def test_numbers_far_from_1_are_advised_against_unless_they_are_scaled(tmp_path, factor):
    values = (1, -1, 2, 1, -2)  # the first one is for testing
    write(tmp_path / "train.csv", [[str(factor * value), "ab"[value % 2]] for value in values], ["x", "kind"])
    advice = create(tmp_path, "normalize=false", "test_every=5").advice
    deviation = factor * ((1 + 4 + 1 + 4) / 4) ** 0.5
    assert (f"values of x are spread far from 1 (standard deviation {deviation:.4g})" in advice) == (factor != 1)
    assert not create(tmp_path, "test_every=5").advice


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ({"delimiter": ";"}, ["delimiter=;"]),
        ({"delimiter": "\t", "lineterminator": "\n"}, ["delimiter=tab"]),
        ({"delimiter": "|", "quoting": csv.QUOTE_ALL}, ["delimiter=pipe"]),
    ],
)
def test_delimiters_and_quotes(tmp_path, form, options):
    write(tmp_path / "train.csv", random_rows(30), **form)
    oracle = Oracle(tmp_path / "train.csv", delimiter=form["delimiter"])
    (batch,) = read_batches(lambda: create(tmp_path, "form=columns", *options).in_order("train", batch_size=99))
    np.testing.assert_array_equal(batch["ids"][:, 1], oracle.words(oracle.train, 3))


def test_files_without_header_with_a_byte_order_mark_and_packed(tmp_path):
    text = "\ufeff1,a,0\r\n2,b,1\r\n3,a,0\r\n4,b,10\r\n"
    (tmp_path / "train.csv").write_bytes(gzip.compress(text.encode()))
    source = create_twice(tmp_path, "header=false", "label=2", "test_files=train.csv", "normalize=false")
    (batch,) = read_batches(lambda: source.test(batch_size=9))
    np.testing.assert_array_equal(batch["image"][:, 0, 0], [[1, 1, 0], [2, 0, 1], [3, 1, 0], [4, 0, 1]])
    np.testing.assert_array_equal(batch["label"], [0, 1, 0, 2])  # sorted as numbers: 0, 1, 10
    assert source.class_names == ("0", "1", "10")


def create_twice(folder, *options):
    """The label given in `options` instead of the usual one."""
    return Csv(parse(Csv.Options, options, "--dataset_option"), data_dir=str(folder))


def test_hashed_and_ignored_columns_and_a_positive_class(tmp_path):
    rows = [[f"w{number}", "?" if number == 3 else f"u{number % 5}", "abc"[number % 3]] for number in range(40)]
    write(tmp_path / "train.csv", rows, ["id", "user", "kind"])
    source = create(tmp_path, "columns=id:ignore,user:hash", "num_buckets=9", "form=columns", "positive=b")
    (batch,) = read_batches(lambda: source.in_order("train", batch_size=99))
    kept = [row for number, row in enumerate(rows) if number % 10]
    by_word = {}
    for row, (word,) in zip(kept, batch["ids"], strict=True):
        assert by_word.setdefault(row[1], word) == word and (word == 0) == (row[1] == "?") and word < 9
    np.testing.assert_array_equal(batch["dense"], np.zeros([36, 1]))
    np.testing.assert_array_equal(batch["label"], [row[2] == "b" for row in kept])
    assert (source.class_names, source.num_buckets) == (("not b", "b"), 9)


def test_a_file_to_predict_for_may_lack_labels_and_have_another_order(tmp_path):
    write(tmp_path / "train.csv", random_rows(40))
    source = create(tmp_path, "form=columns")
    (labeled,) = read_batches(lambda: source.read(tmp_path / "train.csv", 99))
    order = [3, 2, 0, 1]
    write(tmp_path / "new.csv", [[row[at] for at in order] for row in random_rows(40)], [NAMES[at] for at in order])
    (batch,) = read_batches(lambda: source.read(tmp_path / "new.csv", 99))
    for key in ("dense", "ids"):
        np.testing.assert_array_equal(batch[key], labeled[key])
    np.testing.assert_array_equal(batch["label"], np.zeros(40))
    write(tmp_path / "few.csv", [["1", "red"]], ["size", "color"])
    with pytest.raises(DataError, match="few.csv lacks columns of the training files: weight, city"):
        source.read(tmp_path / "few.csv", 9)
    with pytest.raises(DataError, match="few.png is an image, which dataset csv does not read"):
        source.read((tmp_path / "few.csv").rename(tmp_path / "few.png"), 9)


def test_a_table_of_another_name_is_named_with_the_option_that_reads_it(tmp_path):
    write(tmp_path / "iris.csv", random_rows(40))
    fix = "has no train.csv but iris.csv; to train on it, give --dataset_option=train_files=iris.csv; dataset csv needs"
    with pytest.raises(DataError, match=fix):
        create(tmp_path)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("true", "false"), ["true", "true", "true", None, "false"]),
        (("True", "False"), ["True", "True", "True", None, "False"]),
        (("TRUE",), ["TRUE", "TRUE", "TRUE", None, None]),
        (("tRuE", "false"), ["tRuE", "tRuE", "tRuE", "tRuE", "false"]),
        (("true", "false", "maybe"), ["true", None, None, None, None]),  # these three are words, not Booleans
        (("true", "True"), ["true", "True", None, None, None]),
    ],
)
def test_a_column_of_booleans_finds_them_in_each_usual_case(tmp_path, words, found):
    rows = [[words[at % len(words)], ("cat", "dog")[at % 5 % 2]] for at in range(36)]
    write(tmp_path / "train.csv", rows, ["member", "kind"])
    write(tmp_path / "new.csv", [["true"], ["True"], ["TRUE"], ["tRuE"], ["False"]], ["member"])
    source = create(tmp_path, "form=columns")
    (batch,) = read_batches(lambda: source.read(tmp_path / "new.csv", 9))
    vocabulary = (None, *source.columns.vocabularies["member"])  # number 0 = unknown
    assert [vocabulary[number] for number in batch["ids"][:, 0]] == found


def test_hashed_booleans_keep_the_buckets_of_their_words_in_the_training_rows(tmp_path):
    rows = [[("True", "False", "")[at % 3], ("cat", "dog")[at % 2]] for at in range(36)]
    write(tmp_path / "train.csv", rows, ["x", "kind"])
    write(tmp_path / "new.csv", [["true"], ["True"], ["TRUE"], ["false"], ["False"], ["tRuE"], ["?"]], ["x"])
    options = ("form=columns", "columns=x:hash", "num_buckets=99")

    def read(source):
        (batch,) = read_batches(lambda: source.read(tmp_path / "new.csv", 9))
        return batch["ids"][:, 0].tolist()

    source = create(tmp_path, *options)
    numbers = read(source)
    assert numbers[0] == numbers[1] == numbers[2] != numbers[3] == numbers[4]
    assert numbers[5] not in numbers[:5] and numbers[6] == 0
    # The record of an older version, which hashes each word as it stands.
    entries = copy.deepcopy(source.facts.entries)
    del entries["columns"]["value"][1]["booleans"]
    old = read(create(tmp_path, *options, facts=Facts(entries)))
    assert (old[1], old[4]) == (numbers[1], numbers[4])
    assert len(set(old[:5])) == 5


def test_a_label_that_no_training_row_has_is_named_if_a_file_has_changed(tmp_path):
    write(tmp_path / "train.csv", random_rows(40))
    write(tmp_path / "test.csv", random_rows(9))
    facts = create(tmp_path, "test_files=test.csv").facts
    write(tmp_path / "test.csv", [*random_rows(3), ["1", "red", "2", "", "cow"]])
    source = create(tmp_path, "test_files=test.csv", facts=Facts(facts.entries))
    message = "test.csv: line 5: the label is cow, and the training rows have only cat, dog"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        read_batches(lambda: source.test(batch_size=9))
    # The label of a row to predict for does not count.
    (batch,) = read_batches(lambda: source.read(tmp_path / "test.csv", 9))
    assert batch["label"][3] == 0


@pytest.mark.parametrize("mark", [";", "\t", "|", ","])
def test_the_command_that_removes_points_between_thousands_works(tmp_path, mark):
    rows = [["1.034,14", "13.03.2021", "-1.234.567"], ["253,60", "1.2.3.100", "2.000,5"], ["7", "0.123", "+12"]]
    quoted = [[f'"{value}"' if mark == "," else value for value in row] for row in rows]
    file = tmp_path / "own data.csv"
    text = "".join(mark.join([*row, "ab"[at % 2]]) + "\r\n" for at, row in enumerate([["p", "d", "n"], *quoted * 3]))
    file.write_bytes(text.replace(f"n{mark}a", f"n{mark}kind", 1).encode())
    flags = (f"delimiter={mark}", "decimal=,", "train_files=own data.csv")
    with pytest.raises(DataError, match="'p' has numbers with a point between thousands, such as 1.034,14") as caught:
        create(tmp_path, *flags)
    command = re.search("remove such points, here in all columns: (.*); if they are words", str(caught.value))[1]
    subprocess.run(command, shell=True, check=True)
    wanted = [["1034,14", "13.03.2021", "-1234567"], ["253,60", "1.2.3.100", "2000,5"], ["7", "0.123", "+12"]]
    with file.open(newline="") as lines:
        assert [row[:3] for row in csv.reader(lines, delimiter=mark)][1:4] == wanted
    assert create(tmp_path, *flags).columns.ranges["n"] == [-1234567, 2000.5]


def test_a_decimal_point_to_predict_for_is_explained(tmp_path):
    (tmp_path / "train.csv").write_text("x;kind\n1,5;a\n2;b\n3;a\n")
    source = create(tmp_path, "delimiter=;", "decimal=,", "test_files=train.csv")
    (tmp_path / "new.csv").write_text("x\n1000.50\n")
    with pytest.raises(DataError, match="value is '1000.50'; this run reads a decimal comma, and no .*; correct it"):
        source.read(tmp_path / "new.csv", 9)


def test_columns_of_another_run_keep_words_means_and_labels(tmp_path):
    write(tmp_path / "train.csv", random_rows(95))
    options = ("form=columns", "columns=city:hash")
    before = create(tmp_path, *options)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/dataset.json").write_text(dataset_record.as_text("csv", before))
    write(tmp_path / "new.csv", [row[:4] for row in random_rows(20, seed=1)], NAMES[:4])
    more = [[float(9 + at), "mauve", "", "", "cat"] for at in range(99)]
    write(tmp_path / "train.csv", random_rows(95) + more)
    after = create(tmp_path, *options, f"columns_of={tmp_path}/run")
    assert create(tmp_path, *options).columns.vocabularies["color"][0] == "mauve"
    assert after.columns._replace(class_counts=before.columns.class_counts) == before.columns
    assert sum(after.columns.class_counts) == after.num_train_examples == sum(before.columns.class_counts) + 89
    (wanted,), (found,) = (
        read_batches(lambda source=source: source.read(tmp_path / "new.csv", 99)) for source in (before, after)
    )
    np.testing.assert_equal(found, wanted)
    write(tmp_path / "train.csv", random_rows(95) + [["1", "red", "", "", "cow"]] * 9)
    with pytest.raises(DataError, match="label .kind. has the value .cow., which the run .*; labels there: cat, dog"):
        create(tmp_path, *options, f"columns_of={tmp_path}/run")
    kept = f"columns_of={tmp_path}/run"
    write(tmp_path / "train.csv", [row[1:] for row in random_rows(95)], NAMES[1:])
    with pytest.raises(DataError, match="train.csv: it lacks columns of the run: size; add them in the place .* run;"):
        create(tmp_path, *options[:1], kept)
    write(tmp_path / "train.csv", [["", *row[1:]] for row in random_rows(95)])  # as the message advises
    assert create(tmp_path, *options, kept).columns.means == before.columns.means
    write(tmp_path / "train.csv", [[*row[1:], "0"] for row in random_rows(95)], [*NAMES[1:], "extra"])
    with pytest.raises(DataError, match="run: size; add .*; it has columns that the run does not have: extra; remove"):
        create(tmp_path, *options[:1], kept)
    write(tmp_path / "train.csv", [row[::-1] for row in random_rows(95)], NAMES[::-1])
    with pytest.raises(DataError, match="in another order; the order of the run: size, color, weight, city, kind$"):
        create(tmp_path, *options[:1], kept)
    write(tmp_path / "train.csv", random_rows(95))
    with pytest.raises(DataError, match="the label of the run is kind, and here it is city; give .*option=label=kind"):
        create_twice(tmp_path, "label=city", kept)
    with pytest.raises(DataError, match="dataset.json of the run has no columns of dataset csv"):
        create(tmp_path, *options[:1], f"columns_of={tmp_path}/none")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            ["many", "red", "2", "Hague"],
            "line 2: column 'size' holds numbers, .* 'many'; correct it, or leave it empty if",
        ),
        (["1", 'a "b" c', "2", "Hague"], "line 2: a quote must surround a whole value"),
    ],
)
def test_an_error_in_a_file_to_predict_for_names_no_option_of_a_training(tmp_path, row, message):
    write(tmp_path / "train.csv", random_rows(40))
    source = create(tmp_path, "form=columns")
    (tmp_path / "new.csv").write_text(f"{','.join(NAMES[:4])}\n{','.join(row)}\n")
    with pytest.raises(DataError, match=message) as raised:
        source.read(tmp_path / "new.csv", 9)
    assert "--" not in str(raised.value)


def test_another_delimiter_in_a_file_to_predict_for_is_named_with_the_one_of_the_training(tmp_path):
    write(tmp_path / "train.csv", random_rows(40))
    source = create(tmp_path)
    (tmp_path / "new.csv").write_text("size;color\n1;red\n")
    with pytest.raises(DataError, match="line 1 has no comma, but 1 times semicolon; put a comma between values"):
        source.read(tmp_path / "new.csv", 9)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "Size,color\n1,red\n",
            "lacks columns .*: size, weight, .*: Size, color; add or rename them, and leave a value",
        ),
        ("size,color\r1,red\r", r"line 1 cannot be read: lines end with carriage returns; .* with tr '\\r' '\\n'$"),
        ("PK\3\4\0\0\n1,red\n", "line 1 is not text; write the table as CSV"),
        ("PAR1\n", "is a Parquet file; write it as CSV"),
    ],
)
def test_a_file_to_predict_for_that_is_no_such_table_is_named_with_the_fix(tmp_path, content, message):
    write(tmp_path / "train.csv", random_rows(40))
    source = create(tmp_path)
    (tmp_path / "new.csv").write_text(content, newline="")
    with pytest.raises(DataError, match=message) as raised:
        source.read(tmp_path / "new.csv", 9)
    assert "--" not in str(raised.value)


@pytest.mark.parametrize("num_values", [4, 5])
def test_a_file_to_predict_for_without_names_is_mended_by_the_line_in_the_error(tmp_path, num_values):
    write(tmp_path / "train.csv", random_rows(40))
    source = create(tmp_path, "form=columns")
    rows = [["1", "red", "2", "Hague", "kind"][:num_values]] * 2
    (tmp_path / "new.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    with pytest.raises(DataError, match="'1' is a number; put the names .* before it: ") as raised:
        source.read(tmp_path / "new.csv", 9)
    header = str(raised.value).rpartition("before it: ")[2]
    (tmp_path / "new.csv").write_text(f"{header}\n{(tmp_path / 'new.csv').read_text()}")
    (batch,) = read_batches(lambda: source.read(tmp_path / "new.csv", 9))
    assert len(batch["label"]) == 2


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", [], "0 lines"),
        ("x,kind\n", [], "a header and no row"),
        ("x,kind\n1,a\n1,b,c\n", [], r"line 3 has 3 values, but there are 2 columns \(x, kind\): 1,b,c"),
        ("x,kind\n1,a\n\n1,b\n", [], "line 3 is empty"),
        ("x;kind\n1;a\n", [], "no comma, but 1 times semicolon; give --dataset_option=delimiter=semicolon"),
        ("x\tkind\n1\ta\n", [], "give --dataset_option=delimiter=tab"),
        ("kind\na\n", [], "one column only"),
        ("5.1,kind\n1,a\n", [], "'5.1' is a number; .* --dataset_option=header=false"),
        ("x,x,kind\n1,1,a\n", [], "names the column 'x' twice"),
        ("x,kin\n1,a\n", [], "has no column 'kind'; did you mean kin\\? columns: x, kin; .*label="),
        ("x,kind\n1,a\n2,b\n", ["columns=y:number"], "has no column 'y'; .*columns="),
        ("x,kind\n1,a\n2,b\n3,\n", [], "line 4: the label 'kind' is missing"),
        (
            "x,kind\n1,c\n2,b\n3,a\n",
            [],
            "line 2: the label 'c' of a test row is in no training row; labels there: a, b",
        ),
        (
            "x,kind\n1,9.5\n2,7\n3,8\n",
            [],
            "line 2: the label 'kind' is a number, 9.5 here, with 3 different values; csv and parquet predict classes,"
            r" and no number \(regression\): replace it by a few classes",
        ),
        (
            "x;kind\n1;9,5\n2;1.107,5\n3;8\n",
            ["delimiter=;"],
            "line 2: the label 'kind' is a number, 9,5 here, with 3 different values; csv and parquet predict classes",
        ),
        (
            "x,kind\n" + "".join(f"1,{number}.5\n" for number in range(1500)),
            [],
            r"such as .*; it must name one of a few classes; csv and parquet predict no number \(regression\)$",
        ),
        (
            "x,kind\n" + "".join(f"1,word{number}\n" for number in range(1500)),
            [],
            "such as .*; it must name one of a few classes$",
        ),
        ("x,kind\n1,c\n2,c\n3,c\n", [], "the label 'kind' is 'c' in every row, .*=label=<column>; other columns: x"),
        (
            "x,kind\n" + "1,a\n" * 20 + "two,b\n",
            [],
            "line 22: column 'x' holds numbers, .* 'two'; .*missing=two.*x:cat",
        ),
        ("x,kind\ninf,a\n2,b\n", ["columns=x:number"], "line 2: column 'x' holds numbers, but this value is 'inf'"),
        (
            "x,kind\n" + "1,a\n2,b\n" * 20 + "1e300,b\n",
            [],
            "line 42: column 'x' holds numbers, but this value is '1e300'; correct it, give .*missing=1e300",
        ),
        ("x,kind\na,a\nb,b\nc,a\nd,b\n", ["num_buckets=3", "missing="], "more than 2 different words; .*x:ignore"),
        ('x,kind\na "b" c,a\nb,b\n', [], 'line 2: a quote must surround .*: a "b" c,a; .*quotes=false'),
        ('x,kind\n"12 inch,a\n5" pipe,b\n', [], 'line 2: a quote must surround .*: "12 inch,a; .*quotes=false'),
        ("x,kind\n1,a\n2,b\n3,c\n", ["form=sparse", "test_files=train.csv"], "two classes, but 'kind' has 3: a, b, c"),
        ("x,kind\n1,a\n2,b\n3,a\n", ["form=columns", "test_files=train.csv"], "needs a column of categories"),
        ("x,kind\n1,a\n2,b\n", ["positive=d", "test_files=train.csv"], "no training row has the label positive=d"),
        ('x,kind\n"1,5",a\n2,b\n', ["test_files=train.csv"], "column .x. has numbers with a comma, such as 1,5; .*=,"),
        ("x;y;kind\n1;1.234,5;a\n2;n.a.;b\n" + "3;-,5;a\n" * 9, ["delimiter=;"], "column .y. .* as 1.234,5; if it"),
        (
            "x;kind\n1.5;a\n3.125;b\n1,5;a\n",
            ["delimiter=;", "decimal=,"],
            "column .x. has numbers with a point, such as 1.5; this run reads a decimal comma .*: write a comma",
        ),
        (
            "x;kind\n" + "1,5;a\n2;b\n" * 10 + "2.5;b\n",
            ["delimiter=;", "decimal=,", "columns=x:number"],
            "line 22: column 'x' holds numbers, but this value is '2.5'; this run reads a decimal comma, and no sign"
            " between thousands; correct it",
        ),
        ("x,kind\n1,a\n2,b\n", ["columns=x:ignore", "test_files=train.csv"], "no column is left besides the label"),
    ],
)
def test_a_wrong_file_is_named_with_the_flag_that_reads_it(tmp_path, text, options, message):
    (tmp_path / "train.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        create(tmp_path, *options)


def test_other_encodings_and_other_columns_in_a_second_file_are_named(tmp_path):
    (tmp_path / "train.csv").write_bytes("x,kind\nZürich,a\n".encode("latin-1"))
    with pytest.raises(DataError, match="train.csv: line 2: not UTF-8 .* iconv"):
        create(tmp_path)
    write(tmp_path / "train.csv", random_rows(9))
    write(tmp_path / "test.csv", [row[1:] for row in random_rows(9)], NAMES[1:])
    with pytest.raises(DataError, match="test.csv: its columns are color, .*, but the first file has size, color"):
        create(tmp_path, "test_files=test.csv")


@pytest.mark.parametrize("form", ["vector", "sparse", "columns"])
def test_a_column_without_any_value_has_no_words(tmp_path, form):
    write(tmp_path / "train.csv", [[str(x), "", ["cat", "dog"][x % 2]] for x in range(40)], ["x", "city", "kind"])
    source = create(tmp_path, f"form={form}")
    (batch,) = read_batches(lambda: source.test(batch_size=9))
    assert source.columns.vocabularies == {"city": ()}
    assert {"vector": 1, "sparse": 2, "columns": 1}[form] == batch["image" if form == "vector" else "ids"].shape[-1]
    assert form == "vector" or (batch["ids"][:, -1] == (form == "sparse")).all()


def test_a_label_must_be_named(tmp_path):
    write(tmp_path / "train.csv", random_rows(9))
    with pytest.raises(
        DataError, match="which column holds the labels\\? columns: size, .*--dataset_option=label=kind"
    ):
        create_twice(tmp_path)


@pytest.mark.parametrize("wrong", ["columns=x", "columns=x:text", "delimiter=ab", "form=dense", 'delimiter="'])
def test_a_wrong_option_is_rejected(wrong):
    with pytest.raises(OptionError, match="columns=|delimiter=|form"):
        parse(Csv.Options, ["label=kind", wrong], "--dataset_option")


def test_the_shares_of_labels_are_those_of_the_training_rows(tmp_path):
    rows = [[str(at), ["cat", "dog", "owl"][(at % 4) // 2 + (at % 8 == 7)]] for at in range(80)]
    write(tmp_path / "train.csv", rows, ["x", "kind"])
    labels = [row[1] for at, row in enumerate(rows) if at % 10]
    shares = [labels.count(name) / len(labels) for name in ("cat", "dog", "owl")]
    assert create(tmp_path).label_shares == pytest.approx(shares)
    assert create(tmp_path, "positive=dog").label_shares == pytest.approx((1 - shares[1], shares[1]))


@pytest.mark.parametrize("out", ["out.csv", "out.jsonl"])
def test_predictions_name_the_class(tmp_path, out):
    """A weight of 9 for the only number: a number above the mean is a dog."""
    write(tmp_path / "train.csv", [[str(x), ["cat", "dog"][x > 0]] for x in range(-9, 11)], ["x", "kind"])
    config = TrainConfig(
        model="logistic_regression",
        dataset="csv",
        dataset_option=("label=kind", "form=sparse"),
        data_dir=str(tmp_path),
    )
    values = {"weights": np.full([1, 1], 9, np.float32), "bias": np.zeros(1, np.float32), "global_step": np.int64(3)}
    writer.write(tmp_path / "ckpt", 3, values)
    write(tmp_path / "new.csv", [["-5"], ["8"]], ["x"])
    prediction.write(config, tmp_path / "ckpt", tmp_path / "new.csv", tmp_path / out)
    lines = (tmp_path / out).read_text().splitlines()
    if out.endswith("csv"):
        assert lines[0] == "prediction_dog,class"
        assert [line.partition(",")[2] for line in lines[1:]] == ["cat", "dog"]
    else:
        assert ['"class": "cat"' in lines[0], '"class": "dog"' in lines[1]] == [True, True]


def test_a_column_without_a_name_can_be_left_out(tmp_path):
    (tmp_path / "train.csv").write_text(",x,kind\n" + "0,1,cat\n1,2,dog\n" * 10)
    assert create(tmp_path, "columns=:ignore").columns.kinds == {"": "ignore", "x": "number"}


def test_a_column_that_names_the_rows_is_named(tmp_path):
    rows = [[f"c{at:03}", "a" if at % 3 else "b", ("cat", "dog")[at % 2]] for at in range(100)]
    write(tmp_path / "train.csv", rows, ["customer", "plan", "kind"])
    source = create(tmp_path)
    assert source.keys == ["customer"]
    assert "another word in customer, so" in source.advice and "columns=customer:ignore" in source.advice
    assert create(tmp_path, "columns=customer:ignore").advice == create(tmp_path, "columns=customer:hash").advice == ""
    write(tmp_path / "train.csv", rows[:40], ["customer", "plan", "kind"])
    assert not create(tmp_path).advice


def test_dates_that_are_words_are_named(tmp_path):
    rows = [[f"2024-05-{1 + at % 28:02}", at % 7, ("cat", "dog")[at % 2]] for at in range(100)]
    write(tmp_path / "train.csv", rows, ["seen on", "size", "kind"])
    source = create(tmp_path)
    assert (source.keys, source.dates) == ([], ["seen on"])
    assert source.advice.startswith("each date in seen on is a word of its own here")
    assert source.advice.endswith("or leave them out with --dataset_option=columns=seen on:ignore")
    assert not create(tmp_path, "columns=seen on:ignore").advice
    write(tmp_path / "train.csv", [[date + "?", *others] for date, *others in rows], ["seen on", "size", "kind"])
    assert not create(tmp_path).dates


def test_values_unlike_those_of_the_training_rows_are_counted(tmp_path):
    rows = [[at % 19, ("red", "green")[at % 2], ("true", "false")[at % 2], 7, "cat"] for at in range(40)]
    names = ["size", "color", "member", "year"]
    write(tmp_path / "train.csv", [*rows, *[[1, "red", "true", 7, "dog"]] * 2], [*names, "kind"])
    source = create(tmp_path, "form=columns")
    new = [[-18, "red", "True", 7], [37, "green", "FALSE", ""], [-20, "blue", "maybe", 7], ["1e6", "?", "", 8]]
    write(tmp_path / "new.csv", new, names)
    source.read(tmp_path / "new.csv", 9)
    assert source.unfamiliar.take() == (
        "input unlike the training data: numbers of column 'size' far outside of the training rows' 0 to 18: 3 of 4"
        " ('37', '-20', '1e+06'); numbers of column 'year' far outside of the training rows' 7 to 7: 1 of 3 ('8');"
        " values of column 'color' that no training row has, read as missing: 1 of 3 ('blue'); values of column"
        " 'member' that no training row has, read as missing: 1 of 3 ('maybe')"
    )
    # The record of an older version has no ranges.
    entries = copy.deepcopy(source.facts.entries)
    del entries["columns"]["value"][1]["ranges"], entries["columns"]["value"][1]["times"]
    old = create(tmp_path, "form=columns", facts=Facts(entries))
    old.read(tmp_path / "new.csv", 9)
    told = old.unfamiliar.take()
    assert "column 'color'" in told and "column 'size'" not in told


def test_a_label_that_is_to_be_left_out_is_an_error(tmp_path):
    write(tmp_path / "train.csv", random_rows(20))
    with pytest.raises(
        DataError, match="column 'kind' is the label, and columns=kind:ignore leaves it out; remove one"
    ):
        create(tmp_path, "columns=kind:ignore")


@pytest.mark.parametrize("form", ["vector", "columns"])
def test_numbers_with_a_decimal_comma_give_the_batches_of_those_with_a_point(tmp_path, form):
    rows = [[f"{x / 8}", ["Bonn", "1.5", "", "3,5 km"][x % 4], ["cat", "dog"][x % 3 % 2]] for x in range(-20, 20)]
    rows[3][0], names = "", ["x", "city", "kind"]
    sources = {}
    for name, decimal in (("point", "."), ("comma", ",")):
        (tmp_path / name).mkdir()
        changed = [[x.replace(".", decimal), *others] for x, *others in rows]
        write(tmp_path / name / "train.csv", changed, names, delimiter=";")
        write(tmp_path / name / "new.csv", changed[:7], names, delimiter=";")
        sources[name] = create(tmp_path / name, "delimiter=;", f"decimal={decimal}", f"form={form}")
    read = {
        name: [
            *read_batches(lambda source=source: source.in_order("train", batch_size=99)),
            *read_batches(lambda source=source, name=name: source.read(tmp_path / name / "new.csv", 99)),
        ]
        for name, source in sources.items()
    }
    np.testing.assert_equal(read["comma"], read["point"])
    assert np.std(read["comma"][0]["image" if form == "vector" else "dense"]) > 0
    source = sources["comma"]
    assert source.row_texts([{"x": -1.25, "city": "Bonn"}]) == {"x": ["-1,25"], "city": ["Bonn"]}
    with tf.Graph().as_default(), tf.Session() as session:
        batch = source.from_texts({"x": tf.constant([rows[0][0].replace(".", ",")]), "city": tf.constant([rows[0][1]])})
        session.run(tf.tables_initializer())
        for key, value in session.run(batch).items():
            np.testing.assert_array_equal(value, read["comma"][1][key][:1])


def test_a_decimal_point_does_not_change_the_settings_that_older_versions_have_recorded(tmp_path):
    write(tmp_path / "train.csv", random_rows(20))
    settings = create(tmp_path).facts.entries["columns"]["settings"]
    assert not {"decimal", "columns_of"} & set(settings)
    other = create(tmp_path, "decimal=,", "columns=size:ignore,weight:category")
    assert other.facts.entries["columns"]["settings"]["decimal"] == ","


def with_line_ends(rows):
    """Rows whose words have line ends, some of them several; and the same rows with spaces in their place."""
    many = [[row[0], f"{row[1]}\n\nor {at % 3}" if at % 4 else row[1], *row[2:]] for at, row in enumerate(rows)]
    many[1][3] = "\n".join(["many"] * 60)
    return many, [[value.replace("\n", " ") for value in row] for row in many]


@pytest.mark.parametrize("options", [(), ("delimiter=tab", "form=sparse", "header=false", "label=4"), ("packed",)])
def test_line_ends_in_quotes_are_read_as_spaces(tmp_path, monkeypatch, options):
    monkeypatch.setattr(joined_lines, "_CHUNK_LINES", 7)
    monkeypatch.setattr(line_source, "_CHUNK_BYTES", 50)
    form = {"delimiter": "\t" if "delimiter=tab" in options else ",", "lineterminator": "\n" if options else "\r\n"}
    names = None if "header=false" in options else ["size", "color\nor not", *NAMES[2:]]
    folders = [tmp_path / name for name in ("lines", "spaces")]
    for number, folder in enumerate(folders):
        folder.mkdir()
        for file in ("a.csv", "b.csv"):  # only one has line ends
            rows = with_line_ends(random_rows(45))[number] if file == "a.csv" else random_rows(25)
            rows = [[name.replace("\n", " ") if number else name for name in names], *rows] if names else rows
            write(folder / file, rows, None, **form)
            if "packed" in options:
                (folder / file).write_bytes(gzip.compress((folder / file).read_bytes()))
    options = ["train_files=a.csv,b.csv", *(one for one in options if one != "packed")]
    sources = [(create if names else create_twice)(folder, *options) for folder in folders]
    assert sources[0].columns == sources[1].columns and "many many" in str(sources[0].columns.vocabularies)
    assert [source.num_train_examples + source.num_test_examples for source in sources] == [70, 70]
    for split in ("train", "test"):
        batches = [read_batches(lambda s=s, split=split: s.in_order(split, batch_size=16)) for s in sources]
        for one, two in zip(*batches, strict=True):
            assert one.keys() == two.keys()
            for name in one:
                np.testing.assert_array_equal(one[name], two[name])
    shards = [read_shards(source, 3) for source in sources]
    np.testing.assert_array_equal(shards[0]["label"], shards[1]["label"])


def test_the_names_of_a_row_may_have_line_ends_as_in_the_file(tmp_path):
    (tmp_path / "train.csv").write_text('"the\nsize",kind\n1,a\n2,b\n3,a\n')
    assert create(tmp_path).row_texts([{"the\nsize": 1}]) == {"the size": ["1"]}


def test_a_file_to_predict_for_may_have_line_ends_in_quotes(tmp_path):
    write(tmp_path / "train.csv", with_line_ends(random_rows(40))[1])
    source = create(tmp_path, "form=columns", "test_files=train.csv")
    for name, rows in zip(("lines.csv", "spaces.csv"), with_line_ends(random_rows(40)), strict=True):
        write(tmp_path / name, [row[:4] for row in rows], NAMES[:4])
    batches = [read_batches(lambda n=n: source.read(tmp_path / n, 16)) for n in ("lines.csv", "spaces.csv")]
    for one, two in zip(*batches, strict=True):
        np.testing.assert_array_equal(one["ids"], two["ids"])
    with pytest.raises(
        DataError, match="lines.csv: a value in quotes has a line end, but each line must be a row; only"
    ):
        source.line_decoder(tmp_path / "lines.csv")
    assert source.line_decoder(tmp_path / "spaces.csv") is not None
    assert not source.unfamiliar.take()


def test_an_error_after_line_ends_in_quotes_names_the_line_of_the_file(tmp_path):
    start = 'size,kind\n1,a\n"2\n",b\n"3\n\n",a\n'  # the next row is in line 8
    for row, message in (("4,b,5", "line 8 has 3 values"), ("4,", "line 8: the label"), ('"4" 5,b', "line 8: a quote")):
        (tmp_path / "train.csv").write_text(f"{start}{row}\n")
        with pytest.raises(DataError, match=f"train.csv: {message}"):
            create(tmp_path)
    (tmp_path / "train.csv").write_text(f"{start}\n4,b\n")
    with pytest.raises(DataError, match="train.csv: line 8 is empty"):
        create(tmp_path)
    (tmp_path / "train.csv").write_text(start + '"4,b\n' + "5,a\n" * 2000)
    with pytest.raises(
        DataError,
        match='train.csv: line 8: a quote must surround a whole value, and no quote ends this value: "4,b; if',
    ):
        create(tmp_path)


def test_a_changed_label_after_line_ends_in_quotes_is_named_by_its_row(tmp_path):
    (tmp_path / "train.csv").write_text('x,kind\n1,a\n"2\n",b\n3,a\n')
    source = create(tmp_path, "test_files=train.csv")
    (tmp_path / "train.csv").write_text('x,kind\n1,a\n"2\n",b\n3,c\n')
    with pytest.raises(tf.errors.InvalidArgumentError, match="train.csv: row 4: the label is c, and the training rows"):
        read_batches(lambda: source.test(batch_size=9))


def test_of_other_files_in_the_folder_the_advice_names_the_one_to_train_on(tmp_path):
    for name in ("a_test.tsv", "test.tsv", "train.tsv"):
        write(tmp_path / name, random_rows(9), delimiter="\t")
    with pytest.raises(
        DataError, match="has no train.csv but train.tsv, a_test.tsv, .* --dataset_option=train_files=train.tsv;"
    ):
        create(tmp_path)

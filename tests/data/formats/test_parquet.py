"""Tables in Parquet files against the same table as CSV, and what only Parquet has: types, nulls, row groups."""

from __future__ import annotations

import csv
import datetime
import decimal
import json
import sys
import tracemalloc

import numpy as np
import pytest

from ps_trainer.checkpoints import writer
from ps_trainer.config import TrainConfig
from ps_trainer.data import detect_format, info
from ps_trainer.data.formats.csv_table import Csv
from ps_trainer.data.formats.parquet import Parquet
from ps_trainer.data.pipeline import parquet_rows
from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import DataError
from ps_trainer.inference import prediction
from ps_trainer.options import parse
from tests.data.reading import read_batches, read_leased
from tests.data.sharding import assert_every_record_once, assert_parts_are_test_batches

NAMES = ["size", "color", "weight", "member", "kind"]


def create(folder, *options, cls=Parquet, facts=None):
    text = options if any(one.startswith("label=") for one in options) else ["label=kind", *options]
    return cls(parse(cls.Options, text, "--dataset_option"), data_dir=str(folder), facts=facts)


def random_columns(count, seed=0):
    random = np.random.RandomState(seed)
    return {
        "size": [int(value) for value in random.randint(0, 1000, count)],
        "color": [None if random.rand() < 0.1 else str(random.choice(["red", "green", "NA"])) for _ in range(count)],
        "weight": [None if random.rand() < 0.2 else float(f"{random.normal():.4g}") for _ in range(count)],
        "member": [bool(value) for value in random.randint(0, 2, count)],
        "kind": [str(value) for value in random.choice(["cat", "dog"], count)],
    }


def write(path, columns, rows_per_group=None, **types):
    import pyarrow
    from pyarrow import parquet

    arrays = {name: pyarrow.array(values, types.get(name)) for name, values in columns.items()}
    parquet.write_table(pyarrow.table(arrays), path, row_group_size=rows_per_group)


def write_csv(path, columns):
    def text(value):
        return "" if value is None else str(value).lower() if isinstance(value, bool) else value

    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([[*columns], *zip(*(map(text, one) for one in columns.values()), strict=True)])


@pytest.fixture
def both(tmp_path):
    """The same table in two files."""
    columns = random_columns(95)
    write(tmp_path / "train.parquet", columns, rows_per_group=20)
    write_csv(tmp_path / "train.csv", columns)
    return tmp_path


def assert_equal_batches(first, second):
    assert len(first) == len(second) > 0
    for one, two in zip(first, second, strict=True):
        assert one.keys() == two.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], two[name])


@pytest.mark.parametrize("form", ["vector", "sparse", "columns"])
@pytest.mark.parametrize("option", ["columns=size:category,color:hash", "normalize=false"])
def test_batches_are_those_of_the_same_table_as_csv(both, form, option):
    sources = [create(both, f"form={form}", option, cls=cls) for cls in (Parquet, Csv)]
    assert sources[0].columns == sources[1].columns
    assert sources[0].label_shares == sources[1].label_shares
    assert_equal_batches(*(read_batches(lambda s=s: s.in_order("train", batch_size=16)) for s in sources))


@pytest.mark.parametrize("names", [("color", "kind"), ("weight", "kind")])
def test_a_table_may_have_columns_of_one_kind_only(tmp_path, names):
    columns = {name: values for name, values in random_columns(95).items() if name in names}
    write(tmp_path / "train.parquet", columns, rows_per_group=20)
    write_csv(tmp_path / "train.csv", columns)
    sources = [create(tmp_path, cls=cls) for cls in (Parquet, Csv)]
    assert_equal_batches(*(read_batches(lambda s=s: s.in_order("train", batch_size=16)) for s in sources))


def test_shuffled_leased_and_test_examples_are_those_of_csv(both):
    sources = [create(both, cls=cls) for cls in (Parquet, Csv)]
    shuffled = {"shard": Shard(1, 2), "batch_size": 8, "seed": 3, "num_epochs": 2}
    assert_equal_batches(*(read_batches(lambda s=s: s.train(**shuffled)) for s in sources))
    np.testing.assert_array_equal(*(read_leased(source, "image") for source in sources))
    assert_equal_batches(*(read_batches(lambda s=s: s.in_order("test", batch_size=16)) for s in sources))


def test_shards_hold_every_row_once(tmp_path):
    columns = {"id": list(range(45)), "x": [1.0] * 45, "kind": ["a", "b", "b"] * 15}
    write(tmp_path / "train.parquet", columns, rows_per_group=7)
    source = create(tmp_path, "normalize=false", "columns=x:ignore")
    assert_every_record_once(source, "image")
    assert_parts_are_test_batches(source)


def test_types_of_the_file_decide_the_kinds(tmp_path):
    import pyarrow

    day = datetime.date(1970, 1, 3)
    columns = {
        "digits": ["1", "2", "3"] * 4,
        "day": [day] * 12,
        "at": [datetime.datetime(1970, 1, 1, 0, 0, second) for second in range(12)],
        "price": [decimal.Decimal("1.25")] * 12,
        "word": ["x", "y", None] * 4,
        "kind": [1.0, 2.0, 3.0] * 4,
    }
    write(tmp_path / "train.parquet", columns, word=pyarrow.dictionary(pyarrow.int8(), pyarrow.string()))
    source = create(tmp_path)
    assert source.columns.kinds == {
        "digits": "category", "day": "number", "at": "number", "price": "number", "word": "category"
    }  # fmt: skip
    assert source.columns.means["day"] == 2 * 24 * 3600
    assert source.columns.means["price"] == 1.25
    assert source.columns.means["at"] == np.mean([second for second in range(12) if second % 10])
    assert source.class_names == ("1", "2", "3")
    given = create(tmp_path, "columns=digits:number,day:category")
    assert given.columns.kinds["digits"] == "number" and given.columns.vocabularies["day"] == ("1970-01-03",)


def test_times_and_durations_are_numbers_of_seconds(tmp_path):
    import pyarrow

    columns = {
        "clock": [datetime.time(0, 1, second) for second in (0, 2, 4)] * 4,
        "short": [datetime.time(1)] * 12,
        "wait": [datetime.timedelta(days=1, seconds=second) for second in (0, 2, 4)] * 4,
        "kind": ["a", "b", "a"] * 4,
    }
    write(tmp_path / "train.parquet", columns, short=pyarrow.time32("s"), wait=pyarrow.duration("ms"))
    means = create(tmp_path, "test_every=12").columns.means
    assert means == pytest.approx({"clock": 60 + 24 / 11, "short": 3600.0, "wait": 24 * 3600 + 24 / 11})


def test_memory_is_bounded_by_row_groups(tmp_path):
    columns = {"word": [f"{number:060}" for number in range(60_000)], "kind": [0, 1] * 30_000}
    write(tmp_path / "train.parquet", columns, rows_per_group=2_000)
    tracemalloc.start()
    try:
        rows = 0
        names, wanted = ["word", "kind"], {"word", "kind"}
        for chunk in parquet_rows.chunks(tmp_path / "train.parquet", names, {}, "kind", wanted=wanted):
            rows += len(chunk.columns["kind"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == 60_000
    assert peak < 60_000 * 60 / 2  # all texts at once would take more than twice as much


def trained(folder, source):
    """A folder of checkpoints whose weights tell one row from another."""
    weights = np.linspace(-1, 1, source.num_features, dtype=np.float32)[:, np.newaxis]
    values = {"weights": weights, "bias": np.zeros([1], np.float32), "global_step": np.array(1)}
    writer.write(folder / "checkpoints", 1, values)


def test_a_run_predicts_for_parquet_and_for_csv_without_labels(both, tmp_path):
    source = create(both, "form=sparse")
    columns = {name: values for name, values in random_columns(9, seed=1).items() if name != "kind"}
    write(tmp_path / "new.parquet", columns | {"more": [[1]] * 9})
    write_csv(tmp_path / "new.csv", columns)
    known = create(both, "form=sparse", facts=Facts(source.facts.entries))
    (both / "train.parquet").unlink()
    again = create(both, "form=sparse", facts=Facts(source.facts.entries))
    for reader in (known, again):
        batches = [
            read_batches(lambda p=path, r=reader: r.read(tmp_path / p, 4)) for path in ("new.parquet", "new.csv")
        ]
        assert_equal_batches(*batches)
        assert sum(len(batch["label"]) for batch in batches[0]) == 9


def test_a_column_of_booleans_finds_them_in_rows_as_csv(both, tmp_path):
    source = create(both, "form=columns")
    write(tmp_path / "new.parquet", random_columns(9, seed=1))
    (batch,) = read_batches(lambda: source.read(tmp_path / "new.parquet", 9))
    members = random_columns(9, seed=1)["member"]
    for spell in (str, lambda member: str(member).lower(), lambda member: str(member).upper()):
        write_csv(tmp_path / "new.csv", random_columns(9, seed=1) | {"member": [spell(member) for member in members]})
        assert_equal_batches([batch], read_batches(lambda: source.read(tmp_path / "new.csv", 9)))
    known = dict(enumerate(source.columns.vocabularies["member"], 1))
    assert [known[number] for number in batch["ids"][:, 1]] == [str(member).lower() for member in members]


@pytest.mark.parametrize(
    ("values", "message"),
    [([float("inf")] * 9, "row 1: .* has inf, which is infinite as float32; correct it"), ([[1]] * 9, "type list")],
)
def test_an_error_in_a_file_to_predict_for_names_no_option_of_a_training(both, tmp_path, values, message):
    source = create(both, "form=sparse")
    columns = random_columns(9, seed=1)
    write(tmp_path / "new.parquet", columns | {next(iter(source._features.numbers)): values})
    with pytest.raises(DataError, match=message) as raised:
        source.read(tmp_path / "new.parquet", 9)
    assert "--" not in str(raised.value)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"x": [1.0, 2.0], "tags": [[1], [2]]}, (), "column 'tags' has the type list.*columns=tags:ignore"),
        ({"x": [1.0, 2.0], "raw": [b"\xff", b"a"]}, (), "column 'raw' has the type binary.*columns=raw:ignore"),
        ({"x": [1.0, float("inf")]}, (), "row 2: column 'x' has inf, which is infinite as float32; .*columns=x:ignore"),
        ({"x": [1.0, -1e300]}, (), "row 2: column 'x' has -1e.300, which is infinite as float32"),
        ({"x": ["1", "two"]}, ("columns=x:number",), "row 2: column 'x' holds numbers, but this value is 'two'"),
        ({"x": [1.0, 2.0]}, ("label=knd",), "has no column 'knd'; did you mean kind?"),
    ],
)
def test_wrong_columns_are_named_with_the_fix(tmp_path, columns, options, message):
    write(tmp_path / "train.parquet", columns | {"kind": ["a", "b"]})
    with pytest.raises(DataError, match=message):
        create(tmp_path, "test_every=3", *options)


def test_a_missing_label_is_named_by_its_row(tmp_path):
    write(tmp_path / "train.parquet", {"x": [1.0, 2.0, 3.0], "kind": ["a", None, "b"]})
    with pytest.raises(DataError, match="row 2: the label 'kind' is missing; remove the row"):
        create(tmp_path)


def test_files_of_the_other_dataset_are_near_misses(both):
    with pytest.raises(DataError, match="is not a Parquet file; --dataset=csv reads"):
        create(both, "train_files=train.csv")
    with pytest.raises(DataError, match="is a Parquet file; read it with --dataset=parquet"):
        create(both, "train_files=train.parquet", cls=Csv)
    (both / "broken.parquet").write_bytes((both / "train.parquet").read_bytes()[:-30])
    with pytest.raises(DataError, match=r"broken.parquet cannot be read"):
        create(both, "train_files=broken.parquet")


def test_a_folder_of_files_in_place_of_a_file_is_named_with_the_flags_that_read_it(tmp_path):
    inner = tmp_path / "train.parquet"
    inner.mkdir()
    (inner / "_SUCCESS").touch()  # as Spark writes a table
    for number in range(2):
        write(inner / f"part-{number}.parquet", random_columns(40, seed=number))
    options = "train_files=part-0.parquet,part-1.parquet"
    with pytest.raises(DataError, match=f"is a folder; .* --data_dir={inner} --dataset_option={options}$"):
        create(tmp_path)
    assert create(inner, options).num_train_examples == 72
    with pytest.raises(DataError, match=f"only other folders, such as train.parquet; try .* {inner}"):
        detect_format.detect(tmp_path)
    assert detect_format.detect(inner).options[0] == options


def test_without_pyarrow_the_error_names_the_extra(both, monkeypatch):
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(DataError, match=r"pip install 'ps_trainer\[parquet\]'"):
        create(both)
    with pytest.raises(DataError, match=r"pip install 'ps_trainer\[parquet\]'"):
        detect_format.detect(both / "train.parquet")


def test_data_info_describes_a_table(both):
    said = info.describe(both / "train.parquet", reads_all=True)
    assert "column color: 2 words, " in said and "label kind: cat, dog" in said
    assert (
        f"--dataset=parquet --dataset_option=train_files=train.parquet --dataset_option=label=kind --data_dir={both}"
        in said
    )
    columns = random_columns(20)
    write(both / "a.parquet", {name: columns[name] for name in ("size", "weight")})
    with pytest.raises(DataError, match="a Parquet file with the columns size, weight; .*label=<column>"):
        detect_format.detect(both / "a.parquet")


@pytest.mark.parametrize("names", [("size", "tags", "kind"), ("label", "size", "tags"), ("size", "kind", "tags")])
def test_data_info_leaves_out_a_column_of_lists(tmp_path, names):
    columns = random_columns(20) | {"tags": [[1]] * 20}
    columns["label"] = columns["kind"]
    write(tmp_path / "train.parquet", {name: columns[name] for name in names})
    told = info.describe(tmp_path, reads_all=True)
    label = "label" if "label" in names else "kind"
    assert f"--dataset_option=label={label} --dataset_option=columns=tags:ignore --data_dir=" in told
    assert "column size: numbers" in told and "column tags" not in told


def test_a_config_with_parquet_predicts(both, tmp_path):
    source = create(both, "form=sparse")
    options = ("label=kind", "form=sparse")
    config = TrainConfig(model="logistic_regression", dataset="parquet", dataset_option=options, data_dir=str(both))
    trained(tmp_path, source)
    told = prediction.write(config, tmp_path / "checkpoints", both / "train.parquet", tmp_path / "out.csv")
    assert told.startswith(f"{tmp_path}/out.csv: 95 predictions")
    assert (tmp_path / "out.csv").read_text().splitlines()[0] == "prediction_dog,class"


@pytest.mark.parametrize(("values", "shown"), [([[1], [2]], "list"), ([b"\xff", b"a"], "binary")])
def test_a_label_that_is_no_class_is_not_told_to_leave_itself_out(tmp_path, values, shown):
    write(tmp_path / "train.parquet", {"x": [1.0, 2.0], "kind": values})
    with pytest.raises(
        DataError, match=f"column 'kind' has the type {shown}.* another label .*label=<column>"
    ) as raised:
        create(tmp_path, "test_every=3")
    assert "ignore" not in str(raised.value)
    with pytest.raises(DataError, match="column 'kind' is the label, and columns=kind:ignore leaves it out"):
        create(tmp_path, "test_every=3", "columns=kind:ignore")


def test_dates_in_a_column_of_plain_numbers_are_refused(tmp_path):
    days = [datetime.date(2024, 1, 1 + at % 9) for at in range(40)]
    columns = {"size": list(range(40)), "day": days, "kind": ["cat", "dog"] * 20}
    write(tmp_path / "train.parquet", columns)
    source = create(tmp_path, "form=sparse")
    write(tmp_path / "new.parquet", columns)
    assert len(read_batches(lambda: source.read(tmp_path / "new.parquet", 40))) == 1
    for dates in (days, [str(day) for day in days]):
        write(tmp_path / "dates.parquet", columns | {"size": dates})
        with pytest.raises(
            DataError, match=r"dates.parquet: .*column 'size' (has dates|holds numbers, but this)"
        ) as raised:
            source.read(tmp_path / "dates.parquet", 40)
        assert "--" not in str(raised.value)
    # The record of an older version does not tell dates from numbers.
    entries = json.loads(json.dumps(source.facts.entries))
    del entries["columns"]["value"][1]["times"]
    old = create(tmp_path, "form=sparse", facts=Facts(entries))
    assert len(read_batches(lambda: old.read(tmp_path / "new.parquet", 40))) == 1


def test_values_unlike_those_of_the_training_rows_are_counted(both, tmp_path):
    source = create(both, "form=columns")
    write(tmp_path / "new.parquet", random_columns(9, seed=1) | {"color": ["blue"] * 9, "size": [10**6] * 9})
    source.read(tmp_path / "new.parquet", 9)
    told = source.unfamiliar.take()
    assert "column 'color' that no training row has, read as missing: 9 of 9 ('blue')" in told
    assert "numbers of column 'size' far outside" in told and "'weight'" not in told


def test_an_empty_parquet_file_is_named_by_the_dataset_and_by_a_prediction(both):
    source = create(both)
    (both / "new.parquet").touch()
    message = r"new.parquet is a Parquet file without content \(0 bytes\); write it again, or give another file"
    with pytest.raises(DataError, match=message):
        source.read(both / "new.parquet", 9)
    with pytest.raises(DataError, match=message):
        create(both, "train_files=new.parquet")

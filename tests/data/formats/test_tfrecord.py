"""TFRecord files: a specification reads TensorFlow's files; errors name broken files, records and images."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer import component_tables
from ps_trainer.data import info
from ps_trainer.data.formats.record_file import record_file
from ps_trainer.data.formats.tfrecord import TfRecord
from ps_trainer.data.formats.tfrecord_features import Feature, parse_feature
from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import DataError, OptionError
from tests.data.reading import read_batches, read_column, read_leased, read_shards
from tests.data.sharding import NUM_WORKERS, assert_parts_are_test_batches

HEADER, CHECKSUM = 12, 4


def example(**features):
    """A serialized Example with lists of int, of float, or of bytes."""
    message = tf.train.Example()
    for key, values in features.items():
        kind = {int: "int64_list", float: "float_list", bytes: "bytes_list"}[type(values[0])]
        getattr(message.features.feature[key], kind).value.extend(values)
    return message.SerializeToString()


def write(path, records, packed=False):
    with tf.io.TFRecordWriter(str(path), "GZIP" if packed else None) as writer:
        for record in records:
            writer.write(record)
    return path


def numbers(path, values, packed=False):
    return write(path, [example(x=[int(value)]) for value in values], packed)


def create(folder, *features, **options):
    return TfRecord(TfRecord.Options(features=features, **options), data_dir=str(folder))


def all_of_test(source):
    (batch,) = read_batches(lambda: source.test(batch_size=source.num_test_examples))
    return batch


def one_epoch(source):
    return lambda: source.train(shard=Shard(0, 1), batch_size=1, seed=0, num_epochs=1)


def test_each_kind_becomes_a_tensor_of_its_shape(tmp_path):
    raw = bytes(range(6))
    records = [
        example(n=[7], pair=[1, 2], values=[0.5, 1.5, 2.5], word=[b"a"], raw=[raw]),
        example(n=[8], pair=[3, 4], word=[b"bc"], raw=[raw[::-1]]),
    ]
    write(tmp_path / "a.tfrecord", [records[0]] * 2)
    write(tmp_path / "test.tfrecord", records)
    source = create(
        tmp_path, "label=n:int64", "pair:int64[2]", "values:float32[*]", "word:bytes", "raw:uint8[2x3x1]",
        test_files=("test*",), num_classes=9,
    )  # fmt: skip
    assert (source.num_train_examples, source.num_test_examples, source.num_classes) == (2, 2, 9)
    batch = all_of_test(source)
    np.testing.assert_array_equal(batch["label"], [7, 8])
    np.testing.assert_array_equal(batch["pair"], [[1, 2], [3, 4]])
    np.testing.assert_array_equal(batch["values"], [[0.5, 1.5, 2.5], [0, 0, 0]])
    np.testing.assert_array_equal(batch["word"], [b"a", b"bc"])
    expected = np.reshape([*range(6), *reversed(range(6))], [2, 2, 3, 1]) / np.float32(255)
    np.testing.assert_allclose(batch["raw"], expected, rtol=1e-6)


@pytest.mark.parametrize("packed", [False, True])
def test_classes_are_counted_in_the_files_unless_given(tmp_path, packed):
    numbers(tmp_path / "a.tfrecord", [3, 0, 2], packed)
    numbers(tmp_path / "b.tfrecord", [6, 1], packed)
    counted = create(tmp_path, "label=x:int64")
    assert counted.num_classes == 7
    assert create(tmp_path, "label=x:int64", test_files=("b*",)).num_classes == 7  # a model is tested on it, too
    assert create(tmp_path, "label=x:int64", num_classes=9).num_classes == 9
    assert create(tmp_path, "x:int64").num_classes is None
    assert create(tmp_path, "label=x:int64[1]").num_classes is None
    recorded = Facts(counted.facts.entries)
    for path in tmp_path.iterdir():
        path.unlink()
    options = TfRecord.Options(features=("label=x:int64",))
    assert TfRecord(options, data_dir=str(tmp_path), facts=recorded).num_classes == 7


def test_labels_that_are_no_classes_or_broken_are_left_to_the_step_that_reads_them(tmp_path):
    for no_class in (-1, 2**40):
        path = numbers(tmp_path / "a.tfrecord", [3, no_class])
        assert create(tmp_path, "label=x:int64").num_classes is None
    write(path, [example(x=[3]), b"?"])
    source = create(tmp_path, "label=x:int64")
    assert source.num_classes is None
    with pytest.raises(tf.errors.InvalidArgumentError, match="record 2.* is not a tf.train.Example"):
        list(read_batches(one_epoch(source)))


@pytest.mark.parametrize("num_workers", NUM_WORKERS)
def test_shards_cover_the_records_of_all_files_once(tmp_path, num_workers):
    numbers(tmp_path / "train-0", range(8))
    numbers(tmp_path / "train-1", range(8, 15), packed=True)
    numbers(tmp_path / "test-0", [99])
    source = create(tmp_path, "x:int64", train_files=("train-*",), test_files=("test-*",))
    assert sorted(read_shards(source, num_workers)["x"]) == list(range(15))


def test_another_file_is_read(tmp_path):
    numbers(tmp_path / "a.tfrecord", range(3))
    source = create(tmp_path, "x:int64")
    other = numbers(tmp_path / "other", [7, 8, 9], packed=True)
    np.testing.assert_array_equal(read_column(lambda: source.read(other, 2), "x"), [7, 8, 9])


def test_the_content_of_a_file_is_described_with_flags_that_read_it(tmp_path):
    write(tmp_path / "train", [example(n=[7], values=[0.5, 1.5, 2.5], word=[b"a"])] * 3)
    write(tmp_path / "test", [example(n=[7], values=[0.5, 1.5, 2.5], word=[b"a"])])
    text = info.describe(tmp_path, reads_all=True)
    assert "tf.train.Example in TFRecord files" in text
    assert "3 training examples, 1 test examples" in text
    assert "--dataset_option=features=n:int64,values:float32[3],word:bytes" in text.replace("'", "")


def test_without_test_files_a_part_of_the_records_is_held_out(tmp_path):
    numbers(tmp_path / "a.tfrecord", range(5))
    numbers(tmp_path / "b.tfrecord.gz", range(5, 8), packed=True)
    source = create(tmp_path, "x:int64", test_every=3)
    assert (source.num_train_examples, source.num_test_examples) == (8 - 3, 3)
    np.testing.assert_array_equal(all_of_test(source)["x"], [0, 3, 5])
    assert sorted(read_column(one_epoch(source), "x")) == [1, 2, 4, 6, 7]


def test_test_files_are_not_trained_on_although_they_match(tmp_path):
    numbers(tmp_path / "a.tfrecord", range(5))
    numbers(tmp_path / "b.tfrecord", range(5, 8))
    assert create(tmp_path, "x:int64", test_files=("b*",)).num_train_examples == 5
    with pytest.raises(DataError, match="every file of train_files=b. is a test file"):
        create(tmp_path, "x:int64", train_files=("b*",), test_files=("b*",))


def test_images_are_decoded_and_resized(tmp_path):
    pixels = np.random.RandomState(0).randint(0, 256, (4, 6, 3), np.uint8)
    with tf.Graph().as_default(), tf.Session() as session:
        png, jpeg = session.run([tf.io.encode_png(pixels), tf.io.encode_jpeg(pixels[:2, :2] // 128 * 255, quality=100)])
    write(tmp_path / "a.tfrecord", [example(i=[png], n=[1])])
    write(tmp_path / "test.tfrecord", [example(i=[image], n=[n]) for n, image in enumerate([png, jpeg, png])])
    same, small = (
        create(tmp_path, f"image=i:image[{size}]", "label=n:int64", test_files=("test*",))
        for size in ("4x6x3", "2x3x1")
    )
    first, second = assert_parts_are_test_batches(same)
    assert first["image"].shape == (2, 4, 6, 3)
    np.testing.assert_allclose([first["image"][0], second["image"][0]], [pixels / 255] * 2, atol=1e-6)
    np.testing.assert_array_equal(first["label"], [0, 1])
    grey = all_of_test(small)["image"]
    assert grey.shape == (3, 2, 3, 1)
    assert grey[0].mean() == pytest.approx(np.dot(pixels / 255, [0.2989, 0.587, 0.114]).mean(), abs=0.02)
    assert read_leased(same, "image").shape == (1, 4, 6, 3)
    batch = read_batches(one_epoch(same), max_batches=1)[0]
    assert (batch["image"].shape, set(batch)) == ((1, 4, 6, 3), {"image", "label"})


@pytest.mark.parametrize("seed", range(2))
def test_random_records_are_read_back_in_order(tmp_path, seed):
    """Number and length are random, in a plain or packed file with a random part held out."""
    random = np.random.RandomState(seed)
    values = [random.bytes(random.randint(0, 400)) for _ in range(random.randint(3, 40))]
    every = random.randint(2, 6)
    write(tmp_path / "a.tfrecord", [example(x=[value]) for value in values], packed=bool(seed % 2))
    source = create(tmp_path, "x:bytes", test_every=int(every))
    assert list(all_of_test(source)["x"]) == values[::every]
    left = [value for at, value in enumerate(values) if at % every]
    assert sorted(read_column(one_epoch(source), "x")) == sorted(left)


@pytest.mark.parametrize("packed", [False, True])
def test_a_truncated_file_is_named_with_the_position(tmp_path, packed):
    data = numbers(tmp_path / "whole", range(3)).read_bytes()
    size = len(data) // 3
    for cut, message in (
        (1, f"byte {2 * size}: record 3: the file ends within its {size - HEADER - CHECKSUM} bytes; it is truncated"),
        (size - 5, f"byte {2 * size}: record 3: the file ends within its length; it is truncated"),
    ):
        (tmp_path / "cut").write_bytes(gzip.compress(data[:-cut]) if packed else data[:-cut])
        with pytest.raises(DataError, match=f"cut: {message}"):
            record_file(tmp_path / "cut")
    packed_whole = gzip.compress(data)
    (tmp_path / "cut").write_bytes(packed_whole[:-9])
    with pytest.raises(DataError, match="cut: cannot be unpacked"):
        record_file(tmp_path / "cut")


def test_a_file_of_something_else_is_named(tmp_path):
    file = tmp_path / "text"
    file.write_text("label\timage\n" * 3)
    with pytest.raises(
        DataError, match="text: byte 0: record 1: the checksum of its length is wrong; .* not a TFRecord"
    ):
        record_file(file)
    file.write_bytes(b"")
    with pytest.raises(DataError, match="text: the file is empty"):
        record_file(file)
    with pytest.raises(DataError, match="none: cannot be read: No such file"):
        record_file(tmp_path / "none")
    with pytest.raises(DataError, match=r"has no file \*\.tfrecord\*; name others by train_files or test_files"):
        create(tmp_path, "x:int64")
    with pytest.raises(DataError, match=r"--data_dir is not given; dataset tfrecord needs .* with \*\.tfrecord\*"):
        TfRecord(TfRecord.Options(features=("x:int64",)))


def test_a_length_that_looks_like_gzip_is_not_taken_for_gzip(tmp_path):
    record = example(x=[bytes(0x8B1F)])
    record = example(x=[bytes(0x8B1F - (len(record) - 0x8B1F))])
    path = write(tmp_path / "a", [record])
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    assert (record_file(path).is_packed, record_file(path).num_records) == (False, 1)


@pytest.mark.parametrize(("packed", "broken"), [(False, 0), (True, 3)])
def test_a_record_of_wrong_checksum_is_named(tmp_path, packed, broken):
    good = numbers(tmp_path / "a.tfrecord", range(5), packed)
    data = bytearray((gzip.decompress if packed else bytes)(good.read_bytes()))
    data[len(data) // 5 * broken + HEADER + 3] ^= 1
    bad = tmp_path / "b.tfrecord"
    bad.write_bytes(gzip.compress(data) if packed else data)
    source = create(tmp_path, "x:int64", train_files=("a*",), test_files=("b*",))
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{bad}: record {broken + 1}: its checksum is wrong"):
        all_of_test(source)


def test_a_file_that_disappears_ends_the_run(tmp_path):
    file = numbers(tmp_path / "a.tfrecord", range(5))
    source = create(tmp_path, "x:int64")
    file.unlink()
    with pytest.raises(tf.errors.NotFoundError, match=str(file)):
        all_of_test(source)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"no example", "is not a tf.train.Example"),
        (example(y=[1], raw=[b"1234"]), r"Feature: x \(data type: int64\) is required but could not be found"),
        (example(x=[1, 2], raw=[b"1234"]), "Key: x.*Number of int64 values != expected"),
        (example(x=[0.5], raw=[b"1234"]), "Key: x.*Data types don't match"),
        (example(x=[1], raw=[b"123"]), r"feature raw must have 4 bytes, the size of shape \(2, 2\)"),
    ],
    ids=["none", "missing", "too long", "other type", "too short"],  # the bytes differ between processes
)
def test_a_record_that_is_not_a_matching_example_is_named(tmp_path, record, message):
    numbers(tmp_path / "a.tfrecord", range(3))
    write(tmp_path / "test.tfrecord", [example(x=[1], raw=[b"1234"]), record])
    source = create(tmp_path, "x:int64", "raw:uint8[2x2]", test_files=("test*",))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message) as raised:
        all_of_test(source)
    assert f"{tmp_path / 'test.tfrecord'}: record 2" in str(raised.value)


def test_a_file_that_is_not_an_image_is_named(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        png = session.run(tf.io.encode_png(np.zeros((4, 4, 3), np.uint8)))
    write(tmp_path / "a.tfrecord", [example(i=[png])] * 3)
    write(tmp_path / "test.tfrecord", [example(i=[image]) for image in (png, png, png[:-20], png)])
    source = create(tmp_path, "image=i:image[4x4x3]", test_files=("test*",))
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        all_of_test(source)
    assert f"{tmp_path / 'test.tfrecord'}: record 3: i cannot be decoded as an image" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "feature"),
    [
        ("x:int64", Feature("x", "x", "int64", ())),
        ("image/class/label:int64", Feature("image/class/label", "image/class/label", "int64", ())),
        ("label=image/class/label:int64", Feature("label", "image/class/label", "int64", ())),
        ("x:float32[8]", Feature("x", "x", "float32", (8,))),
        ("x:float32[2x3]", Feature("x", "x", "float32", (2, 3))),
        ("x:int64[*]", Feature("x", "x", "int64", None)),
    ],
)
def test_features_are_written_in_a_word(text, feature):
    assert parse_feature(text) == feature


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "features is not given; name them, for example"),
        (["features=x"], "features=x: write .*with kind one of int64, float32, bytes, uint8, image"),
        (["features=x:int32"], "features=x:int32: write"),
        (["features=x:int64[2xx]"], r"features=x:int64\[2xx\]"),
        (["features=x:int64[2x*]"], "write the shape as"),
        (["features=x:int64[0]"], "a size is 0; it must be at least 1"),
        (["features=x:bytes[*]"], "only int64 and float32"),
        (["features=x:uint8"], "uint8 needs a shape"),
        (
            ["features=x:image[9x9]"],
            r"to resize it to: height, width and 1, 3 or 4 channels, such as x:image\[224x224x3\]",
        ),
        (["features=x:image[9x9x2]"], "1, 3 or 4 channels"),
        (["features=x:int64,x=y:int64"], "a name occurs twice"),
        (["features=x:int64,y=x:int64"], "a key occurs twice"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(OptionError, match=message):
        component_tables.DATASETS.create("tfrecord", options, data_dir=None)


def test_records_are_found_beside_other_files_and_without_features_are_no_data(tmp_path):
    write(tmp_path / "a.tfrecord", [example(x=[1])] * 2)
    (tmp_path / "README.md").write_text("some records\n")
    told = info.describe(tmp_path, reads_all=True, options=["test_every=2"])
    assert "other files are not read: README.md" in told and "train_files=a.tfrecord" in told
    write(tmp_path / "a.tfrecord", [b""])
    assert "the first example of a.tfrecord has no feature; write" in info.describe(tmp_path)

"""MNIST from IDX files: names, streaming, and files that contradict each other."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.data.formats.mnist import Emnist, FashionMnist, Mnist
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import DataError
from tests.data.reading import read_batches, read_column
from tests.data.sharding import assert_every_record_once, assert_parts_are_test_batches

HEIGHT, WIDTH = 5, 4
NUM_TRAIN, NUM_TEST = 11, 6


def _write(path, array):
    data = b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def _arrays(seed=0):
    random = np.random.RandomState(seed)
    arrays = {}
    for prefix, n in (("train", NUM_TRAIN), ("t10k", NUM_TEST)):
        arrays[f"{prefix}-images"] = random.randint(0, 256, (n, HEIGHT, WIDTH), np.uint8)
        arrays[f"{prefix}-labels"] = random.randint(0, 10, n, np.uint8)
    return arrays


def _write_all(folder, arrays, separator="-", suffix=""):
    for name, array in arrays.items():
        _write(folder / f"{name}{separator}idx{array.ndim}-ubyte{suffix}", array)


def _create(folder, cls=Mnist):
    return cls(cls.Options(), data_dir=str(folder))


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("separator", ["-", "."])
@pytest.mark.parametrize("cls", [Mnist, FashionMnist])
def test_reads_every_accepted_name(tmp_path, cls, separator, suffix):
    arrays = _arrays()
    _write_all(tmp_path, arrays, separator, suffix)
    source = _create(tmp_path, cls)
    assert (source.num_train_examples, source.num_test_examples, source.num_classes) == (NUM_TRAIN, NUM_TEST, 10)
    batches = read_batches(lambda: source.test(batch_size=4))
    assert [len(batch["label"]) for batch in batches] == [4, 2]
    images = np.concatenate([batch["image"] for batch in batches])
    np.testing.assert_allclose(images, arrays["t10k-images"][..., np.newaxis] / np.float32(255), rtol=1e-6)
    np.testing.assert_array_equal(np.concatenate([b["label"] for b in batches]), arrays["t10k-labels"])


def test_training_shards_cover_every_image_once_with_its_label(tmp_path):
    arrays = _arrays()
    # The first pixel of each image holds the image's index.
    arrays["train-images"][:, 0, 0] = np.arange(NUM_TRAIN)
    _write_all(tmp_path, arrays, suffix=".gz")
    source = _create(tmp_path)
    seen = []
    for index in range(2):
        for batch in read_batches(
            lambda index=index: source.train(shard=Shard(index, 2), batch_size=1, seed=0, num_epochs=1)
        ):
            i = round(float(batch["image"][0, 0, 0, 0]) * 255)
            assert i % 2 == index
            assert batch["label"][0] == arrays["train-labels"][i]
            seen.append(i)
    assert sorted(seen) == list(range(NUM_TRAIN))


def test_training_batch_has_static_shape(tmp_path):
    _write_all(tmp_path, _arrays())
    with tf.Graph().as_default():
        dataset = _create(tmp_path).train(shard=Shard(0, 1), batch_size=3, seed=0, num_epochs=None)
        batch = tf.data.make_initializable_iterator(dataset).get_next()
    assert batch["image"].shape.as_list() == [3, HEIGHT, WIDTH, 1]
    assert (batch["image"].dtype, batch["label"].dtype) == (tf.float32, tf.int64)
    assert batch["label"].shape.as_list() == [3]


def test_images_are_not_part_of_the_graph(tmp_path):
    arrays = _arrays()
    arrays["train-images"] = np.zeros((NUM_TRAIN, 300, 300), np.uint8)
    arrays["t10k-images"] = np.zeros((NUM_TEST, 300, 300), np.uint8)
    _write_all(tmp_path, arrays)
    source = _create(tmp_path)
    with tf.Graph().as_default() as graph:
        tf.data.make_initializable_iterator(source.train(shard=Shard(0, 1), batch_size=3, seed=0, num_epochs=None))
        assert graph.as_graph_def().ByteSize() < 300 * 300


def test_files_are_found_from_another_working_directory(tmp_path, monkeypatch):
    folder = tmp_path / "data"
    folder.mkdir()
    _write_all(folder, _arrays())
    monkeypatch.chdir(tmp_path)
    source = _create("data")
    monkeypatch.chdir(folder)
    assert len(read_column(lambda: source.test(batch_size=2), "label")) == NUM_TEST


def test_without_data_dir_the_needed_files_are_listed():
    with pytest.raises(DataError, match="--data_dir is not given") as info:
        Mnist(Mnist.Options(), data_dir=None)
    for name in ("train-images-idx3-ubyte", "train-labels.idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz", "dataset mnist"):
        assert name in str(info.value)


def test_data_dir_that_is_not_a_folder_is_named(tmp_path):
    with pytest.raises(DataError, match=f"--data_dir={tmp_path}/absent is not a folder; dataset fashion_mnist"):
        _create(tmp_path / "absent", FashionMnist)


def test_missing_file_lists_its_accepted_names(tmp_path):
    _write_all(tmp_path, _arrays())
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError) as info:
        _create(tmp_path)
    assert str(info.value) == (
        f"--data_dir={tmp_path} has no t10k-labels-idx1-ubyte; accepted names: t10k-labels-idx1-ubyte,"
        " t10k-labels-idx1-ubyte.gz, t10k-labels.idx1-ubyte, t10k-labels.idx1-ubyte.gz"
    )


def test_label_out_of_range_names_file_and_byte_of_the_first(tmp_path):
    arrays = _arrays()
    arrays["train-labels"][[4, 9]] = [10, 255]
    _write_all(tmp_path, arrays)
    with pytest.raises(DataError) as info:
        _create(tmp_path)
    assert str(info.value).startswith(
        f"{tmp_path}/train-labels-idx1-ubyte: byte {8 + 4}: label 10 of example 4 is not in 0..9 (2 of 11"
    )


def test_different_numbers_of_images_and_labels_name_both_files(tmp_path):
    arrays = _arrays()
    arrays["t10k-labels"] = arrays["t10k-labels"][:-1]
    _write_all(tmp_path, arrays)
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte: 6 images, but .*t10k-labels-idx1-ubyte: 5 labels"):
        _create(tmp_path)


def test_different_image_sizes_name_both_files(tmp_path):
    arrays = _arrays()
    arrays["t10k-images"] = arrays["t10k-images"][:, :3]
    _write_all(tmp_path, arrays)
    with pytest.raises(DataError, match=r"train-images.*\(5, 4\) pixels, but .*t10k-images.*\(3, 4\)"):
        _create(tmp_path)


def test_broken_file_is_found_when_the_dataset_is_created(tmp_path):
    _write_all(tmp_path, _arrays())
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-2])
    end = 16 + NUM_TRAIN * HEIGHT * WIDTH
    with pytest.raises(DataError, match=f"{path}: byte {end - 2}: the file ends here, 2 bytes before"):
        _create(tmp_path)


def test_labels_in_the_place_of_images_are_rejected(tmp_path):
    arrays = _arrays()
    _write_all(tmp_path, arrays)
    _write(tmp_path / "train-images-idx3-ubyte", arrays["train-labels"])
    with pytest.raises(DataError, match="byte 3: 1 dimensions, expected 3"):
        _create(tmp_path)


def test_a_file_of_images_is_read_with_label_0(tmp_path):
    _write_all(tmp_path, _arrays())
    images = _arrays(seed=1)["t10k-images"]
    _write(tmp_path / "mine.gz", images)
    source = _create(tmp_path)
    batches = read_batches(lambda: source.read(tmp_path / "mine.gz", 4))
    read = np.concatenate([batch["image"] for batch in batches])
    np.testing.assert_allclose(read, images[..., np.newaxis] / np.float32(255), rtol=1e-6)
    assert [list(batch["label"]) for batch in batches] == [[0] * 4, [0] * 2]
    _write(tmp_path / "other", images[:, 1:])
    with pytest.raises(DataError, match=r"other has images of \(4, 4\) pixels; they must be \(5, 4\)"):
        source.read(tmp_path / "other", 4)


def _write_emnist(folder, split="letters", largest=26):
    """Writes images in EMNIST's order: columns before rows."""
    upright, labels = {}, {}
    for part, n in (("train", NUM_TRAIN), ("test", NUM_TEST)):
        upright[part] = np.random.RandomState(n).randint(0, 256, (n, HEIGHT, HEIGHT), np.uint8)
        labels[part] = np.linspace(1, largest, n).astype(np.uint8)
        prefix = f"emnist-{split}-{part}"
        _write(folder / f"{prefix}-images-idx3-ubyte.gz", upright[part].transpose(0, 2, 1).copy())
        _write(folder / f"{prefix}-labels-idx1-ubyte.gz", labels[part])
    return upright, labels


def test_emnist_is_transposed_back(tmp_path):
    upright, labels = _write_emnist(tmp_path)
    source = Emnist(Emnist.Options(split="letters"), data_dir=str(tmp_path))
    assert (source.num_train_examples, source.num_test_examples, source.num_classes) == (NUM_TRAIN, NUM_TEST, 27)
    (batch,) = read_batches(lambda: source.test(batch_size=NUM_TEST))
    np.testing.assert_allclose(batch["image"][..., 0], upright["test"] / np.float32(255), rtol=1e-6)
    np.testing.assert_array_equal(batch["label"], labels["test"])


def test_shards_of_emnist_cover_every_image_once(tmp_path):
    _write_emnist(tmp_path)
    source = Emnist(Emnist.Options(split="letters"), data_dir=str(tmp_path))
    assert_every_record_once(source, "image")
    assert_parts_are_test_batches(source)


@pytest.mark.parametrize("seed", range(2))
def test_random_emnist_is_read_back_in_order(tmp_path, seed):
    """Number, size and split are random, and the files are packed as EMNIST ships them."""
    random = np.random.RandomState(seed)
    split, (num_train, num_test, size) = random.choice(["byclass", "letters"]), random.randint(1, 9, 3)
    wanted = {}
    for part, num in (("train", num_train), ("test", num_test)):
        wanted[part] = random.randint(0, 256, (num, size, size), np.uint8), random.randint(0, 27, num).astype(np.uint8)
        for array, kind in zip(wanted[part], ("images", "labels"), strict=True):
            name = f"emnist-{split}-{part}-{kind}-idx{array.ndim}-ubyte.gz"
            _write(tmp_path / name, np.swapaxes(array, 1, 2).copy() if kind == "images" else array)
    source = Emnist(Emnist.Options(split=split), data_dir=str(tmp_path))
    for part, (images, labels) in wanted.items():
        (batch,) = read_batches(lambda part=part: source.in_order(part, batch_size=10))
        np.testing.assert_allclose(batch["image"][..., 0], images / np.float32(255), rtol=1e-6)
        np.testing.assert_array_equal(batch["label"], labels)


def test_emnist_errors_name_the_fault(tmp_path):
    with pytest.raises(DataError, match="dataset emnist needs .*emnist-digits-test-labels-idx1-ubyte.gz"):
        Emnist(Emnist.Options(split="digits"))
    _write_emnist(tmp_path, "digits")
    with pytest.raises(DataError, match=r"label 11 of example 4 is not in 0\.\.9"):
        Emnist(Emnist.Options(split="digits"), data_dir=str(tmp_path))

"""CIFAR-10 and CIFAR-100 from hand-written files of a few records, and from broken ones."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.data.formats.cifar import Cifar10, Cifar100
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import DataError
from tests.data.reading import read_batches, read_column
from tests.testing.repetitions import repetitions

PER_FILE = 3


def records(num, num_labels, first=0):
    """Records with the labels `first`, `first` + 1, … and random pixels; the coarse label is half of the fine one."""
    planes = np.random.RandomState(first).randint(0, 256, (num, 3, 32, 32), np.uint8)
    fine = np.arange(first, first + num, dtype=np.uint8)
    labels = [fine] if num_labels == 1 else [fine // 2, fine]
    data = np.concatenate([np.stack(labels, axis=1), planes.reshape(num, -1)], axis=1)
    return data, planes


def write_10(folder):
    """Two records in the test file and three in each other file, with the labels 0, 1, 2, 2, 3, 4, 4, …"""
    folder.mkdir(exist_ok=True)
    for i in range(1, 6):
        (folder / f"data_batch_{i}.bin").write_bytes(records(PER_FILE, 1, first=i)[0].tobytes())
    data, planes = records(2, 1, first=7)
    (folder / "test_batch.bin").write_bytes(data.tobytes())
    return planes


def write_100(folder):
    for name, num in (("train", 4), ("test", 3)):
        (folder / f"{name}.bin").write_bytes(records(num, 2, first=num)[0].tobytes())


def create(folder, cls=Cifar10, **options):
    return cls(cls.Options(**options), data_dir=str(folder))


def test_planes_become_pixels_with_channels(tmp_path):
    planes = write_10(tmp_path)
    source = create(tmp_path)
    assert (source.num_train_examples, source.num_test_examples, source.num_classes) == (5 * PER_FILE, 2, 10)
    (batch,) = read_batches(lambda: source.test(batch_size=2))
    assert batch["image"].shape == (2, 32, 32, 3)
    for channel in range(3):
        np.testing.assert_allclose(batch["image"][..., channel], planes[:, channel] / np.float32(255), rtol=1e-6)
    np.testing.assert_array_equal(batch["label"], [7, 8])
    assert batch["label"].dtype == np.int64


@pytest.mark.parametrize("num_workers", repetitions([1, 2, 3, 7], first=1))
def test_shards_cover_the_records_of_all_files_once(tmp_path, num_workers):
    write_10(tmp_path)
    source = create(tmp_path)
    labels = []
    for index in range(num_workers):
        labels += list(
            read_column(
                lambda i=index: source.train(shard=Shard(i, num_workers), batch_size=1, seed=0, num_epochs=1), "label"
            )
        )
    assert sorted(labels) == sorted(label for first in range(1, 6) for label in range(first, first + PER_FILE))


def test_the_folder_of_the_archive_is_found(tmp_path):
    write_10(tmp_path / "cifar-10-batches-bin")
    assert create(tmp_path).num_test_examples == 2


@pytest.mark.parametrize(("coarse", "labels", "num_classes"), [(False, [3, 4, 5], 100), (True, [1, 2, 2], 20)])
def test_labels_of_cifar100_are_fine_or_coarse(tmp_path, coarse, labels, num_classes):
    write_100(tmp_path)
    source = create(tmp_path, Cifar100, coarse=coarse)
    assert (source.num_train_examples, source.num_classes) == (4, num_classes)
    np.testing.assert_array_equal(read_column(lambda: source.test(batch_size=3), "label"), labels)


def test_without_a_folder_the_files_that_it_needs_are_named(tmp_path):
    with pytest.raises(DataError, match="--data_dir is not given; dataset cifar10 needs .*data_batch_1.bin"):
        Cifar10(Cifar10.Options())
    with pytest.raises(DataError, match="is not a folder"):
        create(tmp_path / "none")
    write_10(tmp_path)
    (tmp_path / "data_batch_3.bin").unlink()
    with pytest.raises(DataError, match=r"has no data_batch_3\.bin;"):
        create(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-1], r"data_batch_2\.bin: byte 6146: the file ends after 9218 bytes.*truncated"),
        (lambda data: b"", "byte 0: the file ends after 0 bytes"),
        (
            lambda data: data[:3073] + b"\x0a" + data[3074:],
            r"byte 3073: label 10 of record 1 is not in 0\.\.9 \(1 of 3",
        ),
    ],
)
def test_a_broken_file_is_named_with_the_position(tmp_path, change, message):
    write_10(tmp_path)
    file = tmp_path / "data_batch_2.bin"
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(DataError, match=message):
        create(tmp_path)


@pytest.mark.parametrize("seed", range(2))
def test_random_records_are_read_back_and_every_cut_is_noticed(tmp_path, seed):
    random = np.random.RandomState(seed)
    wanted = {}
    for split, num in zip(("train", "test"), random.randint(1, 9, 2), strict=True):
        labels, planes = random.randint(0, 20, (num, 1)), random.randint(0, 256, (num, 3, 32, 32), np.uint8)
        data = np.concatenate([labels, labels * 5, planes.reshape(num, -1)], axis=1).astype(np.uint8)
        (tmp_path / f"{split}.bin").write_bytes(data.tobytes())
        wanted[split] = planes.transpose(0, 2, 3, 1) / np.float32(255), labels[:, 0] * 5
    source = create(tmp_path, Cifar100)
    for split, (images, labels) in wanted.items():
        (batch,) = read_batches(lambda split=split: source.in_order(split, batch_size=10))
        np.testing.assert_allclose(batch["image"], images, rtol=1e-6)
        np.testing.assert_array_equal(batch["label"], labels)
    size = 3074 * len(wanted["train"][1])
    cut = random.choice([at for at in range(size) if at % 3074])
    (tmp_path / "train.bin").write_bytes((tmp_path / "train.bin").read_bytes()[:cut])
    with pytest.raises(DataError, match=f"byte {cut - cut % 3074}: the file ends after {cut} bytes"):
        create(tmp_path, Cifar100)


def test_files_of_the_other_dataset_are_rejected(tmp_path):
    write_10(tmp_path)
    (tmp_path / "test_batch.bin").rename(tmp_path / "test.bin")
    (tmp_path / "data_batch_1.bin").rename(tmp_path / "train.bin")
    with pytest.raises(DataError, match="not a whole number of records of 3074 bytes"):
        create(tmp_path, Cifar100)


def test_another_file_is_read_whole_and_checked(tmp_path):
    write_10(tmp_path)
    data, _ = records(4, 1, first=2)
    (tmp_path / "mine.bin").write_bytes(data.tobytes())
    source = create(tmp_path)
    assert list(read_column(lambda: source.read(tmp_path / "mine.bin", 3), "label")) == [2, 3, 4, 5]
    (tmp_path / "mine.bin").write_bytes(data.tobytes()[:-1])
    with pytest.raises(DataError, match="mine.bin: byte 9219: the file ends after"):
        source.read(tmp_path / "mine.bin", 3)

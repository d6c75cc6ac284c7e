"""Folders of images: classes by name, resized files, shards, splits, and a file that is not an image."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.data import info
from ps_trainer.data.formats import image_folder
from ps_trainer.data.formats.image_folder import ImageFolder
from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import DataError
from tests.data.reading import read_batches, read_leased, read_shards
from tests.data.sharding import assert_parts_are_test_batches
from tests.testing.repetitions import repetitions


def write(path, *values, size=(4, 4), encode=tf.io.encode_png):
    """Grey images of one value each: `<path>/0.png`, …"""
    path.mkdir(parents=True, exist_ok=True)
    with tf.Graph().as_default(), tf.Session() as session:
        for at, value in enumerate(values):
            data = session.run(encode(tf.fill([*size, 3], tf.constant(value, tf.uint8))))
            (path / f"{at}{'.png' if encode is tf.io.encode_png else '.JPEG'}").write_bytes(data)


def create(folder, **options):
    return ImageFolder(ImageFolder.Options(**{"height": 4, "width": 4, **options}), data_dir=str(folder))


def all_of_test(source):
    (batch,) = read_batches(lambda: source.test(batch_size=source.num_test_examples))
    return batch


def values(image):
    return np.rint(image[:, 0, 0, 0] * 255).astype(int).tolist()


def test_classes_are_folders_in_the_order_of_their_names(tmp_path):
    for split, offset in (("train", 0), ("test", 1)):
        write(tmp_path / split / "dog", 100 + offset, encode=tf.io.encode_jpeg)
        write(tmp_path / split / "cat" / "more", 50 + offset, 150 + offset, size=(9, 5))
        (tmp_path / split / "cat" / "notes.txt").write_text("no image")
        (tmp_path / split / ".hidden").mkdir()
    source = create(tmp_path)
    assert (source.classes, source.num_classes) == (["cat", "dog"], 2)
    assert (source.num_train_examples, source.num_test_examples) == (3, 3)
    batch = all_of_test(source)
    assert batch["image"].shape == (3, 4, 4, 3)
    assert values(batch["image"]) == [51, 151, 101]
    np.testing.assert_array_equal(batch["label"], [0, 0, 1])
    (batch,) = read_batches(lambda: source.train(shard=Shard(0, 1), batch_size=3, seed=0, num_epochs=1))
    assert sorted(zip(values(batch["image"]), batch["label"], strict=True)) == [(50, 0), (100, 1), (150, 0)]
    assert_parts_are_test_batches(source, of_sample=True)


@pytest.mark.parametrize("num_workers", repetitions([1, 2, 3, 7], first=1))
def test_shards_cover_each_training_image_once(tmp_path, num_workers):
    write(tmp_path / "a", *range(5))
    write(tmp_path / "b", *range(5, 11))
    source = create(tmp_path, test_every=4, channels=1)
    assert values(all_of_test(source)["image"]) == [0, 4, 8]
    seen = values(read_shards(source, num_workers)["image"])
    assert sorted(seen) == [1, 2, 3, 5, 6, 7, 9, 10]


@pytest.mark.parametrize("seed", range(2))
def test_random_images_are_read_back_in_the_order_of_their_names(tmp_path, seed):
    """Classes, names, subfolders and pixels are random; the images keep their own size."""
    random = np.random.RandomState(seed)
    height, width, channels = int(random.randint(1, 9)), int(random.randint(1, 9)), int(random.choice([1, 3, 4]))
    names = random.choice(["a b", "Ä", "0", "ü/x", "c/d/e", "猫"], size=4, replace=False)
    places = sorted(f"{name}/{number}.{random.choice(['png', 'PNG'])}" for name in names for number in range(3))
    images = random.randint(0, 256, (len(places), height, width, channels), np.uint8)
    with tf.Graph().as_default(), tf.Session() as session:
        files = session.run([tf.io.encode_png(image) for image in images])
    for place, file in zip(places, files, strict=True):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_bytes(file)
    every = int(random.randint(2, 5))
    source = create(tmp_path, height=height, width=width, channels=channels, test_every=every)
    classes = sorted({place.split("/")[0] for place in places})
    assert source.classes == classes
    # One class after the other, each in the order of the names below it.
    order = sorted(range(len(places)), key=lambda at: (places[at].split("/")[0], tmp_path / places[at]))
    for split, wanted in (("test", order[::every]), ("train", [at for n, at in enumerate(order) if n % every])):
        (batch,) = read_batches(lambda split=split: source.in_order(split, batch_size=len(places)))
        np.testing.assert_allclose(batch["image"], images[wanted] / np.float32(255), atol=1e-6)
        np.testing.assert_array_equal(batch["label"], [classes.index(places[at].split("/")[0]) for at in wanted])


def test_an_image_and_a_folder_are_read_and_described(tmp_path):
    write(tmp_path / "set" / "a", 1, 2)
    write(tmp_path / "set" / "b", 3)
    write(tmp_path / "other", 99)
    (batch,) = read_batches(lambda: create(tmp_path / "set").read(tmp_path / "other" / "0.png", 2))
    assert (values(batch["image"]), list(batch["label"])) == ([99], [0])
    (tmp_path / "other" / "0.png").write_bytes(b"no image")
    with pytest.raises(tf.errors.InvalidArgumentError, match="0.png: cannot be decoded as an image; give a JPEG, PNG"):
        read_batches(lambda: create(tmp_path / "set").read(tmp_path / "other" / "0.png", 2))
    assert values(read_leased(create(tmp_path / "set", test_every=2), "image")) == [2]
    text = info.describe(tmp_path / "set")
    assert "images in a folder for each class" in text
    assert f"--dataset=image_folder --data_dir={tmp_path / 'set'}" in text


def test_an_image_that_cannot_be_decoded_is_named(tmp_path):
    write(tmp_path / "a", 1, 2, 3)
    write(tmp_path / "b", 1, 2, 3)
    file = tmp_path / "b" / "1.png"
    content = file.read_bytes()
    file.write_bytes(content[:-20] + bytes(8) + content[-12:])  # start and end are those of an image
    source = create(tmp_path, test_every=2)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{file}: cannot be decoded as an image"):
        all_of_test(source)


def test_folders_without_classes_are_named(tmp_path):
    with pytest.raises(DataError, match="--data_dir is not given; dataset image_folder needs"):
        ImageFolder(ImageFolder.Options())
    write(tmp_path / "train" / "a", 1)
    with pytest.raises(DataError, match=f"{tmp_path} has 1 folders; it must have a folder of images for each class"):
        create(tmp_path)
    (tmp_path / "train" / "b").mkdir()
    (tmp_path / "test" / "c").mkdir(parents=True)
    with pytest.raises(DataError, match="train/b has no .jpg, .jpeg, .png"):
        create(tmp_path)
    write(tmp_path / "train" / "b", 1)
    (tmp_path / "test" / "a").mkdir()
    with pytest.raises(DataError, match="test: train/ has no class c"):
        create(tmp_path)
    (tmp_path / "test" / "c").rename(tmp_path / "test" / "b")
    with pytest.raises(DataError, match="test has no images"):
        create(tmp_path)


def test_more_names_than_the_graph_can_hold_are_rejected(tmp_path, monkeypatch):
    write(tmp_path / "a", 1, 2)
    write(tmp_path / "b", 1, 2)
    monkeypatch.setattr(image_folder, "MAX_NAME_BYTES", 4 * len("a/0.png") - 1)
    with pytest.raises(DataError, match="the names of its images have 28 bytes, but at most 27 are allowed"):
        create(tmp_path)


def test_of_other_single_files_the_error_names_the_images_that_it_reads(tmp_path):
    for name in ("cat", "dog"):
        write(tmp_path / name, 50, 100)
    with pytest.raises(
        DataError, match=r"x.csv: the only single files that this dataset reads are images \(.jpg, .*give one, or"
    ):
        create(tmp_path).read(tmp_path / "x.csv", 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda image: image[:-5], "the image is cut short, as its end is missing; remove the file, or download it"),
        (lambda image: image[: len(image) // 2], "the image is cut short"),
        (lambda image: b"", "the file is empty; remove"),
        (lambda image: b"<html>not found</html>", "not a JPEG, PNG, GIF or BMP file, as it begins with b'<html>no'"),
    ],
)
@pytest.mark.parametrize("encode", [tf.io.encode_png, tf.io.encode_jpeg])
def test_a_file_that_is_no_whole_image_is_named_before_a_training(tmp_path, encode, content, message):
    write(tmp_path / "a", 1, 2, 3)
    write(tmp_path / "b", 1, 2, 3, encode=encode)
    (file, *_) = sorted((tmp_path / "b").iterdir())
    image = file.read_bytes()
    file.write_bytes(content(image))
    with pytest.raises(DataError, match=f"^{file}: {message}"):
        create(tmp_path)
    (tmp_path / "a/0.png").write_bytes(b"no image")
    with pytest.raises(DataError, match="a/0.png: not a JPEG, .*; other broken images: 1$"):
        create(tmp_path)
    write(tmp_path / "a", 1)
    file.write_bytes(image + b"more than the image")
    source = create(tmp_path, test_every=2)
    assert len(all_of_test(source)["label"]) == 3


def test_files_are_not_looked_at_for_a_trained_model(tmp_path):
    write(tmp_path / "a", 1, 2)
    write(tmp_path / "b", 1, 2)
    options = ImageFolder.Options(height=4, width=4)
    facts = ImageFolder(options, data_dir=str(tmp_path)).facts
    (tmp_path / "a/0.png").write_bytes(b"no image")
    again = ImageFolder(options, data_dir=str(tmp_path), facts=Facts(facts.entries))
    assert again.num_train_examples == 3

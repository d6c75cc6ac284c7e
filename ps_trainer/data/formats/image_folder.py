"""Folders of images, one for each class."""

from __future__ import annotations

import dataclasses
import pathlib

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.data.formats import image_files
from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.decode_errors import fail, map_named
from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.data.pipeline.images import decode_image
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import DataError
from ps_trainer.options import option

SUFFIXES = (".jpg", ".jpeg", ".png")
SPLITS = ("train", "test")
MAX_NAME_BYTES = 2**27
"""Largest total size of the images' names; the names of a worker's shard become part of its graph."""


class ImageFolder(DataSource):
    """Images in folders of --data_dir, one folder for each class: JPEG and PNG files, resized.

    Batches: "image" float32 [B, height, width, channels] in 0..1; "label" int64 [B], the number of the folder in the
    order of the names, from 0. Files lie in `train/<class>/` and `test/<class>/`, or all in `<class>/`. In the second
    case the first image and every `test_every`-th after it are test examples. Folders inside a class are read as well.
    Files other than .jpg, .jpeg and .png are ignored.

    Examples are sorted by name, class after class, and training shuffles the names of a whole shard. Before a training
    one process looks at the first and last bytes of all images, for files that are no images or are cut
    short. Another image that cannot be decoded ends the run with an error that names it.

    Args:
        options: Size of the images and share of test examples.
        data_dir: Folder of the classes.
        facts: Facts about the folder. With recorded classes it may be missing, and folders of other classes are left
            out.

    Raises:
        DataError: The folder is missing, has fewer than two classes or a class without images, or test/ has a class
            that train/ does not have. A file is not an image, or its end is missing.

    Attributes:
        classes: Names of the folders; `classes[label]` is the class of an example.
    """

    takes_facts = True

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `ImageFolder`."""

        height: int = option(32, "height in pixels to resize images to", least=1)
        width: int = option(32, "width in pixels to resize images to", least=1)
        channels: int = option(3, "values per pixel: 1 grey, 3 colour, 4 colour and transparency", choices=(1, 3, 4))
        test_every: int = option(10, "without a folder test/, every n-th image is a test example", least=2)

    def __init__(self, options: Options, *, data_dir: str | None = None, facts: Facts | None = None):
        needs = "dataset image_folder needs --data_dir=<folder> with a folder of images for each class"
        self.facts = facts or Facts()
        self._folder = self.facts.folder(data_dir, needs).resolve()
        self._options = options
        splits = SPLITS if all((self._folder / split).is_dir() for split in SPLITS) else (".",)
        # A label is a place in this list, so a model keeps the list that it was trained with.
        self.classes = self.facts.remember("classes", None, lambda: _classes(self._folder / splits[0]))
        is_there = any((self._folder / split / name).is_dir() for split in splits for name in self.classes)
        self._examples: dict[str, list[tuple[str, int]]] = {split: [] for split in SPLITS}
        if is_there:
            found = [self._images(split) for split in splits]
            train, test = found if len(found) > 1 else _split_images(found[0], options.test_every)
            self._examples = {"train": train, "test": test}
            if not self.facts.is_recorded:
                self._check_files()
        counts = [len(self._examples[split]) for split in SPLITS]
        self._counts = self.facts.remember("images", None, lambda: counts, is_there=is_there)
        num_bytes = sum(len(path.encode()) for images in self._examples.values() for path, _ in images)
        if num_bytes > MAX_NAME_BYTES:
            raise DataError(
                f"{self._folder}: the names of its images have {num_bytes} bytes, but at most {MAX_NAME_BYTES} are"
                " allowed, because they become part of the graph; write the images into TFRecord files and use"
                " dataset tfrecord"
            )
        self.num_classes = len(self.classes)
        self.class_names = tuple(self.classes)
        self.image_shape = (options.height, options.width, options.channels)

    @property
    def num_train_examples(self) -> int:
        """Number of training examples, of all workers together."""
        return int(self._counts[0])

    @property
    def num_test_examples(self) -> int:
        """Number of test examples."""
        return int(self._counts[1])

    def _records(self, split: str, shard: Shard) -> tf.data.Dataset:
        # Names of this shard only, and relative to the folder, because they become part of the graph.
        examples = self._examples[split][shard.index :: shard.count]
        return tf.data.Dataset.from_tensor_slices(
            {
                # The type is given, because an empty list would become float32.
                "path": tf.constant([path for path, _ in examples], tf.string),
                "label": tf.constant([label for _, label in examples], tf.int64),
            }
        ).map(lambda record: {**record, "path": tf.strings.join([f"{self._folder}/", record["path"]])})

    def _load(self, records: tf.data.Dataset) -> tf.data.Dataset:
        size = (self._options.height, self._options.width, self._options.channels)

        def decode(record: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return {"image": decode_image(tf.io.read_file(record["path"]), *size), "label": record["label"]}

        def name_it(record: dict[str, tf.Tensor]) -> tf.Operation:
            return fail(record["path"], ": cannot be decoded as an image; remove it, or download it again")

        return map_named(records, decode, name_it)

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return batch

    def _check_files(self) -> None:
        """Raises DataError if a file is not an image, or its end is missing."""
        paths = sorted(self._folder / path for images in self._examples.values() for path, _ in images)
        marks = [(str(path), status.st_size, status.st_mtime_ns) for path in paths for status in [path.stat()]]
        num_bytes = sum(size for _, size, _ in marks)
        faults = self.facts.once(["images", marks], lambda: image_files.faults_of(paths), num_bytes=num_bytes)
        if faults:
            more = f"; other broken images: {len(faults) - 1}" if len(faults) > 1 else ""
            raise DataError(f"{faults[0]}; remove the file, or download it again{more}")

    def _images(self, split: str) -> list[tuple[str, int]]:
        """Lists paths, relative to the dataset's folder, and labels of the images in the folders of the classes."""
        images = []
        for label, name in enumerate(self.classes):
            of_class = self._folder / split / name
            paths = sorted(path for path in of_class.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
            if not paths and split != "test" and not self.facts.is_recorded:
                raise DataError(
                    f"{of_class} has no {', '.join(SUFFIXES)}; add images of this class, or remove the folder"
                )
            images += [(str(path.relative_to(self._folder)), label) for path in paths]
        if unknown := sorted(set(_folders(self._folder / split)) - set(self.classes)):
            if not self.facts.is_recorded:
                raise DataError(f"{self._folder / split}: train/ has no class {', '.join(unknown)}")
            logging.warning("%s: the trained model has no class %s", self._folder / split, ", ".join(unknown))
        if not images and not self.facts.is_recorded:
            raise DataError(f"{self._folder / split} has no images; add some, or remove the folder")
        return images


def _split_images(
    images: list[tuple[str, int]], test_every: int
) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Returns the training images and the test images."""
    return [image for at, image in enumerate(images) if at % test_every], images[::test_every]


def _classes(folder: pathlib.Path) -> list[str]:
    names = _folders(folder)
    if len(names) < 2:
        raise DataError(
            f"{folder} has {len(names)} folders; it must have a folder of images for each class, at least 2"
        )
    return names


def _folders(folder: pathlib.Path) -> list[str]:
    """Lists the names of the folders inside a folder, sorted, without hidden ones."""
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))

"""TFRecord files of `tf.train.Example`, read with a specification of their features."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from google.protobuf.message import DecodeError

from ps_trainer.data.formats.record_file import record_file, records_of
from ps_trainer.data.formats.tfrecord_features import KINDS, Feature, parse_feature
from ps_trainer.data.pipeline.decode_errors import fail, map_named, map_with_context
from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.data.pipeline.file_source import CountedFile, FileSource
from ps_trainer.data.pipeline.images import decode_image, scale_image
from ps_trainer.errors import DataError, OptionError
from ps_trainer.options import option

SHUFFLED_RECORDS = 2**14
"""Size of the shuffle buffer in records; a smaller shard is shuffled as a whole."""

_CLASS = ("label", "int64", ())  # name, kind and shape of a feature that may be the class
_MAX_CLASSES = 2**20  # larger labels are something else, such as identifiers
_IMAGE = "image/"  # prefix of the names of decoded images in a record


class TfRecord(FileSource):
    """Examples from TFRecord files of tf.train.Example in --data_dir, with a specification of their features.

    Each feature is written `[name=]key:kind[shape]`: `key` is its name in the Example, and `name` its name in the
    batch, by default the same. The kinds:

        int64[3x2]          int64 [B, 3, 2]; without a shape [B]
        float32[*]          float32 [B, M], for any number of values, padded with 0; int64[*] likewise
        bytes               string [B]
        uint8[28x28x1]      raw bytes, converted to float32 [B, 28, 28, 1] in 0..1
        image[224x224x3]    a JPEG, PNG, GIF or BMP file, resized, float32 [B, 224, 224, 3] in 0..1

    These options read ImageNet's files, whose labels are 1 to 1,000:

        features=image=image/encoded:image[224x224x3],label=image/class/label:int64  num_classes=1001
        train_files=train-*  test_files=validation-*

    Files may be compressed with gzip. The constructor checks the lengths of all records. Reading a record checks its
    checksum and content, and the error names a broken record.

    Args:
        options: Features and the names of the files.
        data_dir: Folder of the files.
        facts: Facts about the files.

    Raises:
        DataError: The folder or a file is missing, or a file is truncated or not a TFRecord file.
    """

    takes_facts = True

    max_shuffled = SHUFFLED_RECORDS

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `TfRecord`."""

        features: tuple[str, ...] = option((), "[name=]key:kind[shape] of each feature, such as label:int64")
        train_files: tuple[str, ...] = option(("*.tfrecord*",), "names or patterns of the files to train on")
        test_files: tuple[str, ...] = option(
            (),
            "names or patterns of the files to test on, not used for training; default: a part of the training files",
        )
        test_every: int = option(10, "without test_files, every n-th record is a test example", least=2)
        num_classes: int | None = option(
            None,
            "number of classes, if the feature named label is a class; default: one more than the largest label, for"
            " which all files are read once",
            least=1,
        )

        def __post_init__(self) -> None:
            if not self.features:
                raise OptionError(
                    "features is not given; name them, for example features=image:uint8[28x28x1],label:int64 (kinds:"
                    f" {', '.join(KINDS)})"
                )
            features = [parse_feature(text) for text in self.features]
            for field in ("name", "key"):
                given = [getattr(feature, field) for feature in features]
                if len(set(given)) < len(given):
                    raise OptionError(f"features={','.join(self.features)}: a {field} occurs twice; give it once")

    def __init__(self, options: Options, *, data_dir: str | None = None, facts: Facts | None = None):
        self.facts = facts or Facts()
        self._features = [parse_feature(text) for text in options.features]
        patterns = [*options.train_files, *options.test_files]
        folder = self.facts.folder(data_dir, f"dataset tfrecord needs --data_dir=<folder> with {', '.join(patterns)}")
        find_names = functools.partial(self.facts.remember, "files", patterns, lambda: _names(folder, options))
        try:
            names = find_names(is_there=True)
        except DataError:  # raised once more, unless a trained model knows the names of files that are gone
            names = find_names()
        train, test = ([self._count_once(folder / name) for name in of_split] for of_split in names)
        super().__init__(train, test, test_every=options.test_every)
        self.num_classes = options.num_classes or self._count_classes([*train, *test])

    def _count_classes(self, files: Sequence[CountedFile]) -> int | None:
        """Returns one more than the largest label of all files; None if labels are no classes, or not readable."""
        labels = [feature for feature in self._features if (feature.name, feature.kind, feature.shape) == _CLASS]
        if not labels:
            return None
        (label,) = labels
        largest = []
        for file in files:
            count = functools.partial(_largest_label, file, label)
            largest.append(self.facts.find(f"labels {file.path}", [file.path], label.key, count, follows_files=True))
        return None if None in largest else 1 + max(largest)

    def _count_once(self, path: pathlib.Path) -> CountedFile:
        """Returns a file of the dataset, which one process goes through for all."""

        def count() -> list[Any]:
            file = record_file(path)
            return [str(file.path), file.num_records, file.is_packed]

        resolved, num_records, is_packed = self.facts.of_file(path, ["records"], count)
        return CountedFile(pathlib.Path(resolved), num_records, is_packed=is_packed)

    def _count_file(self, path: pathlib.Path) -> CountedFile:
        return record_file(path)

    def _open(self, path: tf.Tensor, compression: tf.Tensor, file: tf.Tensor) -> tf.data.Dataset:
        """Reads the records up to the first broken one, whose place the error then names.

        TensorFlow's own error about a wrong checksum does not tell the number of the record. So the records are read
        until the first error, which `ignore_errors` turns into the end; a last element then counts those read, and
        fails if somebody asks for it: the caller takes exactly the records that the file should have.
        """

        def read() -> tf.data.Dataset:
            # If the file cannot be opened, `ignore_errors` never ends; reading one byte fails before that.
            head = tf.data.FixedLengthRecordDataset(path, record_bytes=1).take(1)
            return head.flat_map(lambda _: tf.data.TFRecordDataset(path, compression_type=compression).ignore_errors())

        def name_it(_: tf.Tensor) -> dict[str, tf.Tensor]:
            num_read = read().reduce(np.int64(0), lambda count, _: count + 1)
            problem = ": its checksum is wrong; the file is damaged: download it again"
            with tf.control_dependencies([fail(self._place(file, num_read), problem)]):
                return {"record": tf.constant("")}

        return read().map(lambda record: {"record": record}).concatenate(tf.data.Dataset.from_tensors(0).map(name_it))

    def _load(self, records: tf.data.Dataset) -> tf.data.Dataset:
        images = [feature for feature in self._features if feature.kind == "image"]
        if not images:
            return records
        keys = " or ".join(feature.key for feature in images)

        def decode(record: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            files = tf.io.parse_single_example(record["record"], {feature.key: feature.parsing for feature in images})
            decoded = {feature.name: decode_image(files[feature.key], *feature.sizes) for feature in images}
            return record | {_IMAGE + name: image for name, image in decoded.items()}

        def name_it(record: dict[str, tf.Tensor]) -> tf.Operation:
            return fail(self._place(record["file"], record["at"]), f": {keys} cannot be decoded as an image")

        return map_named(records, decode, name_it)

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        images = {feature.name: batch[_IMAGE + feature.name] for feature in self._features if feature.kind == "image"}
        rest = [feature for feature in self._features if feature.name not in images]
        if not rest:
            return images

        def parse(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            place_B = self._place(batch["file"], batch["at"])
            specs = {feature.key: feature.parsing for feature in rest}
            parsed = tf.io.parse_example(batch["record"], specs, example_names=place_B)
            return {feature.name: self._values(feature, parsed[feature.key], place_B) for feature in rest}

        records = {name: batch[name] for name in ("record", "file", "at")}
        return images | map_with_context(parse, records, self._check_examples)

    def _values(self, feature: Feature, value: tf.Tensor, place_B: tf.Tensor) -> tf.Tensor:
        if feature.kind != "uint8":
            return value
        num_bytes = int(np.prod(feature.sizes))
        is_right_B = tf.equal(tf.strings.length(value), num_bytes)
        first = place_B[tf.argmin(tf.cast(is_right_B, tf.int32))]
        size = f"{num_bytes} bytes, the size of shape {feature.shape}"
        problem = tf.strings.join([first, f": feature {feature.key} must have {size}"])
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(is_right_B), [problem])]):
            # The static batch size in training; -1 where the last batch may be smaller.
            raw = tf.reshape(tf.io.decode_raw(value, tf.uint8), [value.shape[0] or -1, *feature.sizes])
        return scale_image(raw, 1 / 255)

    def _check_examples(self, batch: dict[str, tf.Tensor]) -> tf.Operation:
        """Builds an op that fails on the first record that is not an Example: the parser does not tell its place."""

        def parse(at: tf.Tensor, record: tf.Tensor) -> tf.Tensor:
            # The feature does not exist, so its size is 0; parsing the record for it is what may fail.
            none = tf.io.parse_single_example(record, {"/none": tf.io.VarLenFeature(tf.int64)})["/none"]
            return at + tf.size(none.values, out_type=tf.int64)

        readable = tf.data.Dataset.from_tensor_slices(batch["record"]).enumerate().map(parse).ignore_errors()
        # Numbers of readable records: the first number missing in 0, 1, 2, … is the first broken record's.
        first = readable.reduce(np.int64(0), lambda first, at: first + tf.cast(tf.equal(at, first), tf.int64))
        places_B = tf.concat([self._place(batch["file"], batch["at"]), [""]], axis=0)
        problem = tf.strings.join([places_B[first], ": is not a tf.train.Example; is it the right file?"])
        return tf.debugging.Assert(tf.equal(first, tf.size(batch["record"], out_type=tf.int64)), [problem])


def _largest_label(file: CountedFile, label: Feature) -> int | None:
    """Reads one file; returns None if a record is broken, which the error of a step names, or if labels are no classes.

    It opens no session: the first one of a process fixes its number of threads, and that is the server's.
    """
    largest = 0
    for record in records_of(file):
        try:
            values = tf.train.Example.FromString(record).features.feature[label.key].int64_list.value
        except DecodeError:
            return None
        if len(values) != 1 or not 0 <= values[0] < _MAX_CLASSES:
            return None
        largest = max(largest, values[0])
    return largest


def _names(folder: pathlib.Path, options: TfRecord.Options) -> list[list[str]]:
    """Returns the names of the training files and of the test files, relative to the folder."""
    test = _matching(folder, options.test_files)
    train = [path for path in _matching(folder, options.train_files) if path not in test]
    if not train:
        raise DataError(
            f"{folder}: every file of train_files={','.join(options.train_files)} is a test file as well;"
            " change train_files or test_files"
        )
    return [[str(path.relative_to(folder)) for path in paths] for paths in (train, test)]


def _matching(folder: pathlib.Path, patterns: tuple[str, ...]) -> list[pathlib.Path]:
    """Finds the files of all patterns, sorted by name; raises DataError if a pattern has none."""
    found: set[pathlib.Path] = set()
    for pattern in patterns:
        try:
            paths = [path for path in folder.glob(pattern) if path.is_file()]
        # An absolute pattern raises NotImplementedError, which is a RuntimeError.
        except (ValueError, RuntimeError) as error:
            raise DataError(f"{pattern!r} is not a pattern of names in {folder}: {error}") from error
        if not paths:
            raise DataError(f"{folder} has no file {pattern}; name others by train_files or test_files")
        found.update(paths)
    return sorted(found)

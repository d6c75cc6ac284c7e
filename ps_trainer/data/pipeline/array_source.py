"""Datasets in memory: examples from NumPy arrays, and the limit on their size."""

from __future__ import annotations

import pathlib
import zipfile
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.images import scale_image
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import DataError, OptionError

MAX_ARRAY_BYTES = 32 * 2**20
"""Largest size of a split's arrays: they become part of the graph, and each checkpoint and events file holds a copy."""


class ArraySource(DataSource):
    """Examples from NumPy arrays in memory.

    The arrays of a shard become constants of the graph, so their size is limited (`MAX_ARRAY_BYTES`). A dataset of
    more bytes reads files, as `ps_trainer.data.formats.mnist` does.

    Args:
        train: Arrays [examples, ...] of the training examples, by name. The model gets a uint8 "image"
            [examples, H, W, C] as float32, multiplied by `image_scale`, and all other arrays as they are.
        test: Arrays of the test examples, with the same names.
        num_classes: Number of classes of "label", or None.
        image_scale: Factor that brings a pixel into 0..1.

    Attributes:
        arrays: The arrays given, by split, "train" or "test".

    Raises:
        DataError: The arrays differ in length, the names in `test` differ, a split has no example, or the arrays are
            too large.
    """

    def __init__(
        self,
        train: Mapping[str, np.ndarray],
        test: Mapping[str, np.ndarray],
        *,
        num_classes: int | None,
        image_scale: float = 1 / 255,
    ):
        if set(train) != set(test):
            raise DataError(
                f"the training arrays are {sorted(train)}, but the test arrays {sorted(test)}; give both the same names"
            )
        self.arrays = {"train": dict(train), "test": dict(test)}
        self._lengths = {split: _common_length(split, arrays) for split, arrays in self.arrays.items()}
        self._image_scale = image_scale
        self.num_classes = num_classes
        image = train.get("image", np.zeros([]))
        label = train.get("label", np.zeros([]))
        if label.ndim == 1 and label.dtype.kind in "iu" and label.min() >= 0:
            self.label_shares = tuple(np.bincount(label) / len(label))
        # A table of numbers in the form of an image has one row.
        if image.ndim == 4 and image.dtype == np.uint8:
            self.image_shape = (*image.shape[1:3], image.shape[3])

    @property
    def num_train_examples(self) -> int:
        """Number of training examples, of all workers together."""
        return self._lengths["train"]

    @property
    def num_test_examples(self) -> int:
        """Number of test examples."""
        return self._lengths["test"]

    def _records(self, split: str, shard: Shard) -> tf.data.Dataset:
        # Cut in NumPy, so that the graph holds only this worker's shard.
        arrays = self.arrays[split]
        return tf.data.Dataset.from_tensor_slices({k: v[shard.index :: shard.count] for k, v in arrays.items()})

    def _read_file(self, path: pathlib.Path) -> tf.data.Dataset:
        """Reads a NumPy archive (.npz) with arrays like those of the training examples; "label" may be missing."""
        return tf.data.Dataset.from_tensor_slices(_load_archive(path, self.arrays["train"]))

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        # Pixels stay bytes up to here: in the graph and in the shuffle buffer they take a quarter of the space.
        if "image" not in batch or batch["image"].dtype != tf.uint8:
            return batch
        return {**batch, "image": scale_image(batch["image"], self._image_scale)}


def check_bytes(num_bytes: int, names: str) -> None:
    """Raises OptionError if generated examples take more memory than `ArraySource` allows.

    Args:
        num_bytes: Size of the larger of the two splits.
        names: Options to lower, in words.
    """
    if num_bytes > MAX_ARRAY_BYTES:
        raise OptionError(
            f"the examples take {num_bytes} bytes, but at most {MAX_ARRAY_BYTES} are allowed; lower {names}"
        )


def _load_archive(path: pathlib.Path, like: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Loads an .npz file, checks the types and shapes of its arrays against `like`, and adds a missing "label" as 0."""
    arrays = _read_arrays(path, list(like))
    for name, array in arrays.items():
        if array.dtype != like[name].dtype or array.shape[1:] != like[name].shape[1:]:
            wanted, got = (f"{one.dtype} [examples, {str(one.shape[1:])[1:-1]}]" for one in (like[name], array))
            raise DataError(f"{path}: array {name!r} is {got}; it must be {wanted}")
    if "label" in like and "label" not in arrays:
        length = len(next(iter(arrays.values()), []))
        arrays["label"] = np.zeros([length, *like["label"].shape[1:]], like["label"].dtype)
    _common_length(str(path), arrays)
    return arrays


def _read_arrays(path: pathlib.Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Returns the arrays of an .npz file that have these names; only "label" may be missing."""
    needed = [name for name in names if name != "label"]
    form = f"a NumPy archive (.npz) with {', '.join(needed)}{', and label if known' if 'label' in names else ''}"
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise DataError(f"{path} is not {form}; write one with numpy.savez")
        with np.load(path) as archive:
            if missing := set(needed) - set(archive.files):
                raise DataError(f"{path} has no array {min(missing)!r}; it must be {form}")
            arrays = {name: archive[name] for name in names if name in archive.files}
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        # NumPy's words for an array of Python objects advise an option that would run code from the file.
        raise DataError(f"{path} is damaged, or holds more than numbers; write it again with numpy.savez") from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise DataError(f"{path}: {name!r} is not an array; write the file with numpy.savez")
    return arrays


def _common_length(split: str, arrays: Mapping[str, np.ndarray]) -> int:
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) != 1 or 0 in lengths.values():
        raise DataError(f"the {split} arrays must have the same number of examples, at least 1; got {lengths}")
    num_bytes = sum(array.nbytes for array in arrays.values())
    if num_bytes > MAX_ARRAY_BYTES:
        raise DataError(
            f"the {split} arrays have {num_bytes} bytes, but at most {MAX_ARRAY_BYTES} are allowed,"
            " because the arrays become part of the graph; use fewer or smaller examples, or read them from files"
        )
    return next(iter(lengths.values()))

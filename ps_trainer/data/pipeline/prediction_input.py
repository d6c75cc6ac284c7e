"""`PredictionInput`: the side of a dataset that reads examples to predict for, from single files, lines and texts."""

from __future__ import annotations

import abc
import pathlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer import component_tables
from ps_trainer.data.pipeline import images
from ps_trainer.data.pipeline.unfamiliar_input import UnfamiliarInput
from ps_trainer.data.pipeline.without_autograph import without_autograph
from ps_trainer.errors import DataError

NUM_PLACES = "num_places"
"""Key in batches of `PredictionInput.read`, int [B]: places that the file fills; fewer than all only at its end."""

IS_CUT = "is_cut"
"""Key in batches of `PredictionInput.read`, bool [B]: whether an example was too long, so that its end is missing."""

SOUND_SUFFIX = ".wav"


class ContentDecoder(NamedTuple):
    """A decoder of the content of a checked file.

    Attributes:
        form: All other values on which `decode` depends; with equal ones, its ops serve another file, too.
        decode: Function that builds the ops from the content, string [], to a batch of all examples.
        problem: What the name of a file is followed by in the message if the ops fail.
    """

    form: Hashable
    decode: Callable[[tf.Tensor], dict[str, tf.Tensor]]
    problem: str = ""


class PredictionInput(abc.ABC):
    """Examples that are in no split of the data: those of one more file, or of texts that a program has.

    A dataset that reads single files gives their examples in `_read_file`. Its batches have the form of its test data.

    Attributes:
        image_shape: Height, width and channels of "image"; None if the examples are not images.
        reads_lines: Whether each line of a file for `read` is an example, or a separate text.
        reads_rows: Whether the dataset has `row_texts`.
        row_columns: Names of the columns that a row needs; it may have others.
        reads_sounds: Whether `read` reads WAV files.
        num_header_lines: Number of lines before the first example in a file of lines.
        num_places: Number of words or characters of an example that is cut from a longer text, for models that predict
            something at each. None for other examples.
        of_any_length: Names of the tensors whose second dimension may be larger in a single file than in the test data.
        text_inputs: Names of the texts that `from_texts` takes; empty if the dataset makes no batch of texts.
        unfamiliar: What `read` has found that the training data lack; None if the dataset does not look for it.
    """

    image_shape: tuple[int, int, int] | None = None
    reads_lines: bool = False
    reads_rows: bool = False
    row_columns: tuple[str, ...] = ()
    reads_sounds: bool = False
    num_header_lines: int = 0
    num_places: int | None = None
    of_any_length: tuple[str, ...] = ()
    text_inputs: tuple[str, ...] = ()
    unfamiliar: UnfamiliarInput | None = None

    @abc.abstractmethod
    def _batches(self, records: tf.data.Dataset, batch_size: int, *, drop_remainder: bool) -> tf.data.Dataset:
        """Returns the decoded batches of some records."""

    @without_autograph
    def read(self, path: pathlib.Path, batch_size: int) -> tf.data.Dataset:
        """Returns every example of another file in this dataset's format, in file order; the last batch may be smaller.

        Args:
            path: Path of the file; for a dataset of images, one image file will do as well.
            batch_size: Number of examples per batch.

        Returns:
            Batches like those of `test`. Labels that the file does not have are 0. Two more entries may tell which
            places of an example are padding (`NUM_PLACES`) and which examples were cut (`IS_CUT`).

        Raises:
            DataError: The file cannot be read, or the dataset does not read single files.
        """
        self._check_suffix(path)
        if path.suffix.lower() in images.IMAGE_SUFFIXES and self.image_shape is not None:
            if not path.is_file():
                raise DataError(f"{path}: no such file")
            return images.image_file(path, *self.image_shape)
        return self._batches(self._read_file(path), batch_size, drop_remainder=False)

    def content_decoder(self, path: pathlib.Path) -> ContentDecoder | None:
        """Checks a file that `read` can read, and returns how to decode its content, or None if only `read` can do it.

        Raises:
            DataError: The file is wrong, or the dataset does not read such files.
        """
        self._check_suffix(path)
        shape = self.image_shape
        if shape is None or path.suffix.lower() not in images.IMAGE_SUFFIXES:
            return None
        return ContentDecoder("image", lambda content: images.decode_batch(content, *shape), images.PROBLEM)

    def _check_suffix(self, path: pathlib.Path) -> None:
        """Raises DataError for an image or a sound, if the dataset does not read such files."""
        suffix = path.suffix.lower()
        is_image = suffix in images.IMAGE_SUFFIXES
        if (is_image and self.image_shape is None) or (suffix == SOUND_SUFFIX and not self.reads_sounds):
            kind = "an image" if is_image else "a sound"
            name = component_tables.DATASETS.name_of(self)
            raise DataError(f"{path} is {kind}, which dataset {name} does not read; give a file in its format")

    def from_texts(self, texts: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Builds the ops from texts to a batch without labels, for programs that have no files and no Python.

        Args:
            texts: Text of each of `text_inputs`, string [B], by name.

        Raises:
            NotImplementedError: The dataset has no `text_inputs`.
        """
        raise NotImplementedError(f"dataset {component_tables.DATASETS.name_of(self)} makes no batch of texts")

    def row_texts(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
        """Checks rows, and returns the text of each of them for each of `text_inputs`.

        Args:
            rows: Values by the names of their columns, as JSON has them.

        Raises:
            DataError: A row is wrong; the message names it as an instance, from 0.
            NotImplementedError: The dataset does not read rows.
        """
        raise NotImplementedError(f"dataset {component_tables.DATASETS.name_of(self)} reads no rows")

    def as_lines(self, records: Sequence[Any]) -> tuple[list[bytes], list[bytes]]:
        """Returns the header lines and a line for each record, for a file that `read` can read.

        Raises:
            DataError: A record is not a line.
        """
        for number, record in enumerate(records):
            if not isinstance(record, str):
                raise DataError(f"instance {number} is not a text; send a plain string")
            if "\n" in record and not self.num_places:
                raise DataError(f"instance {number} is not one line of text")
        return self._header_lines_of(records), [record.encode(errors="surrogatepass") for record in records]

    def _header_lines_of(self, records: Sequence[str]) -> list[bytes]:
        """Returns the header lines that suit some lines."""
        del records
        return []

    def _read_file(self, path: pathlib.Path) -> tf.data.Dataset:
        """Returns the examples of a single file, in the form of `_records`."""
        raise self._no_single_file(path)

    def _no_single_file(self, path: pathlib.Path) -> DataError:
        fix = "put it where --data_dir has its test examples"
        if self.image_shape is not None:
            suffixes = ", ".join(images.IMAGE_SUFFIXES)
            return DataError(
                f"{path}: the only single files that this dataset reads are images ({suffixes}); give one, or {fix}"
            )
        return DataError(f"{path}: this dataset does not read single files; {fix}")

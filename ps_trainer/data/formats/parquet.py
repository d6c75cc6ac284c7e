"""Tables in Parquet files, with a column of labels."""

from __future__ import annotations

import copy
import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.formats.csv_table import Csv
from ps_trainer.data.pipeline import parquet_rows, table_rows
from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.data.pipeline.file_source import CountedFile
from ps_trainer.data.pipeline.table_columns import CATEGORY, Columns, numbers_in
from ps_trainer.data.pipeline.table_options import ColumnOptions
from ps_trainer.errors import DataError
from ps_trainer.options import option


class Parquet(Csv):
    """Tables in Parquet files with numbers, categories and a column of labels, from --data_dir.

    Reading needs pyarrow: `pip install 'ps_trainer[parquet]'`. The batches are those of `csv`, in the same three forms
    (`form=vector`, `sparse` or `columns`). Kinds of columns follow from the types in the file. Integers, floats,
    decimals, dates, times and durations are numbers: seconds, for a date or timestamp since 1970, for a time since
    midnight. Texts, Booleans and dictionaries are categories. Lists and structs must be ignored. Nulls and NaN are
    missing.

    A worker reads one row group at a time. `predict` and `serve` also take rows as CSV with a header.

    Args:
        options: Names of the files, and what the columns hold.
        data_dir: Folder of the files.
        facts: Facts about the files.

    Raises:
        DataError: The package pyarrow, a file or a named column is missing. A file is not a Parquet file, or a value
            does not fit its column.
    """

    name = "parquet"
    record_name = "row"
    have_line_ends = True

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(ColumnOptions):
        """Options of `Parquet`."""

        train_files: tuple[str, ...] = option(("train.parquet",), "names of the files to train on")
        label: str | None = option(None, "name of the column of labels")

        def count_file(self, path: pathlib.Path, facts: Facts) -> CountedFile:
            """Checks a file, and counts its rows."""

            def count() -> list[Any]:
                return [str(path.resolve()), parquet_rows.num_rows(path)]

            resolved, number = facts.of_file(path, ["rows"], count)
            return CountedFile(pathlib.Path(resolved), number)

    def __init__(self, options: Options, *, data_dir: str | None = None, facts: Facts | None = None):
        self._reads_parquet = True
        super().__init__(options, data_dir=data_dir, facts=facts)
        self.num_header_lines = 1  # of lines to predict for, which are CSV

    def _header_of(self, path: pathlib.Path) -> list[str]:
        return parquet_rows.names_of(path) if self._reads_parquet else super()._header_of(path)

    def _chunks_of(self, path: pathlib.Path) -> Iterator[table_rows.Chunk]:
        if not self._reads_parquet:
            return super()._chunks_of(path)
        label = str(self._options.label)
        if not self._is_learned:
            return parquet_rows.chunks(path, self._names, self._options.kinds(), label, wanted=self._names)
        wanted = {label, *self._features.numbers, *self._features.categories}
        is_to_predict = bool(self._dialect.trained_names)
        return parquet_rows.chunks(
            path, self._names, self.columns.kinds, label, wanted=wanted, is_to_predict=is_to_predict
        )

    def _known_kinds(self, path: pathlib.Path) -> dict[str, str]:
        return dict.fromkeys(parquet_rows.texts_of(path), CATEGORY) | self._options.kinds()

    def _find_columns(self, train: Sequence[CountedFile], test: Sequence[CountedFile]) -> Columns:
        columns = super()._find_columns(train, test)
        of_run = self._options.columns_of is not None
        return columns if of_run else columns._replace(times=parquet_rows.times_of(train[0].path))

    def _names_of(self, path: pathlib.Path) -> list[str]:
        names = super()._names_of(path)
        if self._reads_parquet and (trained := self.columns.times) is not None:
            numbers = set(self._features.numbers).difference(trained)
            if wrong := [name for name in parquet_rows.times_of(path) if name in numbers]:
                raise DataError(
                    f"{path}: column {wrong[0]!r} has dates or times, but plain numbers in the training files; write it"
                    " as there"
                )
        return names

    def _with_header(self, file: CountedFile) -> CountedFile:
        return file if self._reads_parquet else super()._with_header(file)

    def _to_predict(self, path: pathlib.Path) -> Parquet:
        """Returns a copy that reads a file to predict for: Parquet, or rows as CSV."""
        other = copy.copy(self)
        other._reads_parquet = table_rows.is_parquet(path)
        return super(Parquet, other)._to_predict(path)

    def _count_file(self, path: pathlib.Path) -> CountedFile:
        if not self._reads_parquet:
            return super()._count_file(path)
        self._check_rows(path)
        return self._options.count_file(path, Facts())

    def _records_of(
        self, file: tf.Tensor, is_chosen: Callable[[tf.Tensor], tf.Tensor] = lambda at: tf.ones_like(at, tf.bool)
    ) -> tf.data.Dataset:
        if not self._reads_parquet:
            return super()._records_of(file, is_chosen)
        text, features = tf.TensorSpec([None], tf.string), self._features
        # Columns without a member are left out: TensorFlow 2.21 crashes in `unbatch` of a tensor without elements.
        signature = {
            "at": tf.TensorSpec([None], tf.int64),
            **({"numbers": tf.TensorSpec([None, len(features.numbers)], tf.float64)} if features.numbers else {}),
            **({"words": tf.TensorSpec([None, len(features.categories)], tf.string)} if features.categories else {}),
            **({"label": text} if self.columns.label in self._names else {}),
        }
        chunks = tf.data.Dataset.from_generator(self._tensors, output_signature=signature, args=(self._path(file),))

        def choose(chunk: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            chosen = tf.where(is_chosen(chunk["at"]))[:, 0]
            kept = {name: tf.gather(value, chosen) for name, value in chunk.items()}
            return kept | {"file": tf.fill(tf.shape(chosen), file)}

        return chunks.map(choose).unbatch()

    def _tensors(self, path: bytes) -> Iterator[dict[str, np.ndarray]]:
        """Yields the rows of a file in chunks, as arrays."""
        name = pathlib.Path(path.decode())
        for chunk in self._chunks_of(name):
            first, columns = chunk.first, chunk.columns
            labels = columns.get(self.columns.label, [])
            numbers = [numbers_in(name, chunk, column, self._dialect) for column in self._features.numbers]
            words = [_as_bytes(columns[column]) for column in self._features.categories]
            count = len(next(iter([*numbers, *words])))
            yield {
                "at": np.arange(first, first + count),
                **({"numbers": np.stack(numbers, axis=1)} if numbers else {}),
                **({"words": np.stack(words, axis=1)} if words else {}),
                **({"label": _as_bytes(labels)} if self.columns.label in self._names else {}),
            }

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        if not self._reads_parquet:
            return super()._decode(batch)
        of = {name: batch["numbers"][:, at] for at, name in enumerate(self._features.numbers)}
        of |= {name: batch["words"][:, at] for at, name in enumerate(self._features.categories)}
        label_B = self._label(batch["label"], batch) if "label" in batch else tf.zeros_like(batch["at"])
        return {**self._features.tensors(of, tf.size(batch["at"])), "label": label_B}


def _as_bytes(texts: Any) -> np.ndarray:
    return np.array([text.encode(errors="surrogatepass") for text in texts], object)

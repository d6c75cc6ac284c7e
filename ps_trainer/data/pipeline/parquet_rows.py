"""Rows of a Parquet file, read by pyarrow one row group after the other, so that a file may be larger than the memory.

pyarrow is an extra of this package and is imported only when a file is read.
"""

from __future__ import annotations

import importlib
import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ps_trainer.data.pipeline.table_columns import CATEGORY, HASH, IGNORE
from ps_trainer.data.pipeline.table_rows import MAX_NUMBER, SPACES, Chunk, is_parquet
from ps_trainer.errors import DataError

CHUNK_ROWS = 2**12
"""Rows that are in memory as Python objects at a time."""

_SHOWN_TYPE = 40


def names_of(path: pathlib.Path) -> list[str]:
    """Returns the names of a file's columns.

    Raises:
        DataError: The file is not Parquet, or pyarrow is missing.
    """
    names = list(_open(path).schema_arrow.names)
    twice = [name for number, name in enumerate(names) if name in names[:number]]
    if twice:
        raise DataError(f"{path} has the column {twice[0]!r} twice; rename one of them")
    return names


def texts_of(path: pathlib.Path) -> list[str]:
    """Returns the names of the columns whose type is none of numbers, dates, times and durations."""
    arrow, schema = _library("pyarrow"), _open(path).schema_arrow
    return [field.name for field in schema if not _is_number(arrow, field.type)]


def times_of(path: pathlib.Path) -> list[str]:
    """Returns the names of the columns of dates, times and durations."""
    arrow, schema = _library("pyarrow"), _open(path).schema_arrow
    return [field.name for field in schema if _in_micros(arrow, field.type) is not None]


def nested_of(path: pathlib.Path) -> list[str]:
    """Returns the names of the columns of lists, structs and the like, which no model can use."""
    types, schema = _library("pyarrow").types, _open(path).schema_arrow
    return [field.name for field in schema if types.is_nested(field.type)]


def num_rows(path: pathlib.Path) -> int:
    """Returns the number of rows of a file, which its end tells.

    Raises:
        DataError: The file has no row, or is not Parquet, or pyarrow is missing.
    """
    if not (number := int(_open(path).metadata.num_rows)):
        raise DataError(f"{path}: the file has no row; is it the right file?")
    return number


def chunks(
    path: pathlib.Path,
    names: Sequence[str],
    kinds: Mapping[str, str],
    label: str,
    *,
    wanted: Collection[str],
    is_to_predict: bool = False,
) -> Iterator[Chunk]:
    """Yields all rows of a file.

    Columns of numbers, dates, times and durations become float64, if `kinds` does not say otherwise: seconds, for a
    date or timestamp since 1970, for a time since midnight. All other columns become texts: true and false for
    Booleans, an empty one for a null.

    Args:
        path: Path of the file.
        names: Names of its columns.
        kinds: Kinds of columns that are known, by name.
        label: Name of the column of labels, which are texts.
        wanted: Names of the columns to read; the others are empty.
        is_to_predict: Whether messages name no option, because the trained model needs the options of its training.

    Raises:
        DataError: A column has a type that is neither number nor text, or a value is infinite, or the file is damaged.
    """
    arrow, file = _library("pyarrow"), _open(path)
    read = [name for name in names if name in wanted and kinds.get(name) != IGNORE]
    types = {name: file.schema_arrow.field(name).type for name in read}
    for name in read:
        if arrow.types.is_nested(types[name]):  # lists, structs and the like
            raise _type_error(path, name, types[name], label, is_to_predict=is_to_predict)
    number = 0
    try:
        for batch in file.iter_batches(batch_size=CHUNK_ROWS, columns=read):
            columns: dict[str, list[str] | np.ndarray] = {name: [] for name in names}
            for name in read:
                is_text = name == label or kinds.get(name) in (CATEGORY, HASH)
                try:
                    columns[name] = _values(arrow, batch.column(batch.schema.get_field_index(name)), is_text=is_text)
                except arrow.lib.ArrowException as error:  # such as bytes that are no text
                    raise _type_error(path, name, types[name], label, is_to_predict=is_to_predict) from error
            chunk = Chunk(number, number + 1, columns, "row")
            _check_finite(path, chunk, is_to_predict=is_to_predict)
            yield chunk
            number += batch.num_rows
    except (arrow.lib.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def _open(path: pathlib.Path) -> Any:
    parquet, arrow = _library("pyarrow.parquet"), _library("pyarrow")
    if path.is_file() and not is_parquet(path):
        raise DataError(f"{path} is not a Parquet file; --dataset=csv reads a delimited text file")
    if path.is_file() and not path.stat().st_size:
        raise DataError(f"{path} is a Parquet file without content (0 bytes); write it again, or give another file")
    try:
        return parquet.ParquetFile(path)
    except (arrow.lib.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DataError(
            "Parquet files need pyarrow, which is not installed; run `pip install 'ps_trainer[parquet]'`"
        ) from error


def _type_error(path: pathlib.Path, name: str, arrow_type: Any, label: str, *, is_to_predict: bool) -> DataError:
    shown = str(arrow_type)
    shown = shown if len(shown) <= _SHOWN_TYPE else f"{shown[:_SHOWN_TYPE]}…"
    fix = f"leave it out with {_leave_out(name)}"
    if is_to_predict:
        fix = "write it as in the training files"
    elif name == label:
        fix = "write one class for each row there, or name another label with --dataset_option=label=<column>"
    return DataError(f"{path}: column {name!r} has the type {shown}, which is neither a number nor a text; {fix}")


def _values(arrow: Any, column: Any, *, is_text: bool) -> list[str] | np.ndarray:
    """Returns the values of a column as float64 [rows] or as texts."""
    types, cast = arrow.types, importlib.import_module("pyarrow.compute").cast
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    arrow_type = column.type
    if not is_text:
        if (in_micros := _in_micros(arrow, arrow_type)) is not None:
            return _floats(cast(cast(column, in_micros, safe=False), arrow.int64())) / 1e6
        if _is_number(arrow, arrow_type):
            return _floats(cast(column, arrow.float64(), safe=False))
    texts = column if types.is_string(arrow_type) else cast(column, arrow.string())
    # pandas turns whole numbers into floats where one is missing; their texts must not change by that.
    end = ".0" if types.is_floating(arrow_type) else ""
    return ["" if text is None else text.strip(SPACES).removesuffix(end) for text in texts.to_pylist()]


def _in_micros(arrow: Any, arrow_type: Any) -> Any:
    """Returns the type in microseconds for a type of dates, times or durations; None for other types."""
    types = arrow.types
    if types.is_date(arrow_type) or types.is_timestamp(arrow_type):
        return arrow.timestamp("us")
    if types.is_time(arrow_type):
        return arrow.time64("us")
    return arrow.duration("us") if types.is_duration(arrow_type) else None


def _is_number(arrow: Any, arrow_type: Any) -> bool:
    types = arrow.types
    is_number = types.is_integer(arrow_type) or types.is_floating(arrow_type) or types.is_decimal(arrow_type)
    return bool(is_number or _in_micros(arrow, arrow_type) is not None)


def _floats(column: Any) -> np.ndarray:
    return np.array(column.to_numpy(zero_copy_only=False), np.float64)


def _check_finite(path: pathlib.Path, chunk: Chunk, *, is_to_predict: bool) -> None:
    for name, values in chunk.columns.items():
        if isinstance(values, np.ndarray) and (is_large := np.abs(values) >= MAX_NUMBER).any():
            at = int(np.argmax(is_large))
            fix = "" if is_to_predict else f", or leave the column out with {_leave_out(name)}"
            raise DataError(
                f"{path}: {chunk.place(at)}: column {name!r} has {values[at]:g}, which is infinite as float32; correct"
                f" it{fix}"
            )


def _leave_out(name: str) -> str:
    return f"--dataset_option=columns={name}:{IGNORE}"

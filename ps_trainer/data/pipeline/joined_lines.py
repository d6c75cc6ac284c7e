"""Rows of a table that take several lines, because a value in quotes has line ends: each line end becomes a space.

Spreadsheets write such rows. A row goes on in the next line while its number of double quotes is odd.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence

import tensorflow.compat.v1 as tf

_CHUNK_LINES = 1024
_MAX_LINES_OF_ROW = 1000  # more mean a quote without its end, and the rest of the file would become one row


def join(line: str, more: Iterator[str]) -> tuple[str, int]:
    """Joins a line that has quotes with those in which its row goes on.

    Args:
        line: First line of the row.
        more: Lines after it, of which this function takes those of the row.

    Returns:
        The row, and the number of lines that were taken.
    """
    num_taken = 0
    while line.count('"') % 2 and num_taken < _MAX_LINES_OF_ROW and (after := next(more, None)) is not None:
        line = line.rstrip("\r\n") + " " + after
        num_taken += 1
    return line, num_taken


def as_line(text: str) -> str:
    """Returns a value with a space for each line end, as TensorFlow reads it, which drops other carriage returns."""
    return text.replace("\r", "").replace("\n", " ")


def as_line_op(text: tf.Tensor) -> tf.Tensor:
    """Builds the ops of `as_line` for string, any shape."""
    return tf.strings.regex_replace(tf.strings.regex_replace(text, "\r", ""), "\n", " ")


def line_of(row: int, joins: Sequence[int]) -> int:
    """Returns the number of the first line of a row.

    Args:
        row: Number of the row in the file, from 1.
        joins: Numbers of rows that go on in another line, once for each such line, in ascending order.
    """
    return row + bisect.bisect_left(joins, row)


def count(chunk: bytes, *, is_open: bool) -> tuple[int, bool]:
    """Counts the line ends inside double quotes.

    Args:
        chunk: Part of a file.
        is_open: Whether it begins inside quotes.

    Returns:
        The number, and whether the chunk ends inside quotes.
    """
    parts = chunk.split(b'"')
    inside = parts[not is_open :: 2]
    return sum(part.count(b"\n") for part in inside), is_open == bool(len(parts) % 2)


def rows_of(lines: tf.data.Dataset) -> tf.data.Dataset:
    """Turns the lines of a file, string [], into its rows, string [].

    It reads L lines at a time, with what the lines before them have of a row, and gives the R rows that end there.
    """

    def join_chunk(rest_R: tf.Tensor, line_L: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        line_L = tf.concat([rest_R, line_L], axis=0)
        num_quotes_L = tf.strings.length(tf.strings.regex_replace(line_L, '[^"]+', ""))
        is_last_L = tf.equal(tf.cumsum(num_quotes_L) % 2, 0)  # of its row
        row_L = tf.cumsum(tf.cast(is_last_L, tf.int32), exclusive=True)
        row_R = tf.strings.unsorted_segment_join(line_L, row_L, row_L[-1] + 1, separator=" ")
        num_whole = tf.math.count_nonzero(is_last_L)
        return row_R[num_whole:], row_R[:num_whole]

    return lines.batch(_CHUNK_LINES).scan(tf.zeros([0], tf.string), join_chunk).unbatch()

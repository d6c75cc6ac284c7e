"""Decodes records one by one, so that an error can name the record that cannot be decoded."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.errors import DataError

Record = dict[str, tf.Tensor]

_CHUNK_RECORDS = 16
_OF_ITERATOR = re.compile(r"Iterator::|IteratorGetNext")
_GONE = re.compile(r"(/[^;\n]*); No such file or directory")
_OF_TABLE = "embedding table "  # `models.layers.embedding`
_UNKNOWN_ID = re.compile(_OF_TABLE + r"(\S+) has the ids 0 to (\d+);.* of the batch: (-?\d+) (-?\d+)")
_OF_LABEL = re.compile(r"Received a label value of (\d+) which is outside the valid range of \[0, (\d+)\)")


def map_with_context(
    function: Callable[[Record], Record], record: Record, explain: Callable[[Record], tf.Operation]
) -> Record:
    """Returns `function(record)`. If the function's ops fail, runs `explain`, then the function again.

    An op that decodes an image or a sound says what is wrong with it, but does not name the file. `explain` adds the
    name. Everything runs in C++, inside a function that maps a dataset.

    Args:
        function: Function of a record or of a batch of records.
        record: Argument of the function.
        explain: Function that builds an op that fails with a message that names the record. If the op does not fail,
            the message of `function` reaches the user.
    """
    alone = tf.data.Dataset.from_tensors(record)
    tried = alone.map(function)  # the function's only trace

    def explained(record: Record) -> tf.data.Dataset:
        with tf.control_dependencies([explain(record)]):
            return tried.take(1)

    # A graph has no "try". A dataset whose only element fails is empty after `ignore_errors`, and then `take(1)` reads
    # the element of the dataset behind it.
    return tried.ignore_errors().concatenate(alone.flat_map(explained)).take(1).get_single_element()


def map_named(
    records: tf.data.Dataset, function: Callable[[Record], Record], explain: Callable[[Record], tf.Operation]
) -> tf.data.Dataset:
    """Does `records.map(function)`, in order and on all cores; `explain` names a record that fails.

    `map_with_context` costs more than the decoding of most records. So this function tries a chunk of records at
    once, and goes through them one by one only after an error. The result of `function` must have the same shape for
    all records.
    """

    def decode(chunk: Record) -> Record:
        decoded = tf.data.Dataset.from_tensor_slices(chunk).map(function)
        return decoded.batch(_CHUNK_RECORDS).get_single_element()

    def explain_first(chunk: Record) -> tf.Tensor:
        one_by_one = tf.data.Dataset.from_tensor_slices(chunk).map(lambda one: map_with_context(function, one, explain))
        return one_by_one.reduce(np.int64(0), lambda count, _: count + 1)

    chunks = records.batch(_CHUNK_RECORDS)
    decoded = chunks.map(
        lambda chunk: map_with_context(decode, chunk, explain_first), num_parallel_calls=tf.data.AUTOTUNE
    )
    return decoded.unbatch()


def fail(*message: tf.Tensor | str) -> tf.Operation:
    """Builds an op that fails; its message is the parts joined."""
    return tf.debugging.Assert(condition=False, data=[tf.strings.join(message)])


def problem_of(error: tf.errors.OpError) -> str:
    """Returns the loader's own message about a broken record, or TensorFlow's message for any other error."""
    said = re.search(r"assertion failed: \[(.*)\]$", error.message, re.MULTILINE)
    if said is None:
        return error.message
    # Numbers that an op adds to its message stand in separate brackets. It escapes quotes and backslashes.
    problem = re.sub(r"\] \[(-?\d+)(?=\] \[-?\d+$|$)", r" \1", said[1])
    return re.sub(r"""\\(["'\\])""", r"\1", problem)


class UnknownId(NamedTuple):
    """An id that a model's table does not have: the table's name and highest id, and the id."""

    table: str
    highest: int
    id: int


def unknown_id(error: tf.errors.OpError) -> UnknownId | None:
    """Returns the id because of which an op failed; None if it failed for another reason."""
    if (found := _UNKNOWN_ID.fullmatch(problem_of(error))) is None:
        return None
    highest, smallest_given, largest_given = map(int, found.group(2, 3, 4))
    return UnknownId(found[1], highest, largest_given if largest_given > highest else smallest_given)


def data_error(error: tf.errors.OpError) -> DataError | None:
    """Returns the error of a step as an error of the data, in one line; None if something else failed.

    The data are wrong if a loader rejects a record, a file is gone, or an id or label is too large for the model.
    """
    if isinstance(error, tf.errors.NotFoundError) and (gone := _GONE.search(error.message)):
        return DataError(
            f"{gone[1]}: no such file; it was there when the run began; if the files have moved, give"
            " --data_dir=<their folder>"
        )
    if not isinstance(error, tf.errors.InvalidArgumentError):
        return None
    problem = problem_of(error)
    # Not every failed assertion: one in a model of the user's own needs the traceback that names its line.
    if problem is not error.message and (_OF_ITERATOR.search(error.message) or problem.startswith(_OF_TABLE)):
        return DataError(problem)
    label = _OF_LABEL.search(error.message)
    if label is not None:
        return DataError(
            f"the data have the label {label[1]}, and the model has the classes 0 to {int(label[2]) - 1}; give the"
            f" model more classes (--model_option=num_classes={int(label[1]) + 1} or more), or correct the data"
        )
    return None

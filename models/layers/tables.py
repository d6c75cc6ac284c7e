"""Embedding tables.

Shape suffix: R distinct ids.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow.compat.v1 as tf

EMBEDDING_TABLES = "embedding_tables"
"""Collection of the tables that `embedding` makes; the parameter store keeps them as sparse tables."""

TABLE_LOOKUP = "table_lookup"
"""Collection of a function that stands for `tf.nn.embedding_lookup` while several devices build the model."""


def embedding(
    name: str,
    vocab_size: int,
    dim: int,
    ids: tf.Tensor,
    initializer: Callable[..., tf.Tensor] | None = None,
    *,
    size_option: str | None = None,
) -> tf.Tensor:
    """Looks up rows of a trainable table [vocab_size, dim], one per id.

    Each distinct id of the batch is looked up once. So with the table on parameter servers one row per distinct id
    travels to the worker, and one gradient row per distinct id travels back: the gradient of the table is a
    `tf.IndexedSlices` whose indices do not repeat.

    Args:
        name: Name of the table's variable.
        vocab_size: Number of rows.
        dim: Length of a row.
        ids: int32 or int64 of any shape, 0 <= id < vocab_size.
        initializer: Initializer of the table; None = normal with standard deviation dim ** -0.5.
        size_option: Name of the model's option that is `vocab_size`, for the message about an id out of range.

    Returns:
        float32, shape of `ids` + [dim].

    Raises:
        ValueError: `ids` are not int32 or int64.
        tf.errors.InvalidArgumentError: While the graph runs, if an id is out of range; the message names the table and
            the option.
            TensorFlow's own lookup does not name the table, and on a GPU it returns rows of zeros.
    """
    if ids.dtype not in (tf.int32, tf.int64):
        raise ValueError(f"embedding {name!r}: ids must be int32 or int64, got {ids.dtype.name}")
    table = tf.get_variable(
        name,
        [vocab_size, dim],
        # The length of a row is then about 1, whatever `dim` is.
        initializer=initializer or tf.truncated_normal_initializer(stddev=dim**-0.5),
        collections=[tf.GraphKeys.GLOBAL_VARIABLES, EMBEDDING_TABLES],
    )
    scope = tf.get_variable_scope().name
    with tf.name_scope(f"{name}_lookup"):
        ids_R, position = tf.unique(tf.reshape(ids, [-1]))
        with tf.control_dependencies(
            [assert_ids(f"{scope}/{name}" if scope else name, vocab_size, size_option, ids_R)]
        ):
            # The identity makes the look-up wait for the check; nothing else connects the two.
            ids_R = tf.identity(ids_R)
        rows_RD = next(iter(tf.get_collection(TABLE_LOOKUP)), _look_up)(table, ids_R)
        rows = tf.gather(rows_RD, position)
        return tf.reshape(rows, tf.concat([tf.shape(ids), [dim]], axis=0), name="rows")


def assert_ids(table_name: str, vocab_size: int, size_option: str | None, ids: tf.Tensor) -> tf.Operation:
    """Builds an op that fails if an id is not in 0 .. `vocab_size` - 1; its message names the table and the option."""
    lowest, highest = tf.reduce_min(ids), tf.reduce_max(ids)
    is_valid = tf.logical_and(lowest >= 0, highest < vocab_size)
    larger = f"give --model_option={size_option}=<highest id of the data + 1>" if size_option else "enlarge the table"
    message = (
        f"embedding table {table_name} has the ids 0 to {vocab_size - 1}; {larger}, or correct the data;"
        " lowest and highest id of the batch:"
    )
    # `tf.debugging.Assert` would wrap the op into a `tf.cond`, which costs time in each step.
    return tf.raw_ops.Assert(condition=is_valid, data=[tf.constant(message), lowest, highest])


def _look_up(table: tf.Variable, ids_R: tf.Tensor) -> tf.Tensor:
    # A partitioned table is cut into ranges of consecutive rows, which is what "div" reads. The default, "mod", takes
    # row i from part i % parts: the wrong rows, without an error.
    return tf.nn.embedding_lookup(table, ids_R, partition_strategy="div")

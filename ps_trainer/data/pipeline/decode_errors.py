"""Decoding of one record after the other, so that what cannot be decoded can be named."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow.compat.v1 as tf

Record = dict[str, tf.Tensor]

_CHUNK_RECORDS = 16


def map_with_context(
    function: Callable[[Record], Record], record: Record, explain: Callable[[Record], tf.Operation]
) -> Record:
    """`function(record)`; where the function's ops fail, `explain` is run first, then the function again.

    An op that decodes an image or a sound says what is wrong with it, but not which one it was. All in C++; to be
    called by a function that maps a dataset.

    Args:
        function: of a record, or of a batch of them.
        record: its argument.
        explain: an op that fails, with a message that names the record; where it does not, the function's own message
            stands.
    """

    def explained(record: Record) -> Record:
        with tf.control_dependencies([explain(record)]):
            return function({name: tf.identity(value) for name, value in record.items()})

    alone = tf.data.Dataset.from_tensors(record)
    tried = alone.map(function).ignore_errors().concatenate(alone.map(explained))
    return tried.take(1).get_single_element()


def map_named(
    records: tf.data.Dataset, function: Callable[[Record], Record], explain: Callable[[Record], tf.Operation]
) -> tf.data.Dataset:
    """`records.map(function)`, in order, on all cores; a record that fails is explained as by `map_with_context`.

    A chunk of records is tried at once, since trying takes longer than many a record. What `function` makes of a record
    has the same shape for all.
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
    """An op that fails with a message, joined of its parts."""
    return tf.debugging.Assert(condition=False, data=[tf.strings.join(message)])


def decode_image(data: tf.Tensor, height: int, width: int, channels: int) -> tf.Tensor:
    """A JPEG, PNG, GIF (its first picture) or BMP file as pixels, brought to one size.

    The sides are scaled each by its own factor, so another ratio of them distorts; where the image becomes smaller,
    each pixel is a weighted mean of all that it stands for (bilinear with antialiasing).

    Args:
        data: string [], the file.
        height: pixels.
        width: pixels.
        channels: 1, 3 or 4; grey becomes colour and colour grey where the file has others.

    Returns:
        float32 [height, width, channels] in 0..1.
    """
    image = tf.io.decode_image(data, channels=channels, expand_animations=False)
    image.set_shape([None, None, channels])
    resized = tf.compat.v2.image.resize(image, [height, width], method="bilinear", antialias=True)
    return tf.clip_by_value(resized / 255, 0.0, 1.0)

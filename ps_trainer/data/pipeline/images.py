"""Images as tensors for a model."""

from __future__ import annotations

import pathlib

import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.decode_errors import fail, map_named

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp")
"""Endings of the names of files that `decode_image` reads."""

PROBLEM = ": cannot be decoded as an image; give a JPEG, PNG, GIF or BMP file"
"""What follows the name of a broken file in a message."""


def decode_image(data: tf.Tensor, height: int, width: int, channels: int) -> tf.Tensor:
    """Decodes a JPEG, PNG, GIF (first picture) or BMP file and resizes it.

    Each side is scaled by its own factor, so an image of another aspect ratio is distorted. In a smaller result each
    pixel is a weighted mean of all pixels that it replaces (bilinear with antialiasing).

    Args:
        data: string [], content of the file.
        height: Height of the result in pixels.
        width: Width of the result in pixels.
        channels: 1 (grey), 3 (colour) or 4 (colour and transparency); files with other channels are converted.

    Returns:
        float32 [height, width, channels] in 0..1.
    """
    # Without `expand_animations` every file gives one picture; a GIF would have four dimensions.
    image = tf.io.decode_image(data, channels=channels, expand_animations=False)
    image.set_shape([None, None, channels])
    resized = tf.compat.v2.image.resize(image, [height, width], method="bilinear", antialias=True)
    return tf.clip_by_value(resized / 255, 0.0, 1.0)


def decode_batch(data: tf.Tensor, height: int, width: int, channels: int) -> dict[str, tf.Tensor]:
    """Builds the ops from the content of a file, string [], to the batch of `image_file`."""
    image = decode_image(data, height, width, channels)
    return {"image": image[tf.newaxis], "label": tf.zeros([1], tf.int64)}


def image_file(path: pathlib.Path, height: int, width: int, channels: int) -> tf.data.Dataset:
    """Returns one batch: "image" float32 [1, height, width, channels] of a file; "label" int64 [1], which is 0."""

    def decode(record: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        image = decode_image(tf.io.read_file(record["path"]), height, width, channels)
        return {"image": image, "label": tf.constant(0, tf.int64)}

    def name_it(record: dict[str, tf.Tensor]) -> tf.Operation:
        return fail(record["path"], PROBLEM)

    return map_named(tf.data.Dataset.from_tensors({"path": str(path.resolve())}), decode, name_it).batch(1)


def scale_image(image: tf.Tensor, scale: float) -> tf.Tensor:
    """Converts uint8 pixels of any shape to float32 and multiplies them by `scale`."""
    return tf.cast(image, tf.float32) * scale

"""The features of the examples in TFRecord files, as a user specifies them."""

from __future__ import annotations

import re
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError

KINDS = ("int64", "float32", "bytes", "uint8", "image")
"""Kinds of features."""

_FEATURE = re.compile(rf"((?P<name>\w+)=)?(?P<key>[^:\[\]=]+):(?P<kind>{'|'.join(KINDS)})(\[(?P<shape>[\dx*]+)\])?")


class Feature(NamedTuple):
    """One feature of the examples.

    Attributes:
        name: Name of the feature in the batch.
        key: Name of the feature in the Example.
        kind: Kind of the feature, one of `KINDS`.
        shape: Shape of its values; None if their number differs between examples.
    """

    name: str
    key: str
    kind: str
    shape: tuple[int, ...] | None

    @property
    def sizes(self) -> tuple[int, ...]:
        """Shape of an image or of raw bytes, which always have one.

        Raises:
            ValueError: The number of values differs between examples.
        """
        if self.shape is None:
            raise ValueError(f"feature {self.key} has no fixed shape")
        return self.shape

    @property
    def parsing(self) -> tf.io.FixedLenFeature | tf.io.FixedLenSequenceFeature:
        """Specification for TensorFlow's parser of Examples; an image and raw bytes are one string."""
        dtype = {"int64": tf.int64, "float32": tf.float32}.get(self.kind, tf.string)
        if self.shape is None:
            return tf.io.FixedLenSequenceFeature([], dtype, allow_missing=True)
        return tf.io.FixedLenFeature([] if self.kind in ("uint8", "image") else self.shape, dtype)


def parse_feature(text: str) -> Feature:
    """Parses the specification of a feature, `[name=]key:kind[shape]`.

    Raises:
        OptionError: `text` does not have that form, or the kind cannot have that shape.
    """
    match = _FEATURE.fullmatch(text)
    if not match:
        raise OptionError(f"features={text}: write [name=]key:kind[shape], with kind one of {', '.join(KINDS)}")
    key, kind, sizes = match["key"], match["kind"], match["shape"] or ""
    try:
        shape = None if sizes == "*" else tuple(int(size) for size in sizes.split("x") if sizes)
    except ValueError:
        raise OptionError(f"features={text}: write the shape as [3], [28x28x1] or [*]") from None
    if shape is None and kind not in ("int64", "float32"):
        raise OptionError(f"features={text}: only int64 and float32 may have the shape [*]; give another shape")
    if shape is not None and 0 in shape:
        raise OptionError(f"features={text}: a size is 0; it must be at least 1")
    if kind == "uint8" and not shape:
        raise OptionError(f"features={text}: uint8 needs a shape, such as {key}:uint8[28x28x1]")
    if kind == "image" and (shape is None or len(shape) != 3 or shape[2] not in (1, 3, 4)):
        raise OptionError(
            f"features={text}: an image needs the shape to resize it to: height, width and 1, 3 or 4 channels, such as"
            f" {key}:image[224x224x3]"
        )
    return Feature(match["name"] or key, key, kind, shape)

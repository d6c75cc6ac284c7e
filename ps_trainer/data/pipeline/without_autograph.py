"""`without_autograph`: builds the pipelines of this package's datasets without AutoGraph, which only users' may need.

AutoGraph takes most of the time of a process's first pipeline. A killed process leaves AutoGraph's generated source
files in the temporary folder.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

_PACKAGE = "ps_trainer.data."


def without_autograph(build: Callable[..., tf.data.Dataset]) -> Callable[..., tf.data.Dataset]:
    """Decorates a method that builds a pipeline: AutoGraph translates its functions only for a user's dataset."""
    as_written = tf.autograph.experimental.do_not_convert(build)

    @functools.wraps(build)
    def call(self: Any, *args: Any, **options: Any) -> tf.data.Dataset:
        is_of_package = type(self).__module__.startswith(_PACKAGE)
        return (as_written if is_of_package else build)(self, *args, **options)

    return call

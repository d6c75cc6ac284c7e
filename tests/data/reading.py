"""Reads datasets to their end, for tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow.compat.v1 as tf


def read_batches(
    make_dataset: Callable[[], tf.data.Dataset], max_batches: int | None = None
) -> list[dict[str, np.ndarray]]:
    """The batches of the dataset that `make_dataset` gives in a graph of its own; `max_batches` of an endless one."""
    with tf.Graph().as_default():
        iterator = tf.data.make_initializable_iterator(make_dataset())
        batch = iterator.get_next()
        batches: list[dict[str, np.ndarray]] = []
        with tf.Session() as session:
            session.run(iterator.initializer)
            while max_batches is None or len(batches) < max_batches:
                try:
                    batches.append(session.run(batch))
                except tf.errors.OutOfRangeError:
                    break
    return batches


def read_column(make_dataset: Callable[[], tf.data.Dataset], name: str) -> np.ndarray:
    """One column of all batches, joined."""
    return np.concatenate([batch[name] for batch in read_batches(make_dataset)])

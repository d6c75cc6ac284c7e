"""A wire in one session: a test sends gradients step by step, and receives the values that reach the ps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.gradients import transform_list
from ps_trainer.gradients.base import Segment, Site, SiteGradient
from ps_trainer.gradients.state import TransformState
from ps_trainer.gradients.wire import Wire

SEED, WORKER, NUM_WORKERS = 5, 1, 4
ROW_COUNT, ROW_SIZE = 20, 3
NUM_COUNT_BYTES = 4  # of a vector's size, in a message of several vectors whose sizes the graph does not know


class TableRows(NamedTuple):
    """Rows of a table: values [n, ROW_SIZE] and indices [n]."""

    values: np.ndarray
    indices: np.ndarray


class Arrived(NamedTuple):
    """The values of one step on the ps: an array or the whole table's gradient for each site, and the payload."""

    values: list[np.ndarray]
    payload_bytes: int


def dense(size: int, segments: Sequence[Segment] = (), name: str = "dense", dtype: Any = tf.float32) -> Site:
    """A dense site; it has one vector variable unless `segments` is given."""
    return Site(name, (size,), dtype, 0, False, tuple(segments) or (Segment(0, size, 0, (size,)),))


def variables(*shapes: tuple[int, ...]) -> list[Segment]:
    """Segments of whole variables, one after the other."""
    segments, offset = [], 0
    for shape in shapes:
        size = int(np.prod(shape))
        segments.append(Segment(offset, size, 0, shape))
        offset += size
    return segments


TABLE = Site("table", (ROW_COUNT, ROW_SIZE), tf.float32, 0, True, ())


class Lane:
    """A wire through transforms, with worker and ps on one device.

    Args:
        transforms: Transforms as on the command line, separated by spaces; there is no other one.
        sites: Sources of the gradients.
    """

    def __init__(self, transforms: str, *sites: Site, worker_index: int = WORKER):
        self._sites = sites
        with tf.Graph().as_default() as graph:
            self.wire = Wire(
                transform_list.create(transforms.split()),
                num_workers=NUM_WORKERS,
                worker_index=worker_index,
                worker_device="/cpu:0",
                ps_device=lambda ps: "/cpu:0",
                seed=SEED,
            )
            self._inputs = [_placeholder(site) for site in sites]
            site_gradients = [SiteGradient(site, value) for site, value in zip(sites, self._inputs, strict=True)]
            arrived = [item.value for item in self.wire.send(site_gradients)]
            dense_values = [tf.convert_to_tensor(value) for value in arrived]
            self._fetches = [dense_values, tf.convert_to_tensor(self.wire.payload_bytes), self.wire.targets]
            self._unadvanced = self._fetches[:2]
            self.types = [value.dtype for value in dense_values]
            self._assigns = {}
            for variable in self.wire.state:
                value = tf.placeholder(variable.dtype, variable.shape)
                self._assigns[_name(variable)] = value, variable.assign(value).op
            self._init_op = tf.local_variables_initializer()
        self._session = tf.Session(graph=graph)
        self._session.run(self._init_op)

    def send(self, *gradients: np.ndarray | TableRows, advance: bool = True) -> Arrived:
        """Makes one step; without `advance` it fetches only the arrived values, not the transforms' targets."""
        feed = {}
        for site, placeholder, gradient in zip(self._sites, self._inputs, gradients, strict=True):
            if site.is_table:
                feed |= {placeholder.values: gradient.values, placeholder.indices: gradient.indices}
            else:
                feed[placeholder] = gradient
        values, payload_bytes, *_ = self._session.run(self._fetches if advance else self._unadvanced, feed)
        return Arrived(values, int(payload_bytes))

    def state(self) -> dict[str, np.ndarray]:
        """The transforms' variables, by name without the common prefix."""
        values = self._session.run(list(self.wire.state))
        return {_name(variable): value for variable, value in zip(self.wire.state, values, strict=True)}

    def restore(self, values: dict[str, np.ndarray]) -> None:
        """Sets the variables."""
        assigns = [self._assigns[name] for name in values]
        feed = {placeholder: values[name] for name, (placeholder, _) in self._assigns.items()}
        self._session.run([assign_op for _, assign_op in assigns], feed)

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> Lane:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def gradients(*shape: int, num_steps: int = 3, seed: int = 0) -> list[np.ndarray]:
    """Normal random gradients, float32, one per step."""
    random = np.random.RandomState(seed)
    return [random.randn(*shape).astype(np.float32) for _ in range(num_steps)]


def rows(num_rows: int, num_steps: int = 3, seed: int = 0) -> list[TableRows]:
    """Random rows of `TABLE`, no row twice in a step."""
    random = np.random.RandomState(seed)
    return [
        TableRows(random.randn(num_rows, ROW_SIZE).astype(np.float32), random.permutation(ROW_COUNT)[:num_rows])
        for _ in range(num_steps)
    ]


def num_row_bytes(num_rows: int) -> int:
    """Bytes of rows without a codec: their number, an int32 index for each, and their values."""
    return NUM_COUNT_BYTES + num_rows * (4 + 4 * ROW_SIZE)


def table_of(rows: TableRows) -> np.ndarray:
    """The whole table's gradient."""
    table = np.zeros([ROW_COUNT, ROW_SIZE], np.float32)
    np.add.at(table, rows.indices, rows.values)
    return table


def uniform(path: str, step: int, size: int) -> np.ndarray:
    """The random numbers in [0, 1) that a codec at `path` ("site/codec/") uses in a step."""
    return _random(path, step, lambda seed: tf.random.stateless_uniform([size], seed))


def integers(path: str, step: int, size: int, **limits: Any) -> np.ndarray:
    """The int32 random numbers that a codec at `path` uses in a step."""
    return _random(path, step, lambda seed: tf.random.stateless_uniform([size], seed, dtype=tf.int32, **limits))


def _random(path: str, step: int, draw: Any) -> np.ndarray:
    static_seed = TransformState(SEED, WORKER).static_seed(path)
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(draw(tf.constant([static_seed, step], tf.int64)))


def _name(variable: tf.Variable) -> str:
    return variable.op.name.removeprefix("gradient_transforms/")


def _placeholder(site: Site) -> Any:
    if not site.is_table:
        return tf.placeholder(site.dtype, site.shape)
    values = tf.placeholder(site.dtype, [None, *site.shape[1:]])
    return tf.IndexedSlices(values, tf.placeholder(tf.int64, [None]), tf.constant(site.shape, tf.int64))

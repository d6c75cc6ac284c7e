"""Several devices in one worker (`--devices_per_worker`): each computes its part of the batch.

    pulled parameters ─► a copy on each device ┐
    batch ─► an equal part for each device     ┴► model ─► loss ─► gradients of the part
    mean of the losses and of the gradients on the worker ─► one gradient of each piece, as from one device

So the worker pulls and pushes once, whatever the number of devices. This also holds for the rows of embedding tables:
`models.layers.embedding` leaves its look-ups to `_SharedLookups`, which looks up the rows of all devices together.

Each device has its own collections while its model is built. A model may add up all losses that it finds there, or walk
over the trainable variables. Of the model's own updates (UPDATE_OPS, such as batch norm's averages) those of the first
device count.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.store.base import ModelGetter, ParameterStore
from ps_trainer.store.pieces import Gradient, Piece

# Collection from which `models.layers.embedding` takes its look-up. Models write the text, so as not to import this.
_TABLE_LOOKUP = "table_lookup"
_OF_EACH_DEVICE = (
    tf.GraphKeys.LOSSES,
    tf.GraphKeys.REGULARIZATION_LOSSES,
    tf.GraphKeys.TRAINABLE_VARIABLES,
    tf.GraphKeys.UPDATE_OPS,
)

BuildLoss = Callable[[Any, ModelGetter], tf.Tensor]


class _Lookup(NamedTuple):
    """A look-up of one device.

    Attributes:
        table: Table, or its partitions.
        ids: Distinct ids, [R].
        rows: Copy on the device of the rows, [R, dim]; its input is still missing.
    """

    table: Any
    ids: tf.Tensor
    rows: tf.Tensor


class _Part(NamedTuple):
    """The computation of one device.

    Attributes:
        loss: Loss of its part of the batch.
        dense: Gradient for the copy of each model variable, by name; without those on which the loss does not depend.
        row_gradients: Gradient of the rows of each of its look-ups; None where the loss does not depend on them.
        tables: Gradient of each table piece that the model reads without `layers.embedding`.
    """

    loss: tf.Tensor
    dense: dict[str, tf.Tensor]
    row_gradients: list[tf.Tensor | None]
    tables: list[tuple[Piece, tf.IndexedSlices]]


def build(
    store: ParameterStore, devices: Sequence[str], batch: Any, build_loss: BuildLoss
) -> tuple[tf.Tensor, list[Gradient]]:
    """Builds the model once on each device; returns the mean of the losses, and the gradients of that mean.

    Args:
        store: The created store.
        devices: Devices of this worker.
        batch: Tensors whose first dimension is the batch, a multiple of the number of devices.
        build_loss: Builds the model on a part of the batch with the variables that a custom getter returns.

    Raises:
        OptionError: The loss depends on no trainable variable, or the model's look-ups differ between two builds.
    """
    lookups = _SharedLookups()
    parts = [
        _build_part(store, device, number, part, build_loss, lookups)
        for number, (device, part) in enumerate(zip(devices, _split(batch, len(devices)), strict=True))
    ]
    with tf.device(store.worker_device):
        loss = _mean([part.loss for part in parts], len(parts))
        values, value_gradients = _dense_means(store, parts)
        rows, row_gradients = lookups.connect([part.row_gradients for part in parts])
        of_tables = _table_means(parts)
    values, value_gradients = [*values, *rows], [*value_gradients, *row_gradients]
    gradients = store.gradients_of(values, value_gradients) if values or not of_tables else []
    return loss, _with_tables(gradients, of_tables)


def _split(batch: Any, num_parts: int) -> list[Any]:
    cut = [tf.split(tensor, num_parts) for tensor in tf.nest.flatten(batch)]
    return [tf.nest.pack_sequence_as(batch, [pieces[number] for pieces in cut]) for number in range(num_parts)]


def _build_part(
    store: ParameterStore, device: str, number: int, part: Any, build_loss: BuildLoss, lookups: _SharedLookups
) -> _Part:
    with tf.device(device):
        copies = {name: tf.identity(value) for name, value in store.dense_values.items()}
        with _own_collections(copies, lookups, keeps_updates=number == 0):
            loss = build_loss(part, store.getter_of(copies, f"device_{number}/" if number else ""))
        # Before the look-ups are connected to the tables, so that no gradient passes them here.
        of_part, tables = lookups.of_last_part(), [piece for piece in store.pieces if piece.is_table]
        sources = [list(copies.values()), [one.rows for one in of_part], [piece.pulled for piece in tables]]
        found = iter(tf.gradients(loss, [tensor for group in sources for tensor in group]))
        dense, rows, direct = ([next(found) for _ in group] for group in sources)
        return _Part(
            loss,
            {name: tf.convert_to_tensor(g) for name, g in zip(copies, dense, strict=True) if g is not None},
            [None if g is None else tf.convert_to_tensor(g) for g in rows],
            [(piece, g) for piece, g in zip(tables, direct, strict=True) if g is not None],
        )


def _dense_means(store: ParameterStore, parts: Sequence[_Part]) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Returns the dense variables on which a loss depends, and the mean of their gradients."""
    values, means = [], []
    for name, value in store.dense_values.items():
        gradients = [part.dense[name] for part in parts if name in part.dense]
        if gradients:
            values.append(value)
            means.append(_mean(gradients, len(parts)))
    return values, means


def _table_means(parts: Sequence[_Part]) -> list[tuple[Piece, tf.IndexedSlices]]:
    """Returns the part of each device in the gradients of the tables that its model reads by itself."""
    return [
        (piece, tf.IndexedSlices(g.values / tf.constant(len(parts), g.values.dtype), g.indices, g.dense_shape))
        for part in parts
        for piece, g in part.tables
    ]


def _with_tables(gradients: Sequence[Gradient], of_tables: Sequence[tuple[Piece, tf.IndexedSlices]]) -> list[Gradient]:
    """Adds the rows of `of_tables` to the gradients of their pieces."""
    pieces: dict[str, Piece] = {piece.variable.op.name: piece for piece, _ in of_tables}
    slices: dict[str, list[tf.IndexedSlices]] = {name: [] for name in pieces}
    for piece, value in of_tables:
        slices[piece.variable.op.name].append(value)
    merged = []
    for gradient in gradients:
        table_slices = slices.pop(gradient.piece.variable.op.name, [])
        merged.append(
            gradient._replace(value=_concatenate_slices([gradient.value, *table_slices])) if table_slices else gradient
        )
    return [*merged, *(Gradient(pieces[name], _concatenate_slices(values)) for name, values in slices.items())]


def _concatenate_slices(slices: Sequence[tf.IndexedSlices]) -> tf.IndexedSlices:
    return tf.IndexedSlices(
        tf.concat([one.values for one in slices], axis=0),
        tf.concat([tf.cast(one.indices, tf.int64) for one in slices], axis=0),
        slices[0].dense_shape,
    )


def _mean(values: Sequence[tf.Tensor], num_parts: int) -> tf.Tensor:
    """Returns the sum over those parts that have a value, divided by the number of all parts."""
    return tf.add_n(list(values)) / tf.constant(num_parts, values[0].dtype)


class _SharedLookups:
    """The look-ups of all devices: the n-th ones of each device are one look-up, so that each row travels once."""

    def __init__(self) -> None:
        self._parts: list[list[_Lookup]] = []

    def begin_part(self) -> None:
        """Assigns the look-ups that follow to the next device."""
        self._parts.append([])

    def of_last_part(self) -> list[_Lookup]:
        """Returns the look-ups of the device whose model was built last."""
        return self._parts[-1]

    def look_up(self, table: Any, ids_R: tf.Tensor) -> tf.Tensor:
        """Stands for `tf.nn.embedding_lookup` while a model is built; `connect` gives the rows."""
        stub = tf.placeholder(table.dtype.base_dtype, [None, *table.shape[1:]])
        rows_RD = tf.identity(stub)
        self._parts[-1].append(_Lookup(table, ids_R, rows_RD))
        return rows_RD

    def connect(self, row_gradients: Sequence[Sequence[tf.Tensor | None]]) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Looks up the rows of all devices, and hands them out; call it in the worker's device scope.

        Args:
            row_gradients: For each device the gradients of its look-ups.

        Returns:
            The rows of each device and look-up on which a loss depends, and their part of the mean's gradient.

        Raises:
            OptionError: The devices look up different tables.
        """
        if len({tuple(id(lookup.table) for lookup in part) for part in self._parts}) > 1:
            raise OptionError(
                "--devices_per_worker: the model looks up other tables each time it is built; it must look up the same"
                " tables in the same order"
            )
        rows, gradients = [], []
        for together, of_rows in zip(zip(*self._parts, strict=True), zip(*row_gradients, strict=True), strict=True):
            for part_RD, gradient in zip(_look_up_together(together), of_rows, strict=True):
                if gradient is not None:
                    rows.append(part_RD)
                    gradients.append(gradient / tf.constant(len(together), gradient.dtype))
        return rows, gradients


def _look_up_together(lookups: Sequence[_Lookup]) -> list[tf.Tensor]:
    """Looks up the rows of one look-up of each device at once; returns the rows of each device."""
    sizes = tf.stack([tf.size(lookup.ids) for lookup in lookups])
    ids_R, position = tf.unique(tf.concat([lookup.ids for lookup in lookups], axis=0))
    # As in `layers.embedding`: a partitioned table is cut into ranges of consecutive rows.
    rows_RD = tf.nn.embedding_lookup(lookups[0].table, ids_R, partition_strategy="div")
    parts = [tf.gather(rows_RD, place) for place in tf.split(position, sizes, num=len(lookups))]
    for lookup, part_RD in zip(lookups, parts, strict=True):
        # Private: only so can an op get an input that is built after it.
        lookup.rows.op._update_input(0, part_RD)
    return parts


@contextlib.contextmanager
def _own_collections(copies: dict[str, tf.Tensor], lookups: _SharedLookups, *, keeps_updates: bool) -> Iterator[None]:
    """Gives one device its own collections while its model is built."""
    graph = tf.get_default_graph()
    before = {name: graph.get_collection(name) for name in _OF_EACH_DEVICE}
    for name in _OF_EACH_DEVICE:
        graph.clear_collection(name)
    for copy in copies.values():
        graph.add_to_collection(tf.GraphKeys.TRAINABLE_VARIABLES, copy)
    graph.add_to_collection(_TABLE_LOOKUP, lookups.look_up)
    lookups.begin_part()
    try:
        yield
    finally:
        updates = graph.get_collection(tf.GraphKeys.UPDATE_OPS) if keeps_updates else []
        graph.clear_collection(_TABLE_LOOKUP)
        for name, items in before.items():
            graph.clear_collection(name)
            graph.get_collection_ref(name).extend(items)
        graph.get_collection_ref(tf.GraphKeys.UPDATE_OPS).extend(updates)

"""`Push`: sends a worker's gradients to the ps tasks through the run's gradient transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.gradients.base import Segment, Site, SiteGradient
from ps_trainer.gradients.wire import Wire
from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient, Piece
from ps_trainer.store.table_lookups import TableLookups
from ps_trainer.store.variables import create_local_variable


class Push:
    """Sends one worker's gradients.

    Args:
        store: The created store.
        wire: Applies the transforms.
        table_lookups: Ids of the step's look-ups, which are on the ps tasks.

    Attributes:
        row_gradients: Gradients of rows whose values are on the worker and whose indices are on the ps task already.
        dense_gradients: Dense gradients on the worker that travel as they are, each with the index of its ps task.
        sent_bytes: Number of bytes pushed so far, computed from the tensors that `send` sends, without gRPC's frames;
            int64 variable on the worker.
    """

    def __init__(self, store: ParameterStore, wire: Wire, table_lookups: TableLookups):
        self._table_lookups = table_lookups
        self._shapes = {spec.name: spec.shape for spec in store.specs}
        self._wire = wire
        self._worker_device = store.worker_device
        self._ps_device = store.ps_device
        self._sent: Sequence[Gradient] = ()
        self._count_op: tf.Operation | None = None
        self.row_gradients: list[tf.IndexedSlices] = []
        self.dense_gradients: list[tuple[int, tf.Tensor]] = []
        with tf.device(self._worker_device):
            # int32 would overflow after 2 GiB.
            self.sent_bytes = create_local_variable("push/sent_bytes", [], tf.int64)

    def send(self, gradients: Sequence[Gradient]) -> list[Gradient]:
        """Returns the gradients as they arrive on the ps tasks; call it once per graph.

        Only their packed form travels. Every phase that uses the result must also run `targets`.
        """
        if not self._wire.has_transforms:
            # A transform sends indices in the message of its values, and may change them.
            gradients = [self._without_known_ids(gradient) for gradient in gradients]
            self.dense_gradients = [(g.piece.ps, g.value) for g in gradients if not g.piece.is_table]
        arrived = self._pass(self._wire.send, gradients)
        self._sent = gradients
        with tf.device(self._worker_device):
            self._count_op = self.sent_bytes.assign_add(tf.cast(self._wire.payload_bytes, tf.int64), read_value=False)
        return arrived

    def _without_known_ids(self, gradient: Gradient) -> Gradient:
        """Takes the indices of a table's gradient from the ps task, if the look-up has sent them there already."""
        rows = gradient.value
        if not isinstance(rows, tf.IndexedSlices):
            return gradient
        known = self._table_lookups.ids_on(self._ps_device(gradient.piece.ps), rows.indices)
        if known is None:
            return gradient
        self.row_gradients.append(tf.IndexedSlices(rows.values, known, rows.dense_shape))
        return gradient._replace(value=self.row_gradients[-1])

    def ops_to_await(self, ps: int) -> list[tf.Operation]:
        """Returns the ops that an update on ps task `ps` must wait for if no gradient is sent there.

        This happens if the loss depends on no parameter of that ps task. Without these ops the update would be counted
        when the step begins. The list is empty if gradients arrive there, because the update waits for them.
        """
        if any(gradient.piece.ps == ps for gradient in self._sent):
            return []
        with tf.device(self._worker_device):
            computed = tf.group(*(_values(gradient.value) for gradient in self._sent))
        with tf.device(self._ps_device(ps)), tf.control_dependencies([computed]):
            return [tf.no_op()]

    def reduce(self, gradients: Sequence[Gradient]) -> list[Gradient]:
        """Returns the transformed gradients on the worker, for rules that apply them there; it replaces `send`."""
        return self._pass(self._wire.reduce, gradients)

    @property
    def targets(self) -> list[tf.Operation]:
        """Ops that advance the transforms' state and `sent_bytes`; every step that sends runs them."""
        return [*self._wire.targets, *([] if self._count_op is None else [self._count_op])]

    @property
    def state(self) -> list[tf.Variable]:
        """The transforms' variables on the worker."""
        return self._wire.state

    def _pass(
        self, way: Callable[[list[SiteGradient]], list[SiteGradient]], gradients: Sequence[Gradient]
    ) -> list[Gradient]:
        site_gradients = [SiteGradient(self._site(gradient.piece), gradient.value) for gradient in gradients]
        passed = way(site_gradients)
        return [Gradient(g.piece, arrived.value) for g, arrived in zip(gradients, passed, strict=True)]

    def _site(self, piece: Piece) -> Site:
        return Site(
            name=piece.variable.op.name,
            shape=tuple(piece.variable.shape.as_list()),
            dtype=piece.variable.dtype.base_dtype,
            ps=piece.ps,
            is_table=piece.is_table,
            segments=tuple(
                Segment(extent.offset, extent.size, extent.start, self._shapes[extent.name]) for extent in piece.extents
            ),
        )


def _values(value: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
    return value.values if isinstance(value, tf.IndexedSlices) else value

"""`Push`: brings a worker's gradients to the ps tasks, by the run's gradient transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.gradients.base import Outgoing, Segment, Site
from ps_trainer.gradients.wire import Wire
from ps_trainer.store.base import ParameterStore
from ps_trainer.store.pieces import Gradient, Piece
from ps_trainer.store.variables import create_local_variable


class Push:
    """One worker's way to the ps tasks.

    Args:
        store: the created store.
        wire: applies the transforms.

    Attributes:
        sent_bytes: int64 variable on the worker, bytes pushed so far as computed from what is sent: the
            payload of `send`, without the frames around it.
    """

    def __init__(self, store: ParameterStore, wire: Wire):
        self._shapes = {spec.name: spec.shape for spec in store.specs}
        self._wire = wire
        self._worker_device = store.worker_device
        self._ps_device = store.ps_device
        self._sent: Sequence[Gradient] = ()
        self._count_op: tf.Operation | None = None
        with tf.device(self._worker_device):
            self.sent_bytes = create_local_variable("push/sent_bytes", [], tf.int64)

    def send(self, gradients: Sequence[Gradient]) -> list[Gradient]:
        """The gradients as they arrive on the ps tasks; call it once per graph.

        Only their packed form travels. Every phase that uses the result also runs `targets`.
        """
        arrived = self._pass(self._wire.send, gradients)
        self._sent = gradients
        with tf.device(self._worker_device):
            self._count_op = self.sent_bytes.assign_add(tf.cast(self._wire.payload_bytes, tf.int64), read_value=False)
        return arrived

    def awaited(self, ps: int) -> list[tf.Operation]:
        """What an update waits for on ps task `ps` if nothing is sent there, as the loss depends on nothing there.

        Otherwise it would be counted when the step begins. Where gradients arrive the update waits for those: none.
        """
        if any(gradient.piece.ps == ps for gradient in self._sent):
            return []
        with tf.device(self._worker_device):
            computed = tf.group(*(_values(gradient.value) for gradient in self._sent))
        with tf.device(self._ps_device(ps)), tf.control_dependencies([computed]):
            return [tf.no_op()]

    def reduce(self, gradients: Sequence[Gradient]) -> list[Gradient]:
        """The gradients as changed on the worker, for rules that apply them there; call it in place of `send`."""
        return self._pass(self._wire.reduce, gradients)

    @property
    def targets(self) -> list[tf.Operation]:
        """Ops that advance the transforms' state and `sent_bytes`; run them in each step that sends."""
        return [*self._wire.targets, *([] if self._count_op is None else [self._count_op])]

    @property
    def state(self) -> list[tf.Variable]:
        """The transforms' variables on the worker."""
        return self._wire.state

    def _pass(self, way: Callable[[list[Outgoing]], list[Outgoing]], gradients: Sequence[Gradient]) -> list[Gradient]:
        outgoing = [Outgoing(self._site(gradient.piece), gradient.value) for gradient in gradients]
        passed = way(outgoing)
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

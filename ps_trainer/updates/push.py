"""`Push`: brings a worker's gradients to the ps tasks, by the run's gradient transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.gradients.base import Outgoing, Segment, Site
from ps_trainer.gradients.wire import Wire
from ps_trainer.store.base import Gradient, ParameterStore, Piece


class Push:
    """One worker's way to the ps tasks.

    Args:
        store: the created store.
        wire: applies the transforms.
    """

    def __init__(self, store: ParameterStore, wire: Wire):
        self._shapes = {spec.name: spec.shape for spec in store.specs}
        self._wire = wire

    def send(self, gradients: Sequence[Gradient]) -> list[Gradient]:
        """The gradients as they arrive on the ps tasks; call it once per graph.

        Only their packed form travels. Every phase that uses the result also runs `targets`.
        """
        return self._pass(self._wire.send, gradients)

    def reduce(self, gradients: Sequence[Gradient]) -> list[Gradient]:
        """The gradients as changed on the worker, for rules that apply them there; call it in place of `send`."""
        return self._pass(self._wire.reduce, gradients)

    @property
    def targets(self) -> list[tf.Operation]:
        """Ops that advance the transforms' state; run them in each step that sends."""
        return self._wire.targets

    @property
    def state(self) -> list[tf.Variable]:
        """The transforms' variables on the worker."""
        return self._wire.state

    @property
    def payload_bytes(self) -> tf.Tensor | int:
        """Bytes of what `send` gives to one push, as computed from the tensors."""
        return self._wire.payload_bytes

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

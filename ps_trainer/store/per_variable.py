"""Layout `per_variable`: each model variable is a separate variable, placed by `tf.train.replica_device_setter`."""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Callable, Sequence

import tensorflow.compat.v1 as tf

from ps_trainer.options import option, same_as
from ps_trainer.store.base import ParameterStore
from ps_trainer.store.extents import VariableSpec
from ps_trainer.store.packed import PackedOptions
from ps_trainer.store.pieces import DensePart, Piece
from ps_trainer.store.variables import create_setter, parts_of

_PLACEMENTS = ("round_robin", "greedy")
_PARTITIONERS = ("none", "fixed_size", "min_max")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PerVariableOptions:
    """Options of `per_variable`."""

    placement: str = option(
        "round_robin", "ps task of the next variable; greedy = the one with the fewest bytes", choices=_PLACEMENTS
    )
    partitioner: str = option("none", "how dense variables are cut by rows", choices=_PARTITIONERS)
    partitions: int = option(
        0, "number of parts for fixed_size, largest number for min_max; 0 = one per ps task", least=0
    )
    min_slice_bytes: int = option(256 * 1024, "smallest part in bytes for min_max", least=1)
    table_partitions: int = option(0, "number of parts of an embedding table; 0 = one per ps task", least=0)
    least_share_bytes: int = same_as(PackedOptions, "least_share_bytes")


class PerVariable(ParameterStore):
    """The classic form: a variable (or partition) per model variable, placed on the ps tasks in turn.

    Placement `round_robin` is TensorFlow's default; `greedy` puts each variable on the ps task with the fewest bytes so
    far. Traffic per step and worker: the bytes of the parameters each way, one message per variable and direction.
    """

    Options = PerVariableOptions

    def _create_dense(self, specs: Sequence[VariableSpec]) -> list[DensePart]:
        parts = []
        for spec in specs:
            with tf.device(self._setter):
                variable = tf.get_variable(
                    spec.name,
                    spec.shape,
                    tf.as_dtype(spec.dtype),
                    initializer=tf.zeros_initializer(),
                    partitioner=self._partitioner(spec),
                    collections=[tf.GraphKeys.GLOBAL_VARIABLES],
                    trainable=False,
                    use_resource=True,
                )
            parts += [DensePart(part, self.ps_of(part), [extent]) for part, extent in parts_of(variable, spec)]
        return parts

    def _assemble(self, specs: Sequence[VariableSpec], pieces: Sequence[Piece]) -> dict[str, tf.Tensor]:
        parts: dict[str, list[tf.Tensor]] = defaultdict(list)
        for piece in pieces:
            parts[piece.extents[0].name].append(piece.pulled)
        tensors = {}
        for spec in specs:
            pulled = parts[spec.name]
            value = pulled[0] if len(pulled) == 1 else tf.concat(pulled, axis=0)
            tensors[spec.name] = tf.identity(value, name=f"{spec.name}/pulled")
        return tensors

    @functools.cached_property
    def _setter(self) -> Callable[..., str]:
        """Device setter that all stages share, so that the variables of a later stage do not start on ps 0 again."""
        strategy = GreedyByBytes(self.num_ps) if self.options.placement == "greedy" else None
        return create_setter([self.ps_device(ps) for ps in range(self.num_ps)], self.worker_device, strategy)

    def _partitioner(self, spec: VariableSpec) -> Callable[..., list[int]] | None:
        if self.options.partitioner == "none" or not spec.shape or spec.shape[0] < 2:
            return None
        parts = min(self.options.partitions or self.num_ps, spec.shape[0])
        if parts < 2:
            return None
        if self.options.partitioner == "fixed_size":
            return tf.fixed_size_partitioner(parts)
        return tf.min_max_variable_partitioner(max_partitions=parts, min_slice_size=self.options.min_slice_bytes)


class GreedyByBytes:
    """`ps_strategy` for `replica_device_setter`: the ps task with the fewest bytes so far, lowest index first.

    Args:
        num_ps: Number of ps tasks.
    """

    def __init__(self, num_ps: int):
        self._num_bytes = [0] * num_ps

    def __call__(self, op: tf.Operation) -> int:
        """Returns the ps task for the variable that `op` creates."""
        ps = min(range(len(self._num_bytes)), key=self._num_bytes.__getitem__)
        # replica_device_setter also asks for the place of other kinds of ops, such as hash tables.
        if op.type == "VarHandleOp":
            shape = tf.TensorShape(op.get_attr("shape"))
            self._num_bytes[ps] += shape.num_elements() * tf.as_dtype(op.get_attr("dtype")).size
        return ps

"""Layout `packed`: the trainable dense parameters lie in a few flat variables on each ps task."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.options import option
from ps_trainer.store.base import ParameterStore
from ps_trainer.store.extents import ALIGNMENT, VariableSpec, cut
from ps_trainer.store.pieces import DensePart, Piece
from ps_trainer.store.variables import create_variable

_LEAST_BYTES, _MOST_BYTES = 2**20, 16 * 2**20
_LEAST_SHARED_BYTES = 2**16  # a smaller vector is copied in less time than the ops that share its memory take


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackedOptions:
    """Options of `packed`."""

    # Parts of a large tensor arrive sooner than the whole, and TensorFlow cannot send more than 2 GiB at once.
    max_piece_bytes: int | None = option(
        None,
        "largest flat variable in bytes; a ps task holds several, of about a quarter of it, if its share is larger;"
        " none = 16 MiB on one host; between hosts a quarter of a ps task's share, from 1 to 16 MiB",
        least=4096,
    )
    table_partitions: int = option(0, "number of parts of an embedding table; 0 = one per ps task", least=0)
    least_share_bytes: int = option(
        0,
        "with --placement=colocated, least bytes of a worker's share; 0 = on one host 2 MiB of dense variables or 1 GiB"
        " of tables, between hosts 64 KiB",
        least=0,
    )


class Packed(ParameterStore):
    """One flat variable per ps task (balanced to the element): one message per ps and direction.

    The layout lays the trainable dense variables of a dtype end to end. It cuts this line into P equal parts, one for
    each ps task. So a model variable may lie on two ps tasks. Variables to which `--optimizer_for` gives
    another optimizer form a separate line. A worker reads each flat variable once and cuts the model's tensors out
    of it. The gradients travel back as one vector.

    A share above a quarter of `max_piece_bytes` lies in several flat variables, whose transfers overlap. Only a model
    variable above `max_piece_bytes` is cut there: a worker has to join the parts of such a variable, which copies it.

    Traffic per step and worker: the bytes of the parameters each way, in O(P) messages instead of O(number of
    variables). Element-wise optimizers compute the same numbers as on separate variables.
    """

    Options = PackedOptions

    def _create_dense(self, specs: Sequence[VariableSpec]) -> list[DensePart]:
        lines = defaultdict(list)
        for spec in specs:
            index = self._optimizer_index_of(spec.name)
            parts_of_name = (
                f"stage_{spec.stage}/" if spec.stage else "",
                spec.dtype.name,
                f"/group_{index}" if index else "",
            )
            lines["".join(parts_of_name)].append(spec)
        parts: list[DensePart] = []
        for name, line in lines.items():
            parts += self._create_line(name, line)
        return parts

    def _create_line(self, name: str, specs: Sequence[VariableSpec]) -> list[DensePart]:
        """Creates the flat variables of one line: the end-to-end elements of `specs`."""
        total = sum(spec.size for spec in specs)
        itemsize = specs[0].dtype.itemsize
        max_bytes = self.options.max_piece_bytes or default_piece_bytes(
            total * itemsize // self.num_ps, spans_hosts=self.spans_hosts
        )
        max_size = max_bytes // itemsize
        # Differences of rounded-down multiples: the shares add up to the total, and differ by one element at most.
        shares = [total * (ps + 1) // self.num_ps - total * ps // self.num_ps for ps in range(self.num_ps)]
        plan = [
            (ps, i, size)
            for ps, extents in enumerate(cut(specs, shares))
            for i, size in enumerate(piece_sizes([extent.size for extent in extents], max_size))
        ]
        parts = []
        for (ps, i, size), extents in zip(plan, cut(specs, [size for _, _, size in plan]), strict=True):
            with tf.device(self.ps_device(ps)):
                variable = create_variable(f"packed/{name}/ps_{ps}/piece_{i}", [size], specs[0].dtype)
            parts.append(DensePart(variable, ps, extents))
        return parts

    def _assemble(self, specs: Sequence[VariableSpec], pieces: Sequence[Piece]) -> dict[str, tf.Tensor]:
        parts: dict[str, list[tf.Tensor]] = defaultdict(list)
        for piece in pieces:
            slices = cut_flat(piece.pulled, [extent.size for extent in piece.extents])
            for extent, part in zip(piece.extents, slices, strict=True):
                parts[extent.name].append(part)
        tensors = {}
        for spec in specs:
            # A variable without elements has no extent on any ps task.
            flat = parts[spec.name] or [tf.zeros([0], tf.as_dtype(spec.dtype))]
            value = flat[0] if len(flat) == 1 else tf.concat(flat, axis=0)
            tensors[spec.name] = tf.reshape(value, spec.shape, name=f"{spec.name}/pulled")
        return tensors


def cut_flat(flat: tf.Tensor, sizes: Sequence[int]) -> list[tf.Tensor]:
    """Cuts a vector into parts, which share its memory as far as possible.

    TensorFlow's `tf.split` shares memory if all parts begin and end at multiples of 64 bytes, and copies all of them
    otherwise. So the bias of ten classes at the end of a model would copy all of its parameters in each step.

    Args:
        flat: Vector.
        sizes: Number of elements of each part; their sum is the number of elements of `flat`.
    """
    ends = list(itertools.accumulate(sizes))
    count = next((i for i, end in enumerate(ends) if end * flat.dtype.size % ALIGNMENT), len(sizes))
    at = ends[count - 1] if 0 < count < len(sizes) else 0
    # The rest is copied twice.
    if at < 3 / 4 * ends[-1] or at * flat.dtype.size < _LEAST_SHARED_BYTES:
        return list(tf.split(flat, sizes))

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def cut(flat: tf.Tensor) -> Any:
        shared = tf.split(tf.slice(flat, [0], [at]), sizes[:count])
        copied = tf.split(tf.slice(flat, [at], [ends[-1] - at]), sizes[count:])
        # By itself TensorFlow would make two vectors of full length, and add them.
        return [*shared, *copied], lambda *gradients: tf.concat(gradients, axis=0)

    parts: list[tf.Tensor] = cut(flat)
    return parts


def default_piece_bytes(share_bytes: int, *, spans_hosts: bool) -> int:
    """Returns the largest size of a flat variable where no option says it.

    A step waits for the way of its first piece to the ps task and back, beside which nothing else happens. Pieces are
    about a quarter of the result, so between hosts a share makes about 16 of them, unless they would be below 256 KiB
    or above 4 MiB. On one host the way takes no time, and each message costs CPU time.

    Args:
        share_bytes: Size of a ps task's share.
        spans_hosts: Whether the tasks are on several hosts.
    """
    return min(_MOST_BYTES, max(_LEAST_BYTES, share_bytes // 4)) if spans_hosts else _MOST_BYTES


def piece_sizes(sizes: Sequence[int], max_size: int) -> list[int]:
    """Returns the sizes of a ps task's flat variables, in elements.

    They are about equal, and end where variables end if these are not above `max_size`.

    Args:
        sizes: Elements of each variable, or of its part, on the ps task.
        max_size: Largest number of elements of a flat variable.
    """
    aim = max(1, max_size // 4)
    ends, total = [], 0
    for size in sizes:
        count = 1 if size <= max_size else -(-size // aim)
        ends += [total + size * (i + 1) // count for i in range(count)]
        total += size
    count = -(-total // aim)
    aims = [total * (i + 1) / count for i in range(count)]
    cuts = sorted({min((abs(end - at), end) for end in ends)[1] for at in aims})
    return [stop - start for start, stop in itertools.pairwise([0, *cuts])]

"""Gradient transform `power_sgd`: matrices as the product of two thin ones."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.gradients.base import Codec, Encoded, Scope, Segment, Stage
from ps_trainer.gradients.scale import joined
from ps_trainer.options import option


class Block(NamedTuple):
    """A range of a site's vector: a matrix of `rows` x `columns`, or a plain vector where `columns` is 0."""

    rows: int
    columns: int

    @property
    def size(self) -> int:
        """Elements."""
        return self.rows * max(1, self.columns)


class PowerSgd(Codec):
    """Low-rank approximation of each matrix by one step of subspace iteration, started where the last one ended.

        P ← M Q        P ← orthonormal basis of P's columns        Q ← Mᵀ P        C(M) = P Qᵀ

    Source: Vogels et al. 2019, Algorithm 1, with warm start (§4.2).
    Bytes: 4 · rank · (rows + columns) per matrix, 4 per element of everything else. State: Q, columns x rank per
    matrix, normally distributed at first. Biased, and not an approximation of the best rank-r matrix before a few
    steps of slowly changing gradients: it needs error_feedback before it, as in the paper (Algorithm 2).

    Departs from the paper: there P and Q are averaged over the workers by all-reduce, which is possible because
    each is linear in M, and the product is built from the averages. On a ps each worker sends its own P and Q,
    orthonormalised by itself, and the ps builds the product: the sum of the workers' products has a
    rank of up to rank x num_workers, so the approximation is no worse, and the ps does not save the product. Hence
    it also serves rules without a barrier.

    A model variable of two or more dimensions is the matrix of its last dimension against all others; of a
    variable cut between ps tasks the whole rows that lie on this one. Vectors, and matrices that would not become
    smaller, are sent as they are. Rows of tables pass unchanged.
    """

    name = "power_sgd"
    stage = Stage.SELECT

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `PowerSgd`."""

        rank: int = option(2, "columns of the two factors; 1 to 4 is usual", least=1)

    def encode(self, values: tf.Tensor, scope: Scope) -> Encoded:
        blocks = self.blocks(scope.segments, values.shape.num_elements())
        sent = []
        for i, (block, part) in enumerate(zip(blocks, tf.split(values, [block.size for block in blocks]), strict=True)):
            sent += self._factors(block, part, scope, i) if block.columns else [part]

        def decode(values: tf.Tensor, side: Sequence[tf.Tensor]) -> tf.Tensor:
            return joined(self._rebuilt(blocks, values))

        return Encoded(joined(sent), (), decode)

    def blocks(self, segments: Sequence[Segment], size: int) -> list[Block]:
        """The matrices to factor and the ranges between them; together all `size` elements, in order."""
        blocks, plain = [], 0
        for segment in segments:
            matrix = self._matrix(segment)
            if matrix is None:
                plain += segment.size
                continue
            head = -segment.start % matrix.columns
            blocks += [Block(plain + head, 0), matrix]
            plain = segment.size - head - matrix.size
        blocks.append(Block(plain if segments else size, 0))
        return [block for block in blocks if block.size]

    def _matrix(self, segment: Segment) -> Block | None:
        """The whole rows in a range of a variable, if they are worth factoring."""
        columns = segment.shape[-1] if len(segment.shape) >= 2 else 0
        if not columns:
            return None
        first = math.ceil(segment.start / columns)
        rows = (segment.start + segment.size) // columns - first
        is_smaller = rows > 0 and self.options.rank * (rows + columns) < rows * columns
        return Block(rows, columns) if is_smaller else None

    def _factors(self, block: Block, part: tf.Tensor, scope: Scope, i: int) -> list[tf.Tensor]:
        """P and Q of a matrix, as vectors."""
        dtype = _compute_dtype(part.dtype)
        shape = [block.columns, self.options.rank]
        seed = [scope.state.static_seed(f"start_{i}"), 0]

        def start(shape: Sequence[int], dtype: tf.DType, **_: Any) -> tf.Tensor:
            return tf.random.stateless_normal(shape, tf.constant(seed, tf.int64), dtype=dtype)

        last = scope.state.variable(f"q_{i}", shape, dtype, start)
        matrix = tf.cast(tf.reshape(part, block), dtype)
        p, _ = tf.linalg.qr(tf.matmul(matrix, last.read_value()))
        q = tf.matmul(matrix, p, transpose_a=True)
        scope.state.update(last, q)
        return [tf.cast(tf.reshape(factor, [-1]), part.dtype) for factor in (p, q)]

    def _rebuilt(self, blocks: Sequence[Block], values: tf.Tensor) -> list[tf.Tensor]:
        """Each block's elements out of what `encode` sends."""
        rank, sizes = self.options.rank, []
        for block in blocks:
            sizes += [block.rows * rank, block.columns * rank] if block.columns else [block.size]
        parts = iter(tf.split(values, sizes))
        rebuilt = []
        for block in blocks:
            part = next(parts)
            if block.columns:
                p, q = (tf.reshape(factor, [-1, rank]) for factor in (part, next(parts)))
                part = tf.reshape(tf.matmul(p, q, transpose_b=True), [-1])
            rebuilt.append(part)
        return rebuilt


def _compute_dtype(dtype: tf.DType) -> tf.DType:
    """Of the decomposition, which 16-bit types have not."""
    return dtype if dtype.size >= 4 else tf.float32

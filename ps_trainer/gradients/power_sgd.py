"""Gradient transform `power_sgd`: sends each matrix as the product of two thin ones."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer.gradients.base import Codec, Encoded, Feedback, Scope, Segment, Stage
from ps_trainer.gradients.scale import concatenate_vectors
from ps_trainer.options import option


class MatrixBlock(NamedTuple):
    """A range of a site's vector: a matrix of `rows` x `columns`, or a plain vector of `rows` if `columns` is 0."""

    rows: int
    columns: int

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.rows * max(1, self.columns)


class PowerSgd(Codec):
    """Approximates each matrix by one of low rank: one step of subspace iteration from the result of the last step.

        P ← M Q        P ← orthonormal basis of P's columns        Q ← Mᵀ P        C(M) = P Qᵀ

    Source: Vogels et al. 2019, Algorithm 1, with warm start (§4.2).
    Bytes: 4 · rank · (rows + columns) per matrix, 4 per element of everything else. State: Q, columns x rank per
    matrix, normally distributed at first. Biased. It approaches the best rank-r matrix only after a few steps of slowly
    changing gradients. So it needs error_feedback before it, as in the paper (Algorithm 2); a run adds it.

    Departs from the paper. There all-reduce averages P and Q over the workers, which is possible because each is linear
    in M. The product is built from the averages. Here each worker sends its own P and Q, orthonormalised by itself, and
    the ps builds the product. The sum of the workers' products has a rank of up to rank x num_workers, so the
    approximation is at least as good. The ps must compute every product. In return the transform works with rules
    without a barrier.

    A model variable of two or more dimensions is a matrix with its last dimension as columns and all others as rows. Of
    a variable that is cut between ps tasks, the matrix holds the whole rows on this ps. Vectors, and matrices that
    would not become smaller, are sent unchanged. Rows of tables pass unchanged.
    """

    name = "power_sgd"
    stage = Stage.SELECT

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `PowerSgd`."""

        rank: int = option(2, "columns of the two factors; 1 to 4 is usual", least=1)

    @property
    def feedback(self) -> Feedback:
        return Feedback.NEEDED

    def encode(self, values: tf.Tensor, scope: Scope) -> Encoded:
        blocks = self.blocks(scope.segments, values.shape.num_elements())
        sent = []
        for i, (block, part) in enumerate(zip(blocks, tf.split(values, [block.size for block in blocks]), strict=True)):
            sent += self._factors(block, part, scope, i) if block.columns else [part]

        def decode(values: tf.Tensor, side: Sequence[tf.Tensor]) -> tf.Tensor:
            return concatenate_vectors(self._rebuilt(blocks, values))

        return Encoded(concatenate_vectors(sent), (), decode)

    def blocks(self, segments: Sequence[Segment], size: int) -> list[MatrixBlock]:
        """Returns the matrices to factor and the ranges between them; together all `size` elements, in order."""
        blocks, plain = [], 0
        for segment in segments:
            matrix = self._matrix(segment)
            if matrix is None:
                plain += segment.size
                continue
            # Another ps task holds the beginning of a row that is cut; the rest of that row is sent as it is.
            head = -segment.start % matrix.columns
            blocks += [MatrixBlock(plain + head, 0), matrix]
            plain = segment.size - head - matrix.size
        blocks.append(MatrixBlock(plain if segments else size, 0))
        return [block for block in blocks if block.size]

    def _matrix(self, segment: Segment) -> MatrixBlock | None:
        """Returns the whole rows in a range of a variable as a matrix, or None if its factors are not smaller."""
        columns = segment.shape[-1] if len(segment.shape) >= 2 else 0
        if not columns:
            return None
        first = math.ceil(segment.start / columns)
        rows = (segment.start + segment.size) // columns - first
        is_smaller = rows > 0 and self.options.rank * (rows + columns) < rows * columns
        return MatrixBlock(rows, columns) if is_smaller else None

    def _factors(self, block: MatrixBlock, part: tf.Tensor, scope: Scope, i: int) -> list[tf.Tensor]:
        """Builds P and Q of a matrix, as vectors."""
        dtype = _compute_dtype(part.dtype)
        shape = [block.columns, self.options.rank]
        seed = [scope.state.static_seed(f"start_{i}"), 0]

        def start(shape: Sequence[int], dtype: tf.DType, **_: Any) -> tf.Tensor:
            return tf.random.stateless_normal(shape, tf.constant(seed, tf.int64), dtype=dtype)

        # The first Q follows from the run's seed, so a run with a fixed seed repeats its numbers.
        last = scope.state.variable(f"q_{i}", shape, dtype, start)
        matrix = tf.cast(tf.reshape(part, block), dtype)
        # QR gives a basis of a zero matrix as well, so the iteration recovers from a gradient of zeros.
        p, _ = tf.linalg.qr(tf.matmul(matrix, last.read_value()))
        q = tf.matmul(matrix, p, transpose_a=True)
        scope.state.update(last, q)
        return [tf.cast(tf.reshape(factor, [-1]), part.dtype) for factor in (p, q)]

    def _rebuilt(self, blocks: Sequence[MatrixBlock], values: tf.Tensor) -> list[tf.Tensor]:
        """Builds each block's elements from the values that `encode` sends."""
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
    """Returns the type in which to decompose a matrix, because TensorFlow does not decompose 16-bit types."""
    return dtype if dtype.size >= 4 else tf.float32

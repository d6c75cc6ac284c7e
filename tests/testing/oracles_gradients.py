"""Oracles of the gradient transforms: each equation in plain NumPy, in float32 throughout."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Parts = Sequence[slice]


def clip_norm(values: Sequence[np.ndarray], norm: float) -> list[np.ndarray]:
    """g · min(1, norm / ‖g‖₂), where the norm covers all arrays together."""
    total = math.sqrt(sum(float(np.sum(np.square(value, dtype=np.float64))) for value in values))
    return [value * np.float32(min(1.0, norm / total)) for value in values]


def cast(values: np.ndarray, dtype: str) -> np.ndarray:
    """Values rounded to the nearest 16-bit number, ties to even; bfloat16 is the upper half of a float32."""
    if dtype == "float16":
        return values.astype(np.float16).astype(np.float32)
    bits = values.view(np.uint32)
    half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return ((bits + half) & np.uint32(0xFFFF0000)).view(np.float32)


def neighbours(values: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """The 16-bit numbers around each value: towards 0, and away from 0; the same number twice if it has 16 bits."""
    if dtype == "float16":
        nearest = values.astype(np.float16)
        exact = nearest.astype(np.float32)
        inner = np.where(np.abs(exact) > np.abs(values), np.nextafter(nearest, np.float16(0)), nearest)
        outer = np.where(exact == values, nearest, np.nextafter(inner, np.copysign(np.float16(np.inf), inner)))
        return inner.astype(np.float32), outer.astype(np.float32)
    bits = values.view(np.uint32)
    inner_bits = bits & np.uint32(0xFFFF0000)
    outer_bits = np.where(bits == inner_bits, bits, inner_bits + np.uint32(0x10000))
    return inner_bits.view(np.float32), outer_bits.view(np.float32)


def cast_at_random(values: np.ndarray, dtype: str, random: np.ndarray) -> np.ndarray:
    """Values rounded away from 0 where a draw below 2¹⁶, or its upper 13 bits for float16, reaches the next number."""
    inner, outer = neighbours(values, dtype)
    steps = 2 ** (13 if dtype == "float16" else 16)
    # Every part between two normal numbers is a multiple of 1 / steps, so the quotient is exact.
    part = np.divide(values - inner, outer - inner, out=np.zeros_like(values), where=outer != inner)
    draws = random // (2**16 // steps)
    return np.where(draws + np.floor(part * steps) >= steps, outer, inner)


def at(values: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """`values` at `indices`, 0 elsewhere."""
    kept = np.zeros_like(values)
    kept[indices] = values[indices]
    return kept


def largest(values: np.ndarray, k: int) -> np.ndarray:
    """Indices of the `k` elements of largest magnitude."""
    return np.argsort(-np.abs(values), kind="stable")[:k]


def one_bit(values: np.ndarray, parts: Parts) -> np.ndarray:
    """Each element replaced by the mean of its part's elements of the same sign."""
    result = np.empty_like(values)
    for part in parts:
        is_positive = values[part] >= 0
        for chosen in (is_positive, ~is_positive):
            if chosen.any():
                result[part][chosen] = values[part][chosen].mean()
    return result


def sign(values: np.ndarray, parts: Parts, scaled: bool) -> np.ndarray:
    """±1, times the part's mean magnitude if `scaled`."""
    result = np.where(values >= 0, np.float32(1), np.float32(-1))
    for part in parts:
        result[part] *= np.abs(values[part]).mean() if scaled else 1
    return result


def terngrad(values: np.ndarray, parts: Parts, random: np.ndarray, sigma: float | None = None) -> np.ndarray:
    """s · sign(g) where random < |g| / s, else 0; s is the part's largest magnitude after clipping at sigma · σ."""
    result = np.zeros_like(values)
    for part in parts:
        own = values[part]
        if sigma is not None:
            bound = np.float32(sigma) * own.std()
            own = np.clip(own, -bound, bound)
        scale = np.abs(own).max()
        result[part] = scale * np.sign(own) * (random[part] < np.abs(own) / scale)
    return result


def qsgd(values: np.ndarray, levels: int, bucket_size: int, norm: str, random: np.ndarray) -> np.ndarray:
    """‖g‖ · sign(g) · ξ / s per bucket, where ξ is s|g|/‖g‖ rounded up if random is at least 1 minus its fraction."""
    result = np.empty_like(values)
    for start in range(0, values.size, bucket_size):
        part = slice(start, min(start + bucket_size, values.size))
        own = values[part]
        length = np.sqrt(np.sum(own * own)) if norm == "l2" else np.abs(own).max()
        level = np.floor(np.abs(own) / length * np.float32(levels) + random[part])
        result[part] = length * np.sign(own) * level / np.float32(levels)
    return result


def power_sgd(matrix: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(P Qᵀ, Q) of one subspace iteration that starts at `q`."""
    p = np.linalg.qr(matrix.astype(np.float64) @ q)[0]
    q = matrix.T @ p
    return (p @ q.T).astype(np.float32), q


class ErrorFeedback:
    """p = g + e; send C(p); e = p − C(p)."""

    def __init__(self, size: int):
        self.residual = np.zeros(size, np.float32)

    def corrected(self, gradient: np.ndarray) -> np.ndarray:
        return gradient + self.residual

    def sent(self, corrected: np.ndarray, sent: np.ndarray) -> np.ndarray:
        self.residual = corrected - sent
        return sent


class Dgc:
    """Lin et al. 2018, Algorithm 4, where the sample is the whole variable: exactly k elements are sent."""

    def __init__(self, size: int, momentum: float):
        self.u, self.v = np.zeros(size, np.float32), np.zeros(size, np.float32)
        self._momentum = np.float32(momentum)

    def send(self, gradient: np.ndarray, parts: Parts, counts: Sequence[int]) -> np.ndarray:
        """From each part, its own count of elements with the largest |v|."""
        self.u = self._momentum * self.u + gradient
        self.v = self.v + self.u
        chosen = np.concatenate([part.start + largest(self.v[part], k) for part, k in zip(parts, counts, strict=True)])
        sent = at(self.v, chosen)
        self.u[chosen] = 0
        self.v[chosen] = 0
        return sent

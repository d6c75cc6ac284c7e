"""Placement report: the variables of each ps task, with their sizes."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.store.pieces import Piece


def placement_report(pieces: Sequence[Piece], num_ps: int) -> str:
    """Returns a table of ps variables with shape, bytes and ps task, then the bytes per ps task and the imbalance.

    Imbalance is the bytes of the fullest ps task divided by the mean; 1.0 is perfect. Optimizer slots do not count.
    """
    rows = [
        (
            piece.variable.op.name,
            "×".join(map(str, piece.variable.shape.as_list())) or "scalar",
            _num_bytes(piece),
            piece,
        )
        for piece in pieces
    ]
    width = max(len(row[0]) for row in rows)
    lines = [f"{'variable':{width}}  {'shape':>12}  {'bytes':>12}  ps  model variables"]
    totals = [0] * num_ps
    for name, shape, num_bytes, piece in rows:
        totals[piece.ps] += num_bytes
        lines.append(f"{name:{width}}  {shape:>12}  {num_bytes:>12,}  {piece.ps:>2}  {_contents(piece)}")
    totals_text = ", ".join(f"{total:,}" for total in totals)
    lines.append(f"bytes per ps: {totals_text}; imbalance {imbalance(pieces, num_ps):.2f}")
    return "\n".join(lines)


def imbalance(pieces: Sequence[Piece], num_ps: int) -> float:
    """Returns the bytes of the fullest ps task divided by the mean of all."""
    totals = [0] * num_ps
    for piece in pieces:
        totals[piece.ps] += _num_bytes(piece)
    return max(totals) * num_ps / sum(totals) if sum(totals) else 1.0


def _num_bytes(piece: Piece) -> int:
    return piece.variable.shape.num_elements() * piece.variable.dtype.base_dtype.size


def _contents(piece: Piece) -> str:
    names = [extent.name for extent in piece.extents]
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} … {names[-1]} ({len(names)})"

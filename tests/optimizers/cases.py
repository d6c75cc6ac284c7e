"""Gradients that the optimizer tests share: a table of 5 rows, over 4 steps."""

from __future__ import annotations

import numpy as np

_RANDOM = np.random.default_rng(3)

INITIAL = _RANDOM.normal(size=(5, 3)).astype(np.float32)
DENSE = [_RANDOM.normal(size=(5, 3)).astype(np.float32) for _ in range(4)]
# Row 2 repeats within a step; row 1 is absent for a step; row 4 never occurs; the third step has no row at all.
INDICES = [[0, 2, 2, 1], [2, 0], [], [1, 3, 1]]
SPARSE = [(_RANDOM.normal(size=(len(rows), 3)).astype(np.float32), rows) for rows in INDICES]


def assert_untouched_rows_are_identical(states: list[dict[str, np.ndarray]]) -> None:
    """Asserts that each step of SPARSE leaves all rows that it does not contain unchanged, bit by bit, in `states`."""
    for rows, before, after in zip(INDICES, states, states[1:], strict=False):
        others = [row for row in range(len(INITIAL)) if row not in rows]
        for name in before:
            assert before[name][others].tobytes() == after[name][others].tobytes(), f"{name}, step with rows {rows}"

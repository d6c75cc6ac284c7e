"""The placement report: its lines, its totals and its imbalance."""

from __future__ import annotations

from ps_trainer.store.extents import Extent
from ps_trainer.store.pieces import Piece
from ps_trainer.store.placement_report import imbalance, placement_report
from tests.testing.cluster import environment  # noqa: F401 - prepares TensorFlow's environment

import tensorflow.compat.v1 as tf  # isort: skip - after the environment


def make_pieces(*described):
    """Pieces from (name, shape, dtype, ps, names of the model variables in the piece)."""
    with tf.Graph().as_default():
        return [
            Piece(
                tf.get_variable(name, shape, dtype, use_resource=True),
                ps,
                tuple(Extent(inside, 0, 1, 0) for inside in names),
                pulled=None,
                trainable=True,
                is_table=False,
            )
            for name, shape, dtype, ps, names in described
        ]


PIECES = (
    ("packed", (1000,), tf.float32, 0, ("a", "b", "c", "d")),
    ("table", (10, 5), tf.float64, 1, ("table",)),
    ("scale", (), tf.float32, 1, ("x", "y", "z")),
)


def test_a_line_per_variable_with_shape_bytes_and_ps():
    lines = [line.split() for line in placement_report(make_pieces(*PIECES), 3).splitlines()]
    assert lines[0][:4] == ["variable", "shape", "bytes", "ps"]
    assert lines[1] == ["packed", "1000", f"{1000 * 4:,}", "0", "a", "…", "d", "(4)"]
    assert lines[2] == ["table", "10×5", str(10 * 5 * 8), "1", "table"]
    assert lines[3] == ["scale", "scalar", "4", "1", "x,", "y,", "z"]
    assert len(lines) == 1 + 3 + 1


def test_the_last_line_adds_up_the_bytes_of_each_ps():
    last = placement_report(make_pieces(*PIECES), 3).splitlines()[-1]
    imbalance_v = 4000 / ((4000 + 404 + 0) / 3)
    assert last == f"bytes per ps: 4,000, 404, 0; imbalance {imbalance_v:.2f}"


def test_imbalance_is_the_largest_divided_by_the_mean():
    even = make_pieces(("a", (6,), tf.float32, 0, ("a",)), ("b", (3, 2), tf.float32, 1, ("b",)))
    assert imbalance(even, 2) == 1.0
    assert imbalance(even[:1], 2) == 2.0
    assert imbalance([], 2) == 1.0

"""Nearest words and the rank correlation, on vectors for which both are known."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import neighbours


def test_nearest_words_have_the_smallest_angles():
    vectors = neighbours.unit_rows(np.array([[2.0, 0.0], [3.0, 1.0], [0.0, 5.0], [-1.0, 0.0]]))
    assert list(neighbours.nearest_words(vectors, 0, 2)) == [1, 2]
    assert list(neighbours.nearest_words(vectors, 2, 3)) == [1, 0, 3]


def test_rank_correlation_depends_only_on_the_order_of_the_cosines():
    angles = np.array([0.0, 0.1, 0.3, 0.7])
    first = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    wider = np.stack([np.cos(2 * angles), np.sin(2 * angles)], axis=1)
    assert neighbours.rank_correlation(first, wider) == pytest.approx(1)
    # The cosines of the pairs 01 02 03 12 13 23 by size: 01 12 23 02 13 03. Of the other vectors only 01 is not 0.
    others = np.array([[1.0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]])
    ranks, other_ranks = [6, 3, 1, 5, 2, 4], [6, 3, 3, 3, 3, 3]
    assert neighbours.rank_correlation(first, others) == pytest.approx(np.corrcoef(ranks, other_ranks)[0, 1])


def test_a_folder_without_a_run_is_an_error_that_names_it(tmp_path, capsys):
    with pytest.raises(SystemExit):
        neighbours.main([str(tmp_path)])
    assert f"{tmp_path} has no config.json" in capsys.readouterr().err

"""Prints the nearest neighbours of words in a trained word2vec, and its agreement with counting.

    python -m benchmarks.neighbours LOGDIR --words=list,returns

The run must use the dataset text_windows. The score is a rank correlation over all pairs of test words. It compares the
cosines of the words' vectors with those of their rows of pointwise mutual information (see the dataset).
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Sequence

import numpy as np

from ps_trainer import component_tables, recorded_config
from ps_trainer.checkpoints.report import find_checkpoint
from ps_trainer.errors import EXIT_DONE

_NUM_SHOWN = 5


def main(argv: Sequence[str]) -> int:
    """Prints neighbours and score; returns 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.neighbours", description=__doc__.splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("logdir", type=pathlib.Path, help="folder of a run on dataset text_windows")
    parser.add_argument("--words", default="", help="comma-separated words; by default some test words")
    flags = parser.parse_args(argv)
    recorded = recorded_config.read(flags.logdir)
    if recorded is None:
        parser.error(f"{flags.logdir} has no config.json; name the --logdir of a run")
    source = component_tables.DATASETS.create(
        recorded["dataset"], recorded["dataset_option"], data_dir=recorded.get("data_dir")
    )
    vectors = unit_rows(find_checkpoint(flags.logdir / "checkpoints")["input"][: source.vocab_size])
    tokens, words = source.vocabulary.tokens, source.compared_words
    shown = [tokens.index(word) for word in flags.words.split(",") if word] or words[::20]
    for word in shown:
        nearest = [tokens[other] for other in nearest_words(vectors, word, _NUM_SHOWN)]
        print(f"| {tokens[word]} | {', '.join(nearest)} |")
    score = rank_correlation(vectors[words], source.information[words])
    print(f"rank correlation with counting, {len(words)} words: {score:.3f}")
    return EXIT_DONE


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Returns the rows, each divided by its length; zeros stay."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def nearest_words(vectors: np.ndarray, word: int, count: int) -> np.ndarray:
    """Returns the other rows with the largest cosines with a row; the largest first.

    Args:
        vectors: [V, D], of length 1.
        word: Number of the row.
        count: Number of neighbours.
    """
    cosine = vectors @ vectors[word]
    # A word's cosine with itself is the largest, and would always win.
    cosine[word] = -np.inf
    return np.argsort(-cosine, kind="stable")[:count]


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Returns Spearman's rank correlation between the cosines of all pairs of rows in two sets of unit vectors.

    Args:
        first: [words, D].
        second: [words, E].
    """
    pairs = np.triu_indices(len(first), 1)
    ranks = [_ranks((vectors @ vectors.T)[pairs]) for vectors in (first, second)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    """Returns the rank of each value; equal values have the mean of their ranks."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

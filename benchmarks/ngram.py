"""A baseline for language models: predicts each symbol from the few symbols before it, by counting.

    python -m benchmarks.ngram --help

It is trained and tested on the batches that a model gets, so that both predict the same symbols.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from benchmarks import arguments
from ps_trainer import component_tables
from ps_trainer.errors import EXIT_DONE

SPLITS = ("train", "test")

_BATCH_SIZE = 256


class _Counts(NamedTuple):
    """Counts of the groups of n symbols by sorted codes, and the same for their first n - 1 symbols."""

    codes: np.ndarray
    counts: np.ndarray
    contexts: np.ndarray
    totals: np.ndarray
    num_types: np.ndarray
    discount: float


class NGram:
    """Interpolated Kneser-Ney smoothing.

    With c(h s) the number of times that symbol s follows the n - 1 symbols h, and h' these without the first,

        P(s | h) = max(c(h s) - d, 0) / c(h) + d * (symbols seen after h) / c(h) * P(s | h')

    where c is replaced, but for the longest groups, by the number of different symbols seen before h s; where h was
    never seen, P(s | h) = P(s | h'); without any symbol before it, P is 1 / `vocab_size` in place of P(s | h'). The
    discount d of a length is n1 / (n1 + 2 n2), n1 and n2 the numbers of groups counted once and twice.

    Source: R. Kneser, H. Ney, "Improved backing-off for m-gram language modeling", ICASSP 1995; S. F. Chen,
    J. Goodman, "An empirical study of smoothing techniques for language modeling", 1998, section 2.7.

    Args:
        ids_NT: int [N, T], texts to count in, 0 <= id < `vocab_size`.
        order: Symbols of the longest groups, 5 for four symbols before one.
        vocab_size: Number of different symbols.

    Raises:
        ValueError: `vocab_size ** order` is more than an int64 holds, or the texts are shorter than a group.
    """

    def __init__(self, ids_NT: np.ndarray, *, order: int, vocab_size: int):
        if vocab_size**order >= 2**63:
            raise ValueError(f"groups of order={order} of vocab_size={vocab_size} symbols do not fit into an int64")
        if ids_NT.shape[1] < order:
            raise ValueError(f"texts of {ids_NT.shape[1]} symbols have no groups of order={order}")
        self._vocab_size = vocab_size
        codes, counts = np.unique(self._groups(ids_NT, order), return_counts=True)
        self._orders = [self._counts(codes, counts)]
        for length in range(order - 1, 0, -1):
            codes, counts = np.unique(codes % vocab_size**length, return_counts=True)
            self._orders.insert(0, self._counts(codes, counts))

    def bits(self, ids_NT: np.ndarray) -> np.ndarray:
        """Returns the bits to predict each symbol of a text but the first from those before it: float [N, T - 1].

        Args:
            ids_NT: int [N, T].
        """
        share = np.full((len(ids_NT), ids_NT.shape[1] - 1), 1 / self._vocab_size)
        for length, counted in enumerate(self._orders, 1):
            groups = self._groups(ids_NT[:, 1:] if length == 1 else ids_NT, length)
            count = _look_up(counted.codes, counted.counts, groups)
            context = groups // self._vocab_size
            total = _look_up(counted.contexts, counted.totals, context)
            num_types = _look_up(counted.contexts, counted.num_types, context)
            # The first symbols of a text have too few symbols before them, and keep the share of the shorter groups.
            at = slice(max(length - 2, 0), None)
            kept = np.maximum(count - counted.discount, 0) + counted.discount * num_types * share[:, at]
            share[:, at] = np.where(total > 0, kept / np.maximum(total, 1), share[:, at])
        return -np.log2(share)

    def _groups(self, ids_NT: np.ndarray, length: int) -> np.ndarray:
        """Returns each group of `length` symbols that follow each other, as one number: int64 [N, T - length + 1]."""
        windows = np.lib.stride_tricks.sliding_window_view(ids_NT.astype(np.int64), length, axis=1)
        return windows @ self._vocab_size ** np.arange(length)[::-1]

    def _counts(self, codes: np.ndarray, counts: np.ndarray) -> _Counts:
        contexts, position, num_types = np.unique(codes // self._vocab_size, return_inverse=True, return_counts=True)
        once, twice = np.sum(counts == 1), np.sum(counts == 2)
        # Without groups counted once the formula gives 0, and an unseen symbol would cost infinitely many bits.
        discount = float(once / (once + 2 * twice)) if once else 0.5
        return _Counts(codes, counts, contexts, np.bincount(position, counts), num_types, discount)


def main(argv: Sequence[str]) -> int:
    """Prints the mean bits per symbol of the test examples of a dataset with "ids"; returns 0."""
    parser = arguments.create_parser("benchmarks.ngram", __doc__)
    parser.add_argument("--dataset", default="text", help='one whose batches have "ids"')
    parser.add_argument("--dataset_option", action="append", default=[], help="key=value for the dataset")
    parser.add_argument("--data_dir", help="folder of the dataset's files, if the dataset reads files")
    parser.add_argument("--order", type=int, default=5, help="symbols in the longest counted group")
    parser.add_argument(
        "--unbroken",
        action="store_true",
        help="join consecutive examples, which overlap by one symbol, so that each symbol has enough symbols before it",
    )
    flags = parser.parse_args(argv)
    source = component_tables.DATASETS.create(flags.dataset, flags.dataset_option, data_dir=flags.data_dir)
    train, test = (_read(functools.partial(source.in_order, split, batch_size=_BATCH_SIZE)) for split in SPLITS)
    if flags.unbroken:
        train, test = (ids[:, 1:].reshape(1, -1) for ids in (train, test))
    vocab_size = int(max(train.max(), test.max())) + 1
    bits = NGram(train, order=flags.order, vocab_size=vocab_size).bits(test).mean()
    print(f"{flags.dataset}, {vocab_size} symbols: {bits:.4f} bits per symbol by groups of {flags.order}")
    return EXIT_DONE


def _look_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    # A wanted key above all others has the position after the last; the comparison below rejects it.
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], 0)


def _read(make_dataset: Callable[[], tf.data.Dataset]) -> np.ndarray:
    """Returns all "ids" of the dataset that `make_dataset` gives in a separate graph."""
    with tf.Graph().as_default(), tf.Session() as session:
        iterator = tf.data.make_initializable_iterator(make_dataset().map(lambda batch: batch["ids"]))
        ids = iterator.get_next()
        session.run([iterator.initializer, tf.tables_initializer()])
        batches = []
        while True:
            try:
                batches.append(session.run(ids))
            except tf.errors.OutOfRangeError:
                return np.concatenate(batches)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The 1,797 handwritten digits that this package contains."""

from __future__ import annotations

import dataclasses
import importlib.resources

import numpy as np

from ps_trainer.data.pipeline.array_source import ArraySource

NUM_TEST = 360
"""Number of test examples."""

SPLIT_SEED = 1797
"""Seed that decides which examples are test examples; published results depend on it."""


class Digits(ArraySource):
    """Handwritten digits, 8x8 pixels, part of this package: 1,437 examples to train on, 360 to test on.

    Batches: "image" float32 [B, 8, 8, 1] in 0..1; "label" int64 [B], 0..9. The split is the same in every run.
    Source: UCI "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak), CC BY 4.0;
    `ps_trainer/data/files/README.md`.

    Args:
        options: Options of the dataset; it has none.
        data_dir: Not used.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """No options."""

    def __init__(self, options: Options, *, data_dir: str | None = None):
        del options, data_dir
        images, labels = load_arrays()
        train, test = split(labels)
        super().__init__(
            {"image": images[train], "label": labels[train]},
            {"image": images[test], "label": labels[test]},
            num_classes=10,
            image_scale=1 / 16,
        )
        self.class_names = tuple("0123456789")


def load_arrays() -> tuple[np.ndarray, np.ndarray]:
    """Loads the images, uint8 [1797, 8, 8, 1] in 0..16, and the labels, int64 [1797], in the order of the file."""
    file = importlib.resources.files("ps_trainer.data") / "files" / "digits.npz"
    with file.open("rb") as stream, np.load(stream) as arrays:
        return arrays["images"][..., np.newaxis], arrays["labels"].astype(np.int64)


def split(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Splits examples into training and test examples, stratified by class, in the same way on every machine.

    Each class gives the test set its share, n_c * 360 / n examples, rounded down. The classes whose shares lost most by
    the rounding give one example more each, until there are 360; of equal losses the lower label is first. So the
    totals are exact, and the number of each class differs from its share by less than one example.

    Args:
        labels: int64 [n], n >= 360.

    Returns:
        Two ascending int arrays: n - 360 training and 360 test indices.
    """
    counts = np.bincount(labels)
    # Integer division: share * n = counts * NUM_TEST, so quotient and remainder have no rounding errors.
    num_test, lost = np.divmod(counts * NUM_TEST, len(labels))
    num_test[np.argsort(-lost, kind="stable")[: NUM_TEST - num_test.sum()]] += 1
    # NumPy guarantees the sequence of RandomState for all versions, but not the sequence of default_rng.
    random = np.random.RandomState(SPLIT_SEED)
    is_test = np.zeros(len(labels), bool)
    for label, n in enumerate(num_test):
        is_test[random.permutation(np.flatnonzero(labels == label))[:n]] = True
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)

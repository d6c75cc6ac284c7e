"""The 1,797 handwritten digits that are shipped with this package."""

from __future__ import annotations

import dataclasses
import importlib.resources

import numpy as np

from ps_trainer.data.pipeline.data_source import ArraySource

NUM_TEST = 360
SPLIT_SEED = 1797


class Digits(ArraySource):
    """Handwritten digits, 8x8 pixels, shipped: 1,437 to train on and 360 to test.

    Batches: "image" float32 [B, 8, 8, 1] in 0..1; "label" int64 [B], 0..9. The split is fixed: see `split`.
    Source: UCI "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak), CC BY 4.0;
    `ps_trainer/data/files/README.md`.

    Args:
        options: none to set.
        data_dir: not used.
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


def load_arrays() -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [1797, 8, 8, 1] in 0..16, and labels int64 [1797], in the order of the file."""
    file = importlib.resources.files("ps_trainer.data") / "files" / "digits.npz"
    with file.open("rb") as stream, np.load(stream) as arrays:
        return arrays["images"][..., np.newaxis], arrays["labels"].astype(np.int64)


def split(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the training and of the test examples, stratified, the same on every machine.

    Each class gives the test set its share n_c * 360 / n of the examples, rounded down; the examples
    still missing to 360 come one each from the classes whose share lost most by rounding (the lower
    label first where equal). So the totals are exact, and no class is off its share by a whole example.

    Args:
        labels: int64 [n], n >= 360.

    Returns:
        Two ascending int arrays: n - 360 training and 360 test indices.
    """
    counts = np.bincount(labels)
    # Whole numbers: share * n = counts * NUM_TEST, so quotient and remainder are free of rounding errors.
    num_test, lost = np.divmod(counts * NUM_TEST, len(labels))
    num_test[np.argsort(-lost, kind="stable")[: NUM_TEST - num_test.sum()]] += 1
    # RandomState, because its sequence is frozen for all versions of NumPy; that of default_rng is not.
    random = np.random.RandomState(SPLIT_SEED)
    is_test = np.zeros(len(labels), bool)
    for label, n in enumerate(num_test):
        is_test[random.permutation(np.flatnonzero(labels == label))[:n]] = True
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)

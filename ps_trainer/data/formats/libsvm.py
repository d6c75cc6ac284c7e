"""Sparse examples in the text format of LIBSVM and svmlight.

    <label> <index>:<value> <index>:<value> …    # a comment

Indices are whole numbers, usually from 1 and ascending. Values that are not listed are 0. svmlight's `qid:<number>`
after the label is ignored.

Source: the README file of LIBSVM, C.-C. Chang, C.-J. Lin; https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets.
"""

from __future__ import annotations

import codecs
import dataclasses
import pathlib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.data.pipeline.line_source import LineSource, NamedFiles, open_unpacked, without_mark
from ps_trainer.errors import DataError
from ps_trainer.options import option

_NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"
LINE = rf"\s*{_NUMBER}(\s+qid:\d+)?(\s+\d{{1,18}}:{_NUMBER})*\s*(#.*)?"
TRAIN = "train"

_COMMENT = re.compile(rb"#[^\n]*")
_BEFORE_FEATURES = re.compile(rb"(?m)^[^\S\n]*[^\s:]+(?=\s|$)([^\S\n]+qid:\d+)?")
_LABEL = re.compile(rf"(?m)^[^\S\n]*({_NUMBER.replace('(', '(?:')})(?=\s|$)".encode())
_PAIR = re.compile(rf"\s(\d{{1,18}}):({_NUMBER.replace('(', '(?:')})".encode())
_CHUNK_BYTES = 2**22
_MAX_SCALED = 2**22
_SHOWN_LABELS = 5
_LARGE = 100.0  # of a value; gradients grow with its square


class LibSvm(LineSource):
    """Sparse examples of two classes in files of the LIBSVM format, from --data_dir.

    Batches: "ids" int64 [B, M] and "values" float32 [B, M], the indices and values of each example. M is the largest
    number in the batch; shorter examples are padded with index 0 and value 0. "label" int64 [B], 1 for a label above 0
    in the file, else 0. If both labels of the files are above 0, such as 1 and 2, or none is, the larger one becomes 1.

    Args:
        options: Names of the files.
        data_dir: Folder of the files.
        facts: Facts about the files.

    Attributes:
        num_features: Largest index of all files, plus 1.

    Raises:
        DataError: The folder or a file is missing, or a file is empty. There are more than two labels, and
            `positive_above` is not given, or all training lines are of one class.
    """

    num_classes = 2
    takes_facts = True

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(NamedFiles):
        """Options of `LibSvm`."""

        normalize: bool = option(
            False, "whether to divide each value by the largest absolute value of its feature in the training lines"
        )
        positive_above: float | None = option(
            None, "labels above this number are class 1, all others class 0; default: there must be two labels"
        )

    def __init__(self, options: Options, *, data_dir: str | None = None, facts: Facts | None = None):
        self.facts = facts or Facts()
        train, test = options.find("libsvm", data_dir, self.facts)
        form = "<label> <index>:<value> … with numbers"
        super().__init__(train, test, pattern=LINE, form=form, test_every=options.test_every)
        paths = [file.path for file in (*train, *test)]
        settings: list[Any] = [self._test_every, len(train)]
        if options.positive_above is not None:
            settings.append(options.positive_above)
        found = self.facts.find("features", paths, settings, lambda: self._examine_files(paths, len(train), options))
        self.num_features, self._scales = found["num_features"], None
        self._positive_above = found.get("positive_above", 0.0)  # a record of an older version does not have it
        positive = found.get("positive_share")
        self.label_shares = () if positive is None else (1 - positive, positive)
        if options.normalize:
            paths = paths[: len(train)]
            self._scales = self.facts.find(
                "scales", paths, settings, lambda: self._find_scales(paths, found["num_features"])
            )
        if not options.normalize and found["largest"] > _LARGE:
            self.advice = (
                f"{train[0].path}: a value is as large as {found['largest']:.4g}; large values make training diverge or"
                " crawl: --dataset_option=normalize=true divides each by the largest one of its feature"
            )

    def _examine_files(self, paths: Sequence[pathlib.Path], num_train: int, options: Options) -> dict[str, Any]:
        """Returns facts about the features and labels, and of the training lines the share of label 1."""
        index, largest, above, given = 0, 0.0, 0.0, options.positive_above
        counts: tuple[Counter[float], Counter[float]] = Counter(), Counter()  # labels of test lines, of training lines
        for number, path in enumerate(paths):
            for split, ids, values, labels in _pairs(path, self._test_every):
                index = max(index, int(ids.max(initial=0)))
                is_train = number < num_train and split == TRAIN
                if is_train:
                    largest = max(largest, float(np.abs(values).max(initial=0)))
                counts[is_train].update((labels if given is None else labels > given).tolist())
                above = _threshold(path, counts[0].keys() | counts[1].keys())
        num_positive = sum(count for label, count in counts[True].items() if label > above)
        if counts[True] and num_positive in (0, counts[True].total()):
            raise DataError(
                f"{paths[0]}: {_one_class(counts[True], given, has_other=len(counts[False] | counts[True]) > 1)}"
            )
        share = num_positive / counts[True].total() if counts[True] else None
        above = above if given is None else given
        return {"num_features": 1 + index, "largest": largest, "positive_share": share, "positive_above": above}

    def _find_scales(self, paths: Sequence[pathlib.Path], num_features: int) -> list[float]:
        """Returns the largest absolute value of each feature in the training lines; 1 for one that is always 0."""
        if num_features > _MAX_SCALED:
            raise DataError(
                f"{paths[0]}: normalize=true is for up to {_MAX_SCALED} features, and the largest index is"
                f" {num_features - 1}; scale the values in the file"
            )
        highest = np.zeros(num_features)
        for path in paths:
            for split, ids, values, _ in _pairs(path, self._test_every):
                if split == TRAIN:
                    np.maximum.at(highest, ids, np.abs(values))
        return list(np.where(highest > 0, highest, 1).tolist())

    def _complete_for_prediction(self, records: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        # In a file to predict for, the label may be missing; the 0 in its place does not reach a prediction.
        line = without_mark(records["line"])
        labeled = tf.strings.regex_replace(line, rf"^\s*(\d{{1,18}}:{_NUMBER})", r"0 \1")
        return records | {"line": labeled}

    def _parse(self, line_B: tf.Tensor) -> dict[str, tf.Tensor]:
        line_B = tf.strings.strip(tf.strings.regex_replace(line_B, r"(#.*|\s+qid:\d+)", ""))
        words = tf.strings.split(line_B, result_type="RaggedTensor")
        label_B = tf.strings.to_number(words[:, :1].values)
        features = words[:, 1:]
        pairs = tf.reshape(tf.strings.split(features.values, ":", result_type="RaggedTensor").values, [-1, 2])
        ids, values = tf.strings.to_number(pairs[:, 0], tf.int64), tf.strings.to_number(pairs[:, 1])
        if self._scales is not None:
            values /= tf.gather(tf.constant(self._scales, tf.float32), tf.minimum(ids, len(self._scales) - 1))
        return {
            "ids": features.with_values(ids).to_tensor(),
            "values": features.with_values(values).to_tensor(),
            "label": tf.cast(label_B > self._positive_above, tf.int64),
        }


def _threshold(path: pathlib.Path, labels: Collection[float]) -> float:
    """Returns the number above which a label is class 1; `path` is for messages."""
    if len(labels) > LibSvm.num_classes:
        shown = ", ".join(f"{label:g}" for label in sorted(labels)[:_SHOWN_LABELS])
        raise DataError(
            f"{path}: there are {len(labels)} labels, such as {shown}, and dataset libsvm has two classes; with"
            " --dataset_option=positive_above=<number> labels above the number are one class, and all others the other"
        )
    is_split_by_0 = len(labels) < LibSvm.num_classes or min(labels) <= 0 < max(labels)
    return 0.0 if is_split_by_0 else min(labels)


def _one_class(labels: Collection[float], positive_above: float | None, *, has_other: bool) -> str:
    """Returns the problem of training lines of one class, and the fix.

    Args:
        labels: Labels of the training lines; or, with `positive_above`, whether they are above it.
        positive_above: Value of the option.
        has_other: Whether a test line has another label.
    """
    if positive_above is None:
        problem = f"all training lines have the label {next(iter(labels)):g}, but a model needs two classes"
        return f"{problem}; " + (
            "shuffle the lines, as a test line has the other one" if has_other else "add the other one"
        )
    side = "above" if True in labels else "not above"
    return (
        f"the labels of all training lines are {side} positive_above={positive_above:g}, but a model needs two classes;"
        " give a number between the labels"
    )


def _pairs(path: pathlib.Path, test_every: int) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """Yields the indices, values and labels of many lines at a time, of training lines and of test lines apart.

    Args:
        path: Path of the file.
        test_every: Distance between two test lines; 0 = all lines are of one kind.

    Yields:
        `TRAIN` or another word; indices, int64 [n]; values, float64 [n]; labels, float64 [lines].
    """
    at = 0
    with open_unpacked(path) as (file, _):
        while lines := file.readlines(_CHUNK_BYTES):
            if not at:
                lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
            is_test = [test_every > 0 and number % test_every == 0 for number in range(at, at + len(lines))]
            at += len(lines)
            for split, wanted in ((TRAIN, False), ("test", True)):
                chosen = b"".join(line for line, its in zip(lines, is_test, strict=True) if its == wanted)
                pairs = _numbers(_BEFORE_FEATURES.sub(b"", _COMMENT.sub(b"", chosen)))
                labels = np.array([float(label) for label in _LABEL.findall(chosen)])
                yield split, pairs[:, 0].astype(np.int64), pairs[:, 1], labels


def _numbers(text: bytes) -> np.ndarray:
    """Returns pairs of numbers, float64 [n, 2]; of a malformed line, which the pipeline names later, those it has."""
    try:
        pairs = np.array(text.replace(b":", b" ").split(), np.bytes_).astype(np.float64).reshape(-1, 2)
        if (pairs[:, 0] >= 0).all():
            return pairs
    except ValueError:
        pass
    return np.array([list(map(float, pair)) for pair in _PAIR.findall(text)]).reshape(-1, 2)


def write(path: pathlib.Path, labels: np.ndarray, ids: np.ndarray, values: np.ndarray) -> None:
    """Writes examples that all have the same number of features.

    Args:
        path: Path of the file.
        labels: int [n], the labels.
        ids: int [n, m], ascending in each row.
        values: float [n, m], the value of each index.
    """
    with path.open("w", encoding="ascii") as file:
        for label, row_ids, row_values in zip(labels, ids, values, strict=True):
            pairs = [f"{i}:{value:.9g}" for i, value in zip(row_ids, row_values, strict=True)]
            file.write(" ".join([f"{label:+d}", *pairs]) + "\n")

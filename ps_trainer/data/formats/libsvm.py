"""Sparse examples in the text format of LIBSVM and svmlight.

    <label> <index>:<value> <index>:<value> …    # a comment

Indices are whole numbers, usually from 1 and ascending. Values that are not listed are 0. svmlight's `qid:<number>`
after the label is ignored.

Source: the README file of LIBSVM, C.-C. Chang, C.-J. Lin; https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.data.pipeline.line_files import LineSource, NamedFiles, unpacked

_NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"
LINE = rf"\s*{_NUMBER}(\s+qid:\d+)?(\s+\d{{1,18}}:{_NUMBER})*\s*(#.*)?"
_INDEX = re.compile(rb"\s(\d{1,18}):")


class LibSvm(LineSource):
    """Sparse examples of two classes in files of the LIBSVM format, from --data_dir.

    Batches: "ids" int64 [B, M] and "values" float32 [B, M], the indices and values of each example, with M the largest
    number in the batch; shorter examples are padded with index 0 and value 0. "label" int64 [B], 1 for a label above 0
    in the file, else 0 (files have 1 and -1, or 1 and 0).

    Args:
        options: Names of the files.
        data_dir: Folder of the files.
        facts: What is known of the files.

    Attributes:
        num_features: Largest index of all files, plus 1.

    Raises:
        DataError: The folder or a file is missing, or a file is empty.
    """

    num_classes = 2
    takes_facts = True

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(NamedFiles):
        """Options of `LibSvm`."""

    def __init__(self, options: Options, *, data_dir: str | None = None, facts: Facts | None = None):
        self.facts = facts or Facts()
        train, test = options.find("libsvm", data_dir, self.facts)
        form = "<label> <index>:<value> … with numbers"
        super().__init__(train, test, pattern=LINE, form=form, test_every=options.test_every)
        paths = [file.path for file in (*train, *test)]
        self.num_features = self.facts.find("num_features", paths, None, lambda: 1 + max(map(_largest_index, paths)))

    def _read_file(self, path: pathlib.Path) -> tf.data.Dataset:
        # In a file to predict for, the label may be missing; the 0 in its place does not reach a prediction.
        return (
            super()
            ._read_file(path)
            .map(
                lambda record: (
                    record | {"line": tf.strings.regex_replace(record["line"], rf"^\s*(\d{{1,18}}:{_NUMBER})", r"0 \1")}
                )
            )
        )

    def _parse(self, line_B: tf.Tensor) -> dict[str, tf.Tensor]:
        line_B = tf.strings.strip(tf.strings.regex_replace(line_B, r"(#.*|\s+qid:\d+)", ""))
        words = tf.strings.split(line_B, result_type="RaggedTensor")
        label_B = tf.strings.to_number(words[:, :1].values)
        features = words[:, 1:]
        pairs = tf.reshape(tf.strings.split(features.values, ":", result_type="RaggedTensor").values, [-1, 2])
        return {
            "ids": features.with_values(tf.strings.to_number(pairs[:, 0], tf.int64)).to_tensor(),
            "values": features.with_values(tf.strings.to_number(pairs[:, 1])).to_tensor(),
            "label": tf.cast(label_B > 0, tf.int64),
        }


def _largest_index(path: pathlib.Path) -> int:
    with unpacked(path) as (file, _):
        return max(max(map(int, _INDEX.findall(line.partition(b"#")[0])), default=0) for line in file)


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

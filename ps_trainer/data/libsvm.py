"""Sparse examples in the text format of LIBSVM and svmlight.

    <label> <index>:<value> <index>:<value> …    # a comment

Indices are whole numbers, usually from 1 and ascending; what is not named is 0. svmlight's `qid:<number>` after the
label is passed over.

Source: the README file of LIBSVM, C.-C. Chang, C.-J. Lin; https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets.
"""

from __future__ import annotations

import dataclasses

import tensorflow.compat.v1 as tf

from ps_trainer.data.base import folder_of
from ps_trainer.data.lines import LineSource, text_file
from ps_trainer.errors import DataError, OptionError
from ps_trainer.options import option

_NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"
_LINE = rf"\s*{_NUMBER}(\s+qid:\d+)?(\s+\d{{1,18}}:{_NUMBER})*\s*(#.*)?"


class LibSvm(LineSource):
    """Sparse examples of two classes in files of the LIBSVM format, from --data_dir.

    Batches: "ids" int64 [B, M] and "values" float32 [B, M], the indices and values of each example, M of the one that
    has most; where an example has fewer, index 0 with value 0 fills up. "label" int64 [B], 1 where the label in the
    file is more than 0, else 0 (files have 1 and -1, or 1 and 0).

    Args:
        options: the names of the files.
        data_dir: their folder.

    Raises:
        DataError: no folder, or a missing or empty file.
    """

    num_classes = 2

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `LibSvm`; OptionError where one is missing or out of range."""

        train_files: tuple[str, ...] = option((), "names of the files to train on, with commas")
        test_files: tuple[str, ...] = option((), "names of the files to test on; none: a part of the training files")
        test_every: int = option(10, "without test_files, of so many lines one is a test example, at least 2")

        def __post_init__(self):
            if not self.train_files:
                raise OptionError("train_files is not given; name the files, such as train_files=a9a")
            if self.test_every < 2:
                raise OptionError(f"test_every={self.test_every} is too small; the least is 2")

    def __init__(self, options: Options, *, data_dir: str | None = None):
        names = [*options.train_files, *options.test_files]
        needs = f"dataset libsvm needs --data_dir=<folder> with {', '.join(names)}"
        folder = folder_of(data_dir, needs)
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise DataError(f"{folder} has no {', '.join(missing)}; {needs}")
        super().__init__(
            [text_file(folder / name) for name in options.train_files],
            [text_file(folder / name) for name in options.test_files],
            pattern=_LINE,
            form="<label> <index>:<value> … with numbers",
            test_every=options.test_every,
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

"""The census income dataset, also called Adult: which people earn more than 50,000 dollars a year.

`adult.data` and `adult.test` have 15 columns, separated by a comma and a space. A missing word is `?`. The last line is
empty. The first line of `adult.test` is a comment, and its labels end with a full stop.

Source: R. Kohavi, "Scaling Up the Accuracy of Naive-Bayes Classifiers: a Decision-Tree Hybrid", KDD 1996. The words
come from the file `adult.names` of the dataset in the UCI repository.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re

import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.data_folder import folder_of
from ps_trainer.data.pipeline.file_source import CountedFile
from ps_trainer.data.pipeline.line_source import LineSource, first_line, text_file
from ps_trainer.errors import DataError

NUMBER = "number"
"""Value of `COLUMNS` for a column of numbers."""

COLUMNS: dict[str, str] = {
    "age": NUMBER,
    "workclass": "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked",
    "fnlwgt": NUMBER,
    "education": "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters 1st-4th"
    " 10th Doctorate 5th-6th Preschool",
    "education-num": NUMBER,
    "marital-status": "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent"
    " Married-AF-spouse",
    "occupation": "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners"
    " Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv Armed-Forces",
    "relationship": "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    "race": "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
    "sex": "Female Male",
    "capital-gain": NUMBER,
    "capital-loss": NUMBER,
    "hours-per-week": NUMBER,
    "native-country": "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India Japan"
    " Greece South China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland France"
    " Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand Yugoslavia"
    " El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands",
}
"""Words of each column, separated by spaces, by the name of the column; the column of the label follows these."""

AGES = (18, 25, 30, 35, 40, 45, 50, 55, 60, 65)
"""First age of each group of ages except the youngest group."""

_LABELS = ("<=50K", ">50K")
_SCALED = {"age": 100.0, "education-num": 16.0, "hours-per-week": 100.0}
_LOGARITHM_OF = ("capital-gain", "capital-loss")
_LOGARITHM_SCALE = 12.0  # a little above log(100,000), the logarithm of the largest gain


def _pattern() -> str:
    columns = [
        r"\d{1,9}" if words == NUMBER else f"({'|'.join(map(re.escape, ['?', *words.split()]))})"
        for words in COLUMNS.values()
    ]
    return ", ?".join([*columns, rf"({'|'.join(_LABELS)})\.?"])


LINE = _pattern()
"""Regular expression of a line."""


class Census(LineSource):
    """People of the 1994 census, labelled by an income above 50,000 dollars a year, from --data_dir.

    32,561 examples to train on, 16,281 to test on. Batches:

    * "dense" float32 [B, 5], about 0..1: age / 100, education-num / 16, hours-per-week / 100, log(1 + capital-gain) /
      12, log(1 + capital-loss) / 12.
    * "ids" int64 [B, 9]: for each column of words 1 + the place of the word in `COLUMNS`, at most 41, and 0 for a
      missing word; then the group of ages, 0..10.
    * "label" int64 [B]: 1 for more than 50,000 dollars, else 0.

    The column fnlwgt, the number of people that one example stands for, is not used. Files may be compressed with gzip.

    Args:
        options: Options of the dataset; it has none.
        data_dir: Folder of `adult.data` and `adult.test`, each of which may end in `.gz`.

    Raises:
        DataError: The folder or a file is missing, or a file is empty.
    """

    num_classes = 2
    class_names = ("at most 50,000 dollars", "more than 50,000 dollars")
    file_names = {"train": "adult.data", "test": "adult.test"}

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """No options."""

    def __init__(self, options: Options, *, data_dir: str | None = None):
        del options
        names = self.file_names.values()
        folder = folder_of(data_dir, f"dataset census needs --data_dir=<folder> with {' and '.join(names)}")
        train, test = (self._count_file(_find(folder, name)) for name in names)
        form = "15 columns of a person, separated by a comma and a space"
        super().__init__([train], [test], pattern=LINE, form=form)

    def _count_file(self, path: pathlib.Path) -> CountedFile:
        # Only adult.test begins with a comment; `predict` may read either form.
        return text_file(path, num_header_lines=1 if first_line(path).startswith("|") else 0)

    def _parse(self, line_B: tf.Tensor) -> dict[str, tf.Tensor]:
        kinds = [tf.constant([0.0] if kind == NUMBER else [""]) for kind in COLUMNS.values()]
        # `decode_csv` keeps a space before a word, and the words of `COLUMNS` have none.
        line_B = tf.strings.regex_replace(line_B, ", ", ",")
        *columns, label_B = tf.io.decode_csv(line_B, [*kinds, tf.constant([""])], use_quote_delim=False)
        of = dict(zip(COLUMNS, columns, strict=True))
        dense = [of[name] / scale for name, scale in _SCALED.items()]
        dense += [tf.math.log1p(of[name]) / _LOGARITHM_SCALE for name in _LOGARITHM_OF]
        ids = [_places(of[name], kind.split()) for name, kind in COLUMNS.items() if kind != NUMBER]
        ids.append(tf.reduce_sum(tf.cast(of["age"][:, tf.newaxis] >= AGES, tf.int64), axis=1))
        return {
            "dense": tf.stack(dense, axis=1),
            "ids": tf.stack(ids, axis=1),
            "label": tf.cast(tf.strings.regex_full_match(label_B, ">.*"), tf.int64),
        }


def _places(word_B: tf.Tensor, vocabulary: list[str]) -> tf.Tensor:
    """Returns 1 + the place of each word in `vocabulary`, int64 [B], and 0 for other words."""
    is_it_BN = tf.equal(word_B[:, tf.newaxis], vocabulary)
    return tf.reduce_sum(tf.cast(is_it_BN, tf.int64) * tf.range(1, len(vocabulary) + 1, dtype=tf.int64), axis=1)


def _find(folder: pathlib.Path, name: str) -> pathlib.Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise DataError(f"--data_dir={folder} has no {name}; accepted names: {name}, {name}.gz")

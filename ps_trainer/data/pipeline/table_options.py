"""Options of a table: its files, its columns, and how the lines of delimited text are written."""

from __future__ import annotations

import dataclasses

from ps_trainer.data.pipeline.line_source import NamedFiles
from ps_trainer.data.pipeline.table_columns import KINDS
from ps_trainer.data.pipeline.table_rows import Dialect
from ps_trainer.errors import OptionError
from ps_trainer.options import option

FORMS = ("vector", "sparse", "columns")
"""Forms of a batch."""

_DELIMITERS = {"tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnOptions(NamedFiles):
    """Options of the columns of a table."""

    label: str | None = option(None, "name of the column of labels; in files without a header its number, from 0")
    form: str = option(
        "vector",
        "form of a batch; vector: for mlp; sparse: for logistic_regression, factorization_machine; columns: for"
        " deepfm, wide_deep",
        choices=FORMS,
    )
    positive: str | None = option(None, "label to tell from all others, for two classes")
    columns: tuple[str, ...] = option(
        (), f"kinds of columns, such as zip:category,id:ignore; others are found; kinds: {', '.join(KINDS)}"
    )
    missing: tuple[str, ...] = option(
        ("?", "NA", "N/A", "nan", "NaN", "null"), "words for a missing value, besides an empty one"
    )
    num_buckets: int = option(2**12, "largest number of words of a column, including one for a missing value", least=2)
    columns_of: str | None = option(
        None, "folder of a run of this dataset whose columns, words, means and labels to take; new words are unknown"
    )
    normalize: bool = option(True, "whether to bring numbers to mean 0 and scale 1 by the training rows")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.kinds()

    def kinds(self) -> dict[str, str]:
        """Parses `columns` into kinds by name; raises OptionError if one is malformed."""
        pairs = [column.rpartition(":")[::2] for column in self.columns]
        for column, (_, kind) in zip(self.columns, pairs, strict=True):
            if ":" not in column or kind not in KINDS:  # pandas writes an index as a column without a name
                raise OptionError(
                    f"columns={','.join(self.columns)}: write name:kind, such as zip:category, with one of the"
                    f" kinds {', '.join(KINDS)}"
                )
        return dict(pairs)

    def dialect(self) -> Dialect:
        """Returns how lines with such columns are written, for predictions."""
        return Dialect(missing=frozenset(self.missing), checks_header=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions(ColumnOptions):
    """Options of a table in delimited text files."""

    train_files: tuple[str, ...] = option(("train.csv",), "names of the files to train on")
    header: str = option(
        "auto", "whether the first line has names; auto: unless one is a number", choices=("auto", "true", "false")
    )
    delimiter: str = option(",", "character between values; also tab, comma, semicolon, pipe or space")
    quotes: bool = option(True, "whether double quotes may surround a value")
    decimal: str = option(
        ".", "character before the decimals of a number: a point, or a comma as in 3,14", choices=(".", ",")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        mark = _DELIMITERS.get(self.delimiter, self.delimiter)
        if len(mark.encode()) != 1 or mark in '"\r\n':
            raise OptionError(f"delimiter={self.delimiter!r} must be one ASCII character, or {', '.join(_DELIMITERS)}")

    def dialect(self) -> Dialect:
        """Returns how the lines are written."""
        return Dialect(
            delimiter=_DELIMITERS.get(self.delimiter, self.delimiter),
            has_quotes=self.quotes,
            has_header=self.header != "false",
            checks_header=self.header == "auto",
            missing=frozenset(self.missing),
            decimal=self.decimal,
        )

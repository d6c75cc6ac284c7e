"""Tables in delimited text files (CSV): one row for each example, with a column of labels."""

from __future__ import annotations

import copy
import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline import (
    dataset_record,
    feature_spread,
    joined_lines,
    table_advice,
    table_columns,
    table_rows,
)
from ps_trainer.data.pipeline.facts import Facts
from ps_trainer.data.pipeline.file_source import CountedFile, FileSource, LineDecoder
from ps_trainer.data.pipeline.line_source import SHUFFLED_LINES, text_file, without_mark
from ps_trainer.data.pipeline.table_columns import IGNORE, NUMBER, ColumnCounter, Columns, numbers_in
from ps_trainer.data.pipeline.table_features import TableFeatures, number_table
from ps_trainer.data.pipeline.table_options import ColumnOptions, TableOptions
from ps_trainer.errors import DataError

Table = TypeVar("Table", bound="Csv")

_NEWER_SETTINGS = {"columns_of": None, "decimal": "."}  # older versions have recorded the other settings alone

_ROWS = pathlib.Path("<rows>")  # stands for a file, in messages about rows

MAX_WIDTH = 2**16
"""Largest number of features in the form `vector`; a batch of 32 has 8 MiB then."""


class Csv(FileSource):
    """Tables in delimited text files (CSV) with numbers, categories and a column of labels, from --data_dir.

    A batch has one of three forms:

    * `form=vector`, for mlp and softmax: "image" float32 [B, 1, 1, D], the numbers, then a 1 for the word of each
      column of categories.
    * `form=sparse`, for logistic_regression and factorization_machine: "ids" int64 [B, M] and "values" float32 [B, M]
      of M columns. A column of numbers has one id, and its value is the number. A column of categories has an id for
      each word, with value 1.
    * `form=columns`, for wide_deep and deepfm: "dense" float32 [B, N], the numbers, one 0 if there are none; "ids"
      int64 [B, C], the word of each column of categories.

    "label" int64 [B] is the place of the label among the sorted labels of the training rows, or 1 for the label
    `positive` and 0 for others. A number has the mean 0 and the scale 1 in the training rows; a missing number is 0,
    the mean. Word 0 is a missing word, or one that no training row has. Files may be compressed with gzip. A line end
    inside of quotes is read as a space.

    Args:
        options: Names of the files, and what the columns hold.
        data_dir: Folder of the files.
        facts: Facts about the files.

    Raises:
        DataError: A file is missing or empty, or a named column does not exist. A row has too many or too few values,
            or a value does not fit its column.

    Attributes:
        keys: Names of the columns of categories with another word in almost each training row.
        dates: Names of the columns of categories whose words are dates.
    """

    max_shuffled = SHUFFLED_LINES
    name = "csv"
    record_name = "line"
    reads_lines = True
    reads_rows = True
    have_line_ends = False
    """Whether the values of a file keep their line ends; in lines each is read as a space."""
    takes_facts = True
    class_names: tuple[str, ...] = ()

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(TableOptions):
        """Options of `Csv`."""

    def __init__(self, options: ColumnOptions, *, data_dir: str | None = None, facts: Facts | None = None):
        self.facts = facts or Facts()
        self._options, self._dialect = options, options.dialect()
        self._is_learned = False
        train, test = options.find(self.name, data_dir, self.facts)
        # Read first: a message about the columns is more useful than one about the number of lines.
        self._names, self.columns = self._learn_columns(train, test)
        train, test = ([self._with_header(file) for file in files] for files in (train, test))
        super().__init__(train, test, test_every=options.test_every)
        if any(file.num_joined for file in (*train, *test)):
            self.record_name = "row"  # as a spreadsheet numbers it, which differs from the line
        self.class_names = self._class_names(train[0].path)
        self.num_classes = len(self.class_names)
        self.label_shares = self._label_shares()
        self._features = TableFeatures(self.columns, options)
        self.text_inputs = (*self._features.numbers, *self._features.categories)
        self.row_columns = tuple(name for name, kind in self.columns.kinds.items() if kind != IGNORE)
        self._is_learned = True
        self._set_sizes(train[0].path)
        self.keys = table_advice.keys(self.columns, self.num_train_examples)
        self.dates = table_advice.dates(self.columns)
        if self.keys or self.dates:
            self.advice = table_advice.advice(self.keys, self.dates)
        elif not options.normalize:
            deviations = {name: self.columns.scales[name] for name in self._features.numbers}
            fix = "leave out --dataset_option=normalize=false, and they are scaled"
            self.advice = feature_spread.advice(deviations, fix)

    def _learn_columns(self, train: Sequence[CountedFile], test: Sequence[CountedFile]) -> tuple[list[str], Columns]:
        """Returns the names of the columns, and what the training rows say about them."""

        def read_all() -> list[Any]:
            self._names = self._header_of(train[0].path)
            self._check_names(train[0].path)
            return table_columns.as_fact(self._names, self._find_columns(train, test))

        shown = ["form", "normalize", "positive"]  # what a batch shows of the columns
        read = [file.path for file in (*train, *test)]
        if self._options.columns_of is not None:
            read.append(pathlib.Path(self._options.columns_of) / dataset_record.FILE)
        settings = {name: value for name, value in vars(self._options).items() if name not in shown}
        for name, default in _NEWER_SETTINGS.items():
            if settings.get(name) == default:
                settings.pop(name, None)
        return table_columns.of_fact(self.facts.find(table_columns.FACT, read, settings, read_all))

    def _header_of(self, path: pathlib.Path) -> list[str]:
        """Returns the names of the columns of a file of the data."""
        return table_rows.header_of(path, self._dialect)

    def _chunks_of(self, path: pathlib.Path) -> Iterator[table_rows.Chunk]:
        """Yields the rows of a file of the data."""
        return table_rows.chunks(path, self._dialect, self._names)

    def _with_header(self, file: CountedFile) -> CountedFile:
        num_header_lines = int(self._dialect.has_header)
        num_joined = file.num_joined if self._dialect.has_quotes else 0
        num_rows = file.num_records - num_joined - num_header_lines
        if num_rows < 1:
            raise DataError(f"{file.path}: the file has a header and no row; is it the right file?")
        return file._replace(num_records=num_rows, num_header_lines=num_header_lines, num_joined=num_joined)

    def _check_names(self, path: pathlib.Path) -> None:
        label, names = self._options.label, self._names
        if len(names) == 1:  # a file to predict, which needs no label, may have one column
            mark = ", separated by the --dataset_option=delimiter" if isinstance(self._options, TableOptions) else ""
            raise DataError(
                f"{path} has one column only: {names[0]}; a table needs a label and at least one other column{mark}"
            )
        if label is None:
            raise DataError(
                f"{path}: which column holds the labels? columns: {', '.join(names)};"
                f" give one, for example --dataset_option=label={names[-1]}"
            )
        if label not in names:
            raise table_rows.unknown_column(path, label, names, "label=<column>")
        if self._options.kinds().get(label) == IGNORE:
            raise DataError(
                f"{path}: column {label!r} is the label, and columns={label}:{IGNORE} leaves it out; remove one of the"
                " two, or name another label"
            )
        for name in self._options.kinds():
            if name not in names:
                raise table_rows.unknown_column(path, name, names, "columns=<column>:<kind>")

    def _find_columns(self, train: Sequence[CountedFile], test: Sequence[CountedFile]) -> Columns:
        options = self._options
        of_run = self._columns_of_run(train[0].path)
        kinds = self._known_kinds(train[0].path) if of_run is None else of_run.kinds
        counter = ColumnCounter(str(options.label), kinds, self._dialect, options.num_buckets - 1)
        every = 0 if test else options.test_every
        for files, is_train in ((train, lambda at: not every or at % every != 0), (test, lambda at: False)):
            for file in files:
                self._check_same_header(file.path)
                for chunk in self._chunks_of(file.path):
                    counter.add(file.path, chunk, is_train)
        return counter.columns() if of_run is None else of_run.with_counts_of(counter.columns())

    def _columns_of_run(self, path: pathlib.Path) -> Columns | None:
        """Returns the columns of the run that `columns_of` names; None if it names none. Messages name `path`."""
        if (run := self._options.columns_of) is None:
            return None
        entry = dataset_record.read_facts(pathlib.Path(run), self.name).get(table_columns.FACT)
        if entry is None:
            raise DataError(f"columns_of={run}: {dataset_record.FILE} of the run has no columns of dataset {self.name}")
        names, columns = table_columns.of_fact(entry["value"])
        if columns.label != (label := self._options.label):
            raise DataError(
                f"columns_of={run}: the label of the run is {columns.label}, and here it is {label};"
                f" give --dataset_option=label={columns.label}"
            )
        self._check_same_columns(f"columns_of={run}: {path}", names)
        return columns

    def _check_same_columns(self, place: str, names: Sequence[str]) -> None:
        """Raises DataError if the columns are not `names`, those of the run that `columns_of` names."""
        shown = table_rows.format_names
        missing = [name for name in names if name not in self._names]
        new = [name for name in self._names if name not in names]
        problems = []
        if missing:
            place_of = "add them in the place that they have in the run; a value that is not known may be empty"
            problems.append(f"it lacks columns of the run: {shown(missing)}; {place_of}")
        if new:
            problems.append(f"it has columns that the run does not have: {shown(new)}; remove them")
        if not problems and list(names) != self._names:
            problems.append(f"it has the columns of the run in another order; the order of the run: {shown(names)}")
        if problems:
            raise DataError(f"{place}: {'; '.join(problems)}")

    def _known_kinds(self, path: pathlib.Path) -> dict[str, str]:
        """Returns the kinds of columns that need not be found by their values; in Parquet files, `path` tells more."""
        del path
        return self._options.kinds()

    def _check_same_header(self, path: pathlib.Path) -> None:
        names = self._header_of(path)
        if names != self._names:
            raise DataError(
                f"{path}: its columns are {', '.join(names)}, but the first file has {', '.join(self._names)};"
                " give all files the same columns in the same order"
            )

    def _class_names(self, path: pathlib.Path) -> tuple[str, ...]:
        names, positive = self.columns.class_names, self._options.positive
        if positive is not None:
            if positive not in names:
                raise DataError(
                    f"{path}: no training row has the label positive={positive}; labels: {', '.join(names)}"
                )
            return ("not " + positive if len(names) > 2 else next(n for n in names if n != positive), positive)
        if len(names) > 2 and self._options.form != "vector":
            raise DataError(
                f"{path}: form={self._options.form} is for models of two classes, but {self._options.label!r} has"
                f" {len(names)}: {', '.join(names[:10])}; use form=vector with --model=mlp, or name the class to tell"
                f" from the others: --dataset_option=positive={names[-1]}"
            )
        return names

    def _label_shares(self) -> tuple[float, ...]:
        """Returns the share of each class in the training rows."""
        counts = dict(zip(self.columns.class_names, self.columns.class_counts, strict=False))
        total = sum(counts.values())
        if not total:
            return ()
        if (positive := self._options.positive) is not None:
            return (1 - counts[positive] / total, counts[positive] / total)
        return tuple(counts[name] / total for name in self.class_names)

    def _set_sizes(self, path: pathlib.Path) -> None:
        """Sets the sizes that the model needs; raises DataError if a form cannot hold the columns."""
        form, features = self._options.form, self._features
        if not features.numbers and not features.categories:
            raise DataError(f"{path}: no column is left besides the label; ignore fewer of them")
        if form == "sparse":
            self.num_features = len(features.numbers) + sum(features.sizes[name] for name in features.categories)
        elif form == "columns":
            if not features.categories:
                raise DataError(
                    f"{path}: form=columns needs a column of categories, and all are numbers; use form=sparse or"
                    f" vector, or give the kind: --dataset_option=columns={features.numbers[0]}:category"
                )
            self.num_buckets = max(features.sizes[name] for name in features.categories)
        else:
            width = len(features.numbers) + sum(features.sizes[name] - 1 for name in features.categories)
            if width > MAX_WIDTH:
                raise DataError(f"{path}: form=vector has {width} features, at most {MAX_WIDTH} fit; use form=sparse")

    def names_of_ids(self, columns: Columns) -> list[str]:
        """Returns what each id of a batch stands for if the table has these columns; empty unless `form=sparse`.

        In the other forms, each column has ids of its own.
        """
        return TableFeatures(columns, self._options).names_of_ids() if self._options.form == "sparse" else []

    def from_texts(self, texts: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Builds the ops that turn the text of each column, string [B] by name, into a batch as `read` gives it."""
        if not self.have_line_ends:
            texts = {name: joined_lines.as_line_op(text_B) for name, text_B in texts.items()}
        return self._features.from_texts(texts)

    def row_texts(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
        """Checks rows, counts their values that are unlike those of the training rows, and returns their texts."""
        if not self._dialect.has_header:
            raise DataError("the training files have no header, so an instance must be a line and not a row with names")
        columns = table_rows.columns_of(rows, self._dialect, have_line_ends=self.have_line_ends)
        self._check_complete("instance 0", list(columns))
        other = copy.copy(self)
        other._dialect = dataclasses.replace(self._dialect, trained_names=(self._names,))
        try:
            other._check_values(_ROWS, table_rows.Chunk(0, 0, columns, "instance"))
        except DataError as error:
            raise DataError(str(error).removeprefix(f"{_ROWS}: ")) from error
        return {name: columns[name] for name in self.text_inputs}

    def _header_lines_of(self, records: Sequence[str]) -> list[bytes]:
        if not self._dialect.has_header:
            return []
        # A line may lack the label.
        is_labeled = table_rows.num_values(records[0], self._dialect) == len(self._names)
        names = [name for name in self._names if is_labeled or name != self.columns.label]
        return [table_rows.format_line(names, self._dialect)]

    def _to_predict(self: Table, path: pathlib.Path) -> Table:
        """Returns a copy with the columns of a file to predict for: in another order, perhaps without the labels.

        The base class calls the methods that read a file, and some of them run later, in ops. So the columns are state
        and not an argument.
        """
        other = super()._to_predict(path)
        unlabeled = [name for name in self._names if name != self.columns.label]
        other._dialect = dataclasses.replace(self._dialect, trained_names=(self._names, unlabeled))
        other._names = other._names_of(path)
        return other

    def _decoder_of(self, file: CountedFile) -> LineDecoder:
        decoder = super()._decoder_of(file)
        return decoder._replace(form=(decoder.form, *self._names))

    def _names_of(self, path: pathlib.Path) -> list[str]:
        """Returns the columns of a file to predict for; raises DataError if one of the training files is missing."""
        names = self._header_of(path)
        if not self._dialect.has_header:
            known, unlabeled = self._dialect.trained_names
            if len(names) not in (len(known), len(unlabeled)):
                raise DataError(f"{path}: line 1 has {len(names)} values; the training files have {len(known)} columns")
            return list(known if len(names) == len(known) else unlabeled)
        self._check_complete(path, names)
        return names

    def _check_complete(self, place: object, names: Sequence[str]) -> None:
        missing = [name for name in self.row_columns if name not in names]
        if missing:
            raise DataError(
                f"{place} lacks columns of the training files: {', '.join(missing)}; its columns: {', '.join(names)};"
                " add or rename them, and leave a value empty where it is not known"
            )

    def _count_file(self, path: pathlib.Path) -> CountedFile:
        self._check_rows(path)
        return self._with_header(text_file(path))

    def _check_rows(self, path: pathlib.Path) -> None:
        """Checks the numbers of a file to predict for, and counts the values that are unlike the training rows'."""
        for chunk in self._chunks_of(path):
            self._check_values(path, chunk)

    def _check_values(self, path: pathlib.Path, chunk: table_rows.Chunk) -> None:
        features = self._features
        for name in (*features.numbers, *features.categories):
            is_number = self.columns.kinds[name] == NUMBER
            values = numbers_in(path, chunk, name, self._dialect) if is_number else chunk.columns[name]
            features.count_unfamiliar(name, values, self.unfamiliar)

    def _open(self, path: tf.Tensor, compression: tf.Tensor, file: tf.Tensor) -> tf.data.Dataset:
        lines = tf.data.TextLineDataset(path, compression_type=compression)
        if any(file.num_joined for _, file in self._files):
            lines = joined_lines.rows_of(lines)
        return lines.map(lambda line: {"line": line})

    def _decode(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        line_B = batch["line"]
        if not self._dialect.has_header:
            line_B = without_mark(line_B)
        values = tf.io.decode_csv(
            line_B,
            [tf.constant([""])] * len(self._names),
            field_delim=self._dialect.delimiter,
            use_quote_delim=self._dialect.has_quotes,
        )
        of = {name: tf.strings.strip(value_B) for name, value_B in zip(self._names, values, strict=True)}
        label_B = (
            self._label(of[self.columns.label], batch)
            if self.columns.label in of
            else tf.zeros_like(of[self._names[0]], tf.int64)
        )
        return {**self._features.tensors(of, tf.size(line_B)), "label": label_B}

    def _label(self, text_B: tf.Tensor, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the class of each label, int64 [B]; in a file to predict for, an unknown label becomes class 0."""
        if self._options.positive is not None:
            return tf.cast(tf.equal(text_B, self._options.positive), tf.int64)
        numbers = list(range(1, 1 + len(self.class_names)))
        class_B = number_table(self.class_names, numbers).lookup(text_B) - 1
        if self._dialect.trained_names:
            return tf.maximum(class_B, 0)
        # The file may have changed since the columns were learned from it.
        first = tf.argmin(class_B)
        shown = tf.strings.unicode_transcode(text_B[first], "UTF-8", "UTF-8")
        problem = [": the label is ", shown, f", and the training rows have only {', '.join(self.class_names[:10])}"]
        place = tf.strings.join([self._place(batch["file"][first], batch["at"][first]), *problem])
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(class_B >= 0), [place])]):
            return tf.identity(class_B)

"""Describes a file or folder of data and the flags that read it: `ps_trainer data info PATH`."""

from __future__ import annotations

import pathlib
import shlex
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer import component_tables
from ps_trainer.data.detect_format import DetectedFormat, detect
from ps_trainer.data.formats.csv_table import Csv
from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.decode_errors import problem_of
from ps_trainer.data.pipeline.table_columns import CATEGORY, NUMBER
from ps_trainer.errors import DataError

_SHOWN_EXAMPLES = 3
_SHOWN_VALUES = 12
_SHOWN_WORDS = 5
_BATCH_SIZE = 256


def describe(path: pathlib.Path, *, reads_all: bool = False, options: Sequence[str] = ()) -> str:
    """Describes a path as text: its format, the number of examples, the first of them, and the flags of a run.

    Args:
        path: Path of a file or folder.
        reads_all: Whether to read every example, which finds broken ones, instead of the first examples only.
        options: Options of the dataset, each as `key=value`. They replace the detected ones, and the remarks on these.
            With `label` a table needs no column that looks like one.

    Raises:
        DataError: The path does not exist, its format is unknown, or an example is broken.
        OptionError: The dataset does not have such an option.
    """
    found = detect(path, options)
    given = {option.partition("=")[0] for option in options}
    kept = [option for option in found.options if option.partition("=")[0] not in given]
    remarks = found.remarks if len(kept) == len(found.options) else ()
    found = found._replace(options=(*kept, *options), remarks=remarks)
    lines = [f"{path}: {found.kind}", *(f"  {remark}" for remark in found.remarks)]
    if found.dataset is not None:
        source = component_tables.DATASETS.create(found.dataset, found.options, data_dir=str(found.data_dir))
        lines += _examples(source, reads_all=reads_all)
        lines.append(f"  read by {shlex.join(flags_of(found))}")
    return "\n".join(lines)


def flags_of(found: DetectedFormat) -> list[str]:
    """Returns the flags of a run that reads what was found."""
    options = [f"--dataset_option={option}" for option in found.options]
    return [f"--dataset={found.dataset}", *options, f"--data_dir={found.data_dir}"]


def _examples(source: DataSource, *, reads_all: bool) -> Iterator[str]:
    counts = {"train": source.num_train_examples, "test": source.num_test_examples}
    yield f"  {counts['train']:,} training examples, {counts['test']:,} test examples"
    if source.num_classes is not None:
        yield f"  {source.num_classes} classes"
    if isinstance(source, Csv):
        yield from _columns(source)
    if source.num_features is not None:
        yield f"  {source.num_features:,} features: --model_option=num_features={source.num_features}"
    if source.num_buckets is not None:
        yield f"  {source.num_buckets:,} ids in a column: --model_option=num_buckets={source.num_buckets}"
    if source.vocab_size is not None:
        yield f"  {source.vocab_size:,} ids of words or characters: --model_option=vocab_size={source.vocab_size}"
    shown = _read(source, "train", None if reads_all else 1)
    for number in range(min(_SHOWN_EXAMPLES, counts["train"])):
        yield f"  example {number}: " + "; ".join(_value(name, values[number]) for name, values in shown.items())
    if reads_all:
        if counts["test"]:
            _read(source, "test", None)
        yield "  every example was read; none is broken"


def _columns(source: Csv) -> Iterator[str]:
    """Says of each column what it holds, and which values the label has."""
    columns = source.columns
    for name, kind in columns.kinds.items():
        if kind == NUMBER:
            yield f"  column {name}: numbers, mean {columns.means[name]:.4g}, scale {columns.scales[name]:.4g}"
        elif kind == CATEGORY:
            yield f"  column {name}: {len(columns.vocabularies[name]):,} words, {_few(columns.vocabularies[name])}"
    if source.keys or source.dates:
        yield f"  {source.advice}"
    yield f"  label {columns.label}: {_few(columns.class_names)}"


def _few(words: Sequence[str]) -> str:
    return ", ".join(words[:_SHOWN_WORDS]) + (", …" if len(words) > _SHOWN_WORDS else "")


def _read(source: DataSource, split: str, max_batches: int | None) -> Mapping[str, np.ndarray]:
    """Reads up to `max_batches` batches in file order, or all, and returns the first."""
    # Without the GPU, whose memory TensorFlow would reserve for a few examples.
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as session:
        iterator = tf.data.make_initializable_iterator(source.in_order(split, batch_size=_BATCH_SIZE))
        batch = iterator.get_next()
        first: Mapping[str, np.ndarray] = {}
        num_batches = 0
        try:
            session.run([iterator.initializer, tf.tables_initializer()])
            while num_batches != max_batches:
                read = session.run(batch)
                first, num_batches = first or read, num_batches + 1
        except tf.errors.OutOfRangeError:
            pass
        except tf.errors.OpError as error:
            raise DataError(problem_of(error)) from error
    return first


def _value(name: str, value: np.ndarray) -> str:
    value = np.asarray(value)
    if value.dtype == object:
        value = np.vectorize(lambda text: text.decode("utf-8", "replace"), otypes=[object])(value)
    if value.size <= _SHOWN_VALUES:
        return f"{name} {np.array2string(value, precision=4, separator=' ', max_line_width=10**6)}"
    shape = f"{name} {value.dtype.name} {list(value.shape)}"
    return shape if value.dtype == object else f"{shape} from {value.min():.4g} to {value.max():.4g}"

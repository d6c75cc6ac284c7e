"""Writes what a checkpoint says about examples: the test examples of a dataset, or those of a file."""

from __future__ import annotations

import codecs
import csv
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.config import TrainConfig
from ps_trainer.data.base import problem_of
from ps_trainer.errors import DataError, SaveError, UsageError
from ps_trainer.store import checkpoint_report, durable
from ps_trainer.training import components as components_lib
from ps_trainer.training.components import Components
from ps_trainer.training.evaluation import build_plain, load_values

_BATCH_SIZE = 256


def write(config: TrainConfig, checkpoint_dir: pathlib.Path, source: pathlib.Path | None, out: pathlib.Path) -> str:
    """Writes one prediction for each example, in their order; returns what was written, in words.

    Args:
        config: names model and dataset.
        checkpoint_dir: folder of the checkpoints, of which the newest loadable one is used.
        source: file in the dataset's format; None = the test examples.
        out: `.csv`, `.jsonl` or `.npy`; written in one piece.

    Raises:
        CheckpointError: there is no checkpoint, or it does not fit the model.
        DataError: missing or broken data.
        UsageError: an unknown name, a wrong option, or predictions that do not fit the form.
        SaveError: the file cannot be written.
    """
    components = components_lib.load(config, num_workers=1)
    checkpoint = checkpoint_report.find_checkpoint(checkpoint_dir)
    counted = _Counted(predict(components, checkpoint, source))
    temporary = out.with_name(f".{out.name}.writing")
    try:
        durable.make_folder(out.resolve().parent)
        durable.replace(out, lambda file: WRITERS[out.suffix](file, counted), temporary)
    except OSError as error:
        raise SaveError(f"--out={out} cannot be written: {error}") from error
    read = source if source is not None else f"the test examples of {config.dataset}"
    return f"{out}: {counted.num_examples} predictions for {read}, by {checkpoint.prefix}"


def predict(
    components: Components, values: Mapping[str, np.ndarray], source: pathlib.Path | None
) -> Iterator[np.ndarray]:
    """The model's predictions, batch by batch, [examples of the batch, ...].

    Raises:
        CheckpointError: a variable of the model is missing or has another shape.
        DataError: the file cannot be read, or holds what the model cannot take; as soon as that is met.
    """
    with tf.Graph().as_default() as graph:
        dataset = components.dataset
        examples = dataset.test(batch_size=_BATCH_SIZE) if source is None else dataset.read(source, _BATCH_SIZE)
        iterator = tf.data.make_initializable_iterator(examples)
        predictions = build_plain(components.model, iterator.get_next()).predictions
        variables = tf.global_variables()
        init_op = tf.group(tf.local_variables_initializer(), tf.tables_initializer(), iterator.initializer)
    with tf.Session(graph=graph) as session:
        load_values(session, variables, values)
        session.run(init_op)
        while True:
            try:
                yield session.run(predictions)
            except tf.errors.OutOfRangeError:
                return
            except tf.errors.InvalidArgumentError as error:
                raise DataError(f"no prediction can be made: {problem_of(error)}") from error


class _Counted:
    """Passes batches on and counts their examples."""

    def __init__(self, batches: Iterator[np.ndarray]):
        self._batches = batches
        self.num_examples = 0

    def __iter__(self) -> Iterator[np.ndarray]:
        for batch in self._batches:
            self.num_examples += len(batch)
            yield batch


def _write_csv(file: BinaryIO, batches: _Counted) -> None:
    """A header, then a row for each example: its prediction's numbers, the last dimension running fastest."""
    writer = csv.writer(codecs.getwriter("utf-8")(file), lineterminator="\n")
    width = None
    for batch in batches:
        rows = batch.reshape(len(batch), -1)
        if width is None:
            width = rows.shape[1]
            writer.writerow(["prediction"] if batch.ndim == 1 else [f"prediction_{i}" for i in range(width)])
        if rows.shape[1] != width:
            raise UsageError(f"predictions of {width} and of {rows.shape[1]} numbers make no table; write .jsonl")
        writer.writerows([_text(value) for value in row] for row in rows)


def _write_jsonl(file: BinaryIO, batches: _Counted) -> None:
    """`{"prediction": …}` for each example, a number or nested lists of them."""
    for batch in batches:
        for prediction in batch:
            file.write((json.dumps({"prediction": _plain(prediction)}, ensure_ascii=False) + "\n").encode())


def _write_npy(file: BinaryIO, batches: _Counted) -> None:
    """One array [examples, ...]."""
    parts = list(batches)
    if len({part.shape[1:] for part in parts}) > 1:
        shapes = sorted({str(list(part.shape[1:])) for part in parts})
        raise UsageError(f"predictions of the shapes {', '.join(shapes)} make no array; write .jsonl")
    np.save(file, np.concatenate([_without_objects(part) for part in parts]))


WRITERS: dict[str, Callable[[BinaryIO, _Counted], None]] = {
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
    ".npy": _write_npy,
}


def _text(value: Any) -> str:
    """A number with as many digits as tell it from any other of its type."""
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)


def _without_objects(part: np.ndarray) -> np.ndarray:
    return np.vectorize(_text, otypes=[str])(part) if part.dtype.hasobject else part


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.floating):
        return float(str(value))
    return value.item() if isinstance(value, np.generic) else _text(value)

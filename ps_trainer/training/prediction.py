"""Writes the predictions of a checkpoint for the test examples of a dataset, or for the examples of a file."""

from __future__ import annotations

import codecs
import csv
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints import durable_files, report
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline import recorded_words
from ps_trainer.data.pipeline.data_source import IS_CUT, NUM_PLACES
from ps_trainer.data.pipeline.decode_errors import problem_of
from ps_trainer.data.pipeline.recorded_words import RecordedWords
from ps_trainer.errors import DataError, SaveError, UsageError
from ps_trainer.training import components as components_lib
from ps_trainer.training.components import Components
from ps_trainer.training.evaluation import build_plain, load_values

_BATCH_SIZE = 256


def write(config: TrainConfig, checkpoint_dir: pathlib.Path, source: pathlib.Path | None, out: pathlib.Path) -> str:
    """Writes one prediction for each example, in the order of the examples.

    Args:
        config: Configuration that names the model and the dataset.
        checkpoint_dir: Folder of the checkpoints; the newest loadable one is used.
        source: File in the dataset's format; None for the test examples.
        out: File to write, `.csv`, `.jsonl` or `.npy`. It appears complete, or not at all.

    Returns:
        A sentence about what was written.

    Raises:
        CheckpointError: there is no checkpoint, or it does not fit the model.
        DataError: missing or broken data.
        UsageError: an unknown name, a wrong option, or predictions that do not fit the file format.
        SaveError: the file cannot be written.
    """
    components = components_lib.load(config, num_workers=1)
    num_places = components.dataset.num_places
    checkpoint = report.find_checkpoint(checkpoint_dir)
    parts = _not_empty(predict(components, checkpoint, source), source, num_places)
    dataset = components.dataset
    words = recorded_words.predicted(recorded_words.words_of(dataset))
    counted = _Counted(parts, dataset.class_names or (), words)
    temporary = out.with_name(f".{out.name}.writing")
    try:
        durable_files.make_folder(out.resolve().parent)
        durable_files.replace(out, lambda file: WRITERS[out.suffix](file, counted), temporary)
    except OSError as error:
        raise SaveError(f"--out={out} cannot be written: {error}") from error
    read = source if source is not None else f"the test examples of {config.dataset}"
    notes = counted.notes(num_places)
    return f"{out}: {counted.num_examples} predictions for {read}, by {checkpoint.prefix}{notes}"


class Predicted(NamedTuple):
    """The predictions for a run of successive examples.

    Attributes:
        values: Predictions, [examples, ...].
        is_short: Whether they belong to one example that the end of the file cuts short; then `values` covers only
            the filled places of this example.
        num_cut: Number of examples that were longer than the model allows, and were cut.
        num_unfilled: Number of examples that the end of the file cuts short, and that have no prediction.
    """

    values: np.ndarray
    is_short: bool = False
    num_cut: int = 0
    num_unfilled: int = 0


def predict(
    components: Components, values: Mapping[str, np.ndarray], source: pathlib.Path | None
) -> Iterator[Predicted]:
    """Yields the model's predictions, batch by batch.

    Raises:
        CheckpointError: a variable of the model is missing or has another shape.
        DataError: the file cannot be read, or the model cannot process one of its examples. Earlier batches have
            been yielded by then.
    """
    with tf.Graph().as_default() as graph:
        dataset = components.dataset
        examples = dataset.test(batch_size=_BATCH_SIZE) if source is None else dataset.read(source, _BATCH_SIZE)
        iterator = tf.data.make_initializable_iterator(examples)
        batch = iterator.get_next()
        # These tensors are for this file. The model must get the same batch as in training.
        told = {name: batch.pop(name) for name in (NUM_PLACES, IS_CUT) if name in batch}
        predictions = build_plain(components.model, batch).predictions
        variables = tf.global_variables()
        init_op = tf.group(tf.local_variables_initializer(), tf.tables_initializer(), iterator.initializer)
    with tf.Session(graph=graph) as session:
        load_values(session, variables, values)
        session.run(init_op)
        while True:
            try:
                predictions_v, told_v = session.run((predictions, told))
                yield from _parts(predictions_v, told_v, dataset.num_places)
            except tf.errors.OutOfRangeError:
                return
            except tf.errors.InvalidArgumentError as error:
                raise DataError(f"the examples cannot be processed: {problem_of(error)}") from error


def _parts(predictions: np.ndarray, told: Mapping[str, np.ndarray], num_places: int | None) -> Iterator[Predicted]:
    """Yields a batch's predictions, and apart from them those for a last example that is not full.

    If the model does not predict for each place, the padding would influence the one prediction, so the last example
    is left out.
    """
    num_filled = told.get(NUM_PLACES, np.zeros([0]))
    is_last_short = len(num_filled) > 0 and num_filled[-1] < num_places
    num_whole = len(predictions) - is_last_short
    if num_whole or not is_last_short:
        yield Predicted(predictions[:num_whole], num_cut=int(np.sum(told.get(IS_CUT, 0))))
    if is_last_short and predictions.ndim > 1 and predictions.shape[1] == num_places:
        yield Predicted(predictions[-1:, : num_filled[-1]], is_short=True)
    elif is_last_short:
        yield Predicted(predictions[:0], num_unfilled=1)


def _not_empty(parts: Iterator[Predicted], source: pathlib.Path | None, num_places: int | None) -> Iterator[Predicted]:
    """Yields the parts; raises DataError if they hold no prediction at all."""
    num_examples = 0
    for part in parts:
        num_examples += len(part.values)
        yield part
    # Raised while the file is written, so the error leaves no empty file behind.
    if not num_examples:
        raise DataError(
            f"{source}: too short for a prediction: this model needs {num_places} characters or words;"
            " give a longer text, or train with a smaller context_length"
            if num_places
            else f"{source}: the file holds no example"
        )


class _Counted:
    """Iterates over predictions and counts their examples.

    Args:
        parts: Predictions.
        class_names: Names of the classes that the model tells apart; empty if they have none.
        words: Words or characters that integer predictions number; None if they number none.
    """

    def __init__(
        self, parts: Iterator[Predicted], class_names: tuple[str, ...] = (), words: RecordedWords | None = None
    ):
        self._parts, self._class_names, self._words = parts, class_names, words
        self.num_examples = self.num_cut = self.num_unfilled = self.num_last = 0

    def __iter__(self) -> Iterator[Predicted]:
        for part in self._parts:
            self.num_examples += len(part.values)
            self.num_cut += part.num_cut
            self.num_unfilled += part.num_unfilled
            self.num_last = part.values.shape[1] if part.is_short else 0
            if len(part.values):
                yield part

    def meaning(self, prediction: Any) -> dict[str, str]:
        """Returns a prediction in words: its "text", or the most probable "class"; empty if neither is known."""
        kind, num_dims = getattr(prediction, "dtype", np.dtype(object)).kind, np.ndim(prediction)
        if kind in "iu" and num_dims <= 1 and self._words is not None:
            return {"text": self._words.text_of(np.atleast_1d(prediction).tolist())}
        names = self._class_names
        is_probability = num_dims == 0 and len(names) == 2
        is_of_classes = num_dims == 1 and len(prediction) >= len(names) > 0
        if kind != "f" or not (is_probability or is_of_classes):
            return {}
        number = int(prediction > 0.5) if is_probability else int(np.argmax(prediction))
        # A model may have more classes than the data; it learns that the others do not occur.
        return {"class": names[number] if number < len(names) else ""}

    def notes(self, num_places: int | None) -> str:
        """Returns in words what is special about some of the predictions."""
        notes = []
        if self.num_last:
            notes.append(f"the last prediction covers {self.num_last} places, each other one {num_places}")
        if self.num_cut:
            notes.append(f"{self.num_cut} inputs were too long and were cut")
        if self.num_unfilled:
            notes.append(f"the end of the input has no prediction, as it does not fill {num_places} places")
        return "".join(f"; {note}" for note in notes)


def _write_csv(file: BinaryIO, batches: _Counted) -> None:
    """Writes a header and a row for each example: the numbers of its prediction in row-major order, and its meaning."""
    writer = csv.writer(codecs.getwriter("utf-8")(file), lineterminator="\n")
    width = None
    for batch, is_short, *_ in batches:
        rows = batch.reshape(len(batch), -1)
        if width is None:
            width = rows.shape[1]
            names = ["prediction"] if batch.ndim == 1 else [f"prediction_{i}" for i in range(width)]
            writer.writerow([*names, *batches.meaning(batch[0])])
        if rows.shape[1] != width and not is_short:
            raise UsageError(
                f"predictions of {width} and of {rows.shape[1]} numbers do not fit into one table; write .jsonl"
            )
        writer.writerows(
            [_text(value) for value in row] + [""] * (width - len(row)) + [*batches.meaning(prediction).values()]
            for row, prediction in zip(rows, batch, strict=True)
        )


def _write_jsonl(file: BinaryIO, batches: _Counted) -> None:
    """Writes `{"prediction": …}` for each example, with a number or nested lists of numbers, and its meaning."""
    for batch, *_ in batches:
        for prediction in batch:
            row = {"prediction": _plain(prediction), **batches.meaning(prediction)}
            file.write((json.dumps(row, ensure_ascii=False) + "\n").encode())


def _write_npy(file: BinaryIO, batches: _Counted) -> None:
    """Writes one array [examples, ...]."""
    parts = [part.values for part in batches]
    if len({part.shape[1:] for part in parts}) > 1:
        shapes = sorted({str(list(part.shape[1:])) for part in parts})
        raise UsageError(f"predictions of the shapes {', '.join(shapes)} do not fit into one array; write .jsonl")
    np.save(file, np.concatenate([_without_objects(part) for part in parts]))


WRITERS: dict[str, Callable[[BinaryIO, _Counted], None]] = {
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
    ".npy": _write_npy,
}


def _text(value: Any) -> str:
    """The text of a value; a number has the fewest digits from which its type can restore it."""
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)


def _without_objects(part: np.ndarray) -> np.ndarray:
    # NumPy saves objects as a pickle, which `np.load` rejects by default.
    return np.vectorize(_text, otypes=[str])(part) if part.dtype.hasobject else part


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.floating):
        # By way of the text: float(np.float32(0.1)) is 0.10000000149011612.
        return float(str(value))
    return value.item() if isinstance(value, np.generic) else _text(value)

"""Writes the predictions of a checkpoint for the test examples of a dataset, or for the examples of a file."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer import component_tables
from ps_trainer.checkpoints import durable_files, report
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline.prediction_input import IS_CUT, NUM_PLACES
from ps_trainer.errors import DataError, SaveError, UsageError
from ps_trainer.inference.line_prediction import STDIN, predict_lines
from ps_trainer.inference.prediction_names import PredictionNames
from ps_trainer.inference.predictor import BATCH_SIZE, ExampleError, Predicted, check_finite, parts_of, prediction_error
from ps_trainer.store.trace import placeholders
from ps_trainer.training import components as components_lib
from ps_trainer.training.batch_slices import BatchSlices
from ps_trainer.training.components import Components
from ps_trainer.training.plain_model import build_plain, load_values
from ps_trainer.training.row_lookups import RowLookups


def write(
    config: TrainConfig,
    checkpoint_dir: pathlib.Path,
    source: pathlib.Path | io.BufferedReader | None,
    out: pathlib.Path | BinaryIO,
) -> str:
    """Writes one prediction for each example, in the order of the examples.

    Args:
        config: Configuration that names the model and the dataset.
        checkpoint_dir: Folder of the checkpoints; the newest loadable one is used.
        source: File in the dataset's format; a stream of lines, each predicted for as it arrives; None for the test
            examples.
        out: File to write, `.csv`, `.jsonl` or `.npy`, which appears complete, or not at all; or a stream for lines of
            JSON.

    Returns:
        A sentence about what was written.

    Raises:
        CheckpointError: There is no checkpoint, or it does not fit the model.
        DataError: Missing or broken data.
        UsageError: An unknown name, a wrong option, or predictions that do not fit the file format.
        SaveError: The file cannot be written.
    """
    components = components_lib.load(config, 1, trained_run=checkpoint_dir.parent)
    num_places = components.dataset.num_places
    checkpoint = report.find_checkpoint(checkpoint_dir)
    if isinstance(source, io.BufferedReader):
        takes_empty = not isinstance(out, pathlib.Path) or out.suffix == ".jsonl"
        told, parts = STDIN, predict_lines(components, checkpoint, source, takes_empty=takes_empty)
    else:
        told = str(source) if source is not None else f"the test examples of {config.dataset}"
        parts = predict(components, checkpoint, source)
    counted = _Counted(_not_empty(parts, told, num_places), PredictionNames.known_to(components.dataset))
    try:
        if isinstance(out, pathlib.Path):
            _write_whole(out, counted)
        else:
            _write_jsonl(out, counted)
    finally:
        unfamiliar = getattr(components.dataset, "unfamiliar", None)
        if unfamiliar is not None and (strange := unfamiliar.take()):
            logging.warning("%s", strange)
    written = f"{out}: " if isinstance(out, pathlib.Path) else ""
    return f"{written}{counted.num_examples} predictions for {told}, by {checkpoint.prefix}{counted.notes(num_places)}"


def predict(
    components: Components, values: Mapping[str, np.ndarray], source: pathlib.Path | None
) -> Iterator[Predicted]:
    """Yields the model's predictions, batch by batch, or in slices of seconds: Ctrl-C acts after each.

    Raises:
        CheckpointError: A variable of the model is missing or has another shape.
        DataError: The file cannot be read, or the model cannot process one of its examples. Earlier batches have
            been yielded by then. Or no file is given, and the dataset has no test examples.
    """
    with tf.Graph().as_default() as graph:
        dataset = components.dataset
        examples = dataset.test(batch_size=BATCH_SIZE) if source is None else dataset.read(source, BATCH_SIZE)
        if examples is None:
            name = component_tables.DATASETS.name_of(dataset)
            raise DataError(f"dataset {name} has no test examples; give a file by --input")
        iterator = tf.data.make_initializable_iterator(examples)
        next_batch = tf.nest.flatten(iterator.get_next())
        batch = placeholders(examples.element_spec)
        slices = BatchSlices(tf.nest.flatten(batch), BATCH_SIZE)
        # These tensors are for this file. The model must get the same batch as in training.
        told = {name: batch.pop(name) for name in (NUM_PLACES, IS_CUT) if name in batch}
        predictions = build_plain(components.model, batch).predictions
        lookups = RowLookups(tf.global_variables(), [predictions])
        init_op = tf.group(tf.local_variables_initializer(), tf.tables_initializer(), iterator.initializer)
    with tf.Session(graph=graph) as session, lookups.use(values):
        load_values(session, lookups.others, values)
        session.run(init_op)

        def measure(feeds: Mapping[tf.Tensor, np.ndarray]) -> None:
            with contextlib.suppress(tf.errors.InvalidArgumentError, tf.errors.NotFoundError):  # raised again below
                session.run(predictions, feeds)

        num_done = 0
        feeds: Mapping[tf.Tensor, np.ndarray] = {}
        fed = slices.feeds(lambda: session.run(next_batch), measure)
        while True:
            try:
                feeds = next(fed)
                predictions_v, told_v = session.run((predictions, told), feeds)
                check_finite(predictions_v)
            except tf.errors.OutOfRangeError:
                return
            except ExampleError as error:
                raise _placed(error, dataset, source, num_done) from error
            except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
                inputs = batch if isinstance(batch, dict) else {}
                arrays = {name: feeds[tensor] for name, tensor in inputs.items() if tensor in feeds}
                raise _placed(prediction_error(error, inputs, arrays.copy), dataset, source, num_done) from error
            yield from parts_of(predictions_v, told_v, dataset.num_places)
            num_done += len(next(iter(feeds.values())))


def _placed(error: DataError, dataset: Any, source: pathlib.Path | None, num_before: int) -> DataError:
    """Returns an error that names the example, if it is about one of a batch that follows `num_before` others."""
    if not isinstance(error, ExampleError):
        return error
    number = num_before + error.example + 1
    if source is None:
        return error.at(f"test example {number}")
    is_line = getattr(dataset, "reads_lines", False) and not dataset.num_places
    return error.at(f"{source}: line {dataset.num_header_lines + number}" if is_line else f"{source}: example {number}")


def _not_empty(parts: Iterator[Predicted], source: str, num_places: int | None) -> Iterator[Predicted]:
    """Yields the parts; raises DataError if they hold no prediction at all."""
    num_examples = 0
    for part in parts:
        num_examples += 0 if part.is_empty else len(part.values)
        yield part
    # Raised while the file is written, so the error leaves no empty file behind.
    if not num_examples:
        raise DataError(
            f"{source}: too short for a prediction: this model needs {num_places} characters or words;"
            " give a longer text, or train with a smaller context_length"
            if num_places
            else f"{source}: no example"
        )


NO_NAMES = PredictionNames()


class _Counted:
    """Iterates over predictions and counts their examples.

    Args:
        parts: Predictions.
        names: Names that the dataset knows.
    """

    def __init__(self, parts: Iterator[Predicted], names: PredictionNames = NO_NAMES):
        self._parts, self.names = parts, names
        self.num_examples = self.num_cut = self.num_unfilled = self.num_last = 0

    def __iter__(self) -> Iterator[Predicted]:
        for part in self._parts:
            self.num_examples += 0 if part.is_empty else len(part.values)
            self.num_cut += part.num_cut
            self.num_unfilled += part.num_unfilled
            self.num_last = part.values.shape[1] if part.is_short else 0
            if len(part.values):
                yield part

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


def _write_whole(out: pathlib.Path, counted: _Counted) -> None:
    temporary = out.with_name(f".{out.name}.writing")
    try:
        with durable_files.new_folder(out.resolve().parent):
            durable_files.replace(out, lambda file: WRITERS[out.suffix](file, counted), temporary)
    except OSError as error:
        raise SaveError(f"--out={out} cannot be written: {error}") from error


def _write_csv(file: BinaryIO, batches: _Counted) -> None:
    """Writes a header and a row for each example: the numbers of its prediction in row-major order, and its name.

    The header names the class of each number, if the dataset has names for the classes.
    """
    writer = csv.writer(codecs.getwriter("utf-8")(file), lineterminator="\n")
    width = None
    for batch, is_short, *_ in batches:
        rows = batch.reshape(len(batch), -1)
        if width is None:
            width = rows.shape[1]
            writer.writerow([*batches.names.columns(batch[0]), *batches.names.meaning(batch[0])])
        if rows.shape[1] != width and not is_short:
            raise UsageError(
                f"predictions of {width} and of {rows.shape[1]} numbers do not fit into one table; write .jsonl"
            )
        writer.writerows(
            [_text(value) for value in row]
            + [""] * (width - len(row))
            + list(batches.names.meaning(prediction).values())
            for row, prediction in zip(rows, batch, strict=True)
        )


def _write_jsonl(file: BinaryIO, batches: _Counted) -> None:
    """Writes `{"prediction": …}` for each example, with a number or nested lists of numbers, and its name.

    An empty line of a stream has the prediction null.
    If the numbers belong to classes with names, "classes" has these names in order.
    """
    for batch, *_ in batches:
        for prediction in batch:
            row: dict[str, Any] = row_of(prediction, batches.names)
            if batches.names.are_classes(prediction):
                row["classes"] = batches.names.classes
            file.write((json.dumps(row, ensure_ascii=False) + "\n").encode())
        file.flush()  # to a reader at the other end of a pipe


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
    """Returns the text of a value; a number has the fewest digits from which its type can restore it."""
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)


def _without_objects(part: np.ndarray) -> np.ndarray:
    # NumPy saves objects as a pickle, which `np.load` rejects by default.
    return np.vectorize(_text, otypes=[str])(part) if part.dtype.hasobject else part


def row_of(prediction: Any, names: PredictionNames) -> dict[str, Any]:
    """Returns one example's prediction as a JSON object: "prediction", and "class" or "text" if it has a name.

    The ids of a text end at the padding.
    """
    return {"prediction": plain(names.without_padding(prediction)), **names.meaning(prediction)}


def plain(value: Any) -> Any:
    """Returns a value of NumPy as JSON has it: nested lists of numbers and texts; None for None."""
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        return [plain(inner) for inner in value]
    if isinstance(value, np.floating):
        # By way of the text: float(np.float32(0.1)) is 0.10000000149011612.
        return float(str(value))
    return value.item() if isinstance(value, np.generic) else _text(value)

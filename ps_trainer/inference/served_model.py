"""The model that an endpoint serves: the newest checkpoint of a run, and predictions for what a request holds."""

from __future__ import annotations

import base64
import math
import pathlib
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer import component_tables
from ps_trainer.checkpoints import reader as checkpoint_lib
from ps_trainer.checkpoints import report
from ps_trainer.errors import CheckpointError, DataError
from ps_trainer.inference import line_prediction
from ps_trainer.inference.line_reader import LineReader
from ps_trainer.inference.prediction import row_of
from ps_trainer.inference.prediction_names import PredictionNames
from ps_trainer.inference.predictor import BATCH_SIZE, ExampleError, Predictor, build_graph, parts_of
from ps_trainer.training.components import Components

_WARNING_SECS = 60.0  # from one warning about unfamiliar input to the next

BYTES = "b64"
"""The key of an instance that holds a file in base64."""

_SHOWN = 40  # characters of a wrong value in a message


class Loaded(NamedTuple):
    """The checkpoint in use.

    Attributes:
        version: Global step of the checkpoint.
        predictor: Session with its values.
        files: Path and time of the checkpoint, which tell it from a newer one.
    """

    version: int
    predictor: Predictor
    files: tuple[str, int]


class ServedModel:
    """The newest checkpoint of a run. Threads may share it.

    Args:
        components: Model and dataset of the run.
        checkpoint_dir: Folder of the checkpoints.
        deadline_secs: Time in seconds after which a prediction is given up.

    Attributes:
        graph: The model.
        names: Names that the dataset knows for predictions.
        reads_rows: Whether a record may be a row, a mapping of columns to values.
        row_columns: Names of the columns that a row needs; empty if they have none.
        loaded: The checkpoint in use.

    Raises:
        CheckpointError: There is no checkpoint, or it does not fit the model.
    """

    def __init__(self, components: Components, checkpoint_dir: pathlib.Path, deadline_secs: float):
        self._dataset = components.dataset
        self.names = PredictionNames.known_to(components.dataset)
        self._reader = LineReader(components.dataset)
        self._folder, self._deadline_secs = checkpoint_dir, deadline_secs
        self.graph = build_graph(components)
        self.reads_rows = getattr(components.dataset, "reads_rows", False)
        self.row_columns = getattr(components.dataset, "row_columns", ())
        self._next_warning = -math.inf
        self.loaded = self._load()

    def reload_newer(self) -> bool:
        """Loads a checkpoint that is newer than the one in use; returns whether there was one.

        Requests in progress end with the older values. A checkpoint that cannot be loaded is reported and left out.
        """
        try:
            if self._newest() in (None, self.loaded.files):
                return False
            self.loaded = self._load()
        except (CheckpointError, OSError) as error:
            logging.warning("%s; the endpoint keeps step %d", error, self.loaded.version)
            return False
        logging.info("the endpoint serves step %d", self.loaded.version)
        return True

    def keep_newest(self, stop: threading.Event, every_secs: float) -> None:
        """Looks for newer checkpoints until `stop` is set."""
        while not stop.wait(every_secs):
            self.reload_newer()

    def predict_tensors(self, inputs: Mapping[str, Any], loaded: Loaded) -> np.ndarray:
        """Returns the predictions for the tensors of a batch, given as nested lists.

        Raises:
            DataError: A tensor is missing, unknown, or has another type or shape than the model's, or holds an id that
                the model does not know.
        """
        wanted = self.graph.inputs
        if set(inputs) != set(wanted):
            raise DataError(f"the inputs are {', '.join(sorted(inputs))}; the model needs {', '.join(sorted(wanted))}")
        batch = {name: _batch_of(name, value, wanted[name]) for name, value in inputs.items()}
        sizes = {name: len(array) for name, array in batch.items()}
        if len(set(sizes.values())) > 1:
            raise DataError(f"the inputs have different numbers of examples: {sizes}")
        try:
            return loaded.predictor.predict(batch)
        except ExampleError as error:
            raise error.at(f"instance {error.example}") from error

    def predict_records(self, records: Sequence[Any], loaded: Loaded) -> list[dict[str, Any]]:
        """Returns the objects that `ps_trainer predict` prints for lines, rows, or files in base64.

        Raises:
            DataError: The dataset does not read such records, or one of them is broken.
            tf.errors.DeadlineExceededError: The deadline of a prediction has passed.
        """
        is_file = [isinstance(record, Mapping) and set(record) == {BYTES} for record in records]
        if (other := is_file.index(not is_file[0]) if len(set(is_file)) > 1 else None) is not None:
            is_one, first = ("is", "is not") if is_file[other] else ("is not", "is")
            raise DataError(f"instance {other} {is_one} a file in base64, and instance 0 {first}; send them apart")
        with tempfile.TemporaryDirectory() as folder:
            if is_file[0]:
                values = self._in_time(self._predict_files(records, pathlib.Path(folder).resolve(), loaded))
            elif self.reads_rows and any(isinstance(record, Mapping) for record in records):
                values = self._in_time(self._predict_rows(records, loaded))
            else:
                values = self._in_time(self._predict_lines(records, pathlib.Path(folder).resolve(), loaded))
        self._warn_of_unfamiliar()
        return [row_of(one, self.names) for one in values]

    def _warn_of_unfamiliar(self) -> None:
        """Logs what requests held and the training data did not, at once and then once in a while for many requests."""
        unfamiliar, now = getattr(self._dataset, "unfamiliar", None), time.monotonic()
        if unfamiliar is not None and now >= self._next_warning and (told := unfamiliar.take()):
            self._next_warning = now + _WARNING_SECS
            logging.warning("requests had %s", told)

    def _in_time(self, values: Iterator[Any]) -> list[Any]:
        """Lists the predictions; each file, and each text, takes a call of the session with its own deadline."""
        ends_at = time.monotonic() + self._deadline_secs
        done = []
        for value in values:
            done.append(value)
            if time.monotonic() > ends_at:
                raise tf.errors.DeadlineExceededError(None, None, f"{len(done)} predictions took too long")
        return done

    def _predict_lines(self, records: Sequence[Any], folder: pathlib.Path, loaded: Loaded) -> Iterator[Any]:
        dataset = self._dataset
        if not getattr(dataset, "reads_lines", False):
            reads_files = getattr(dataset, "reads_sounds", False) or getattr(dataset, "image_shape", None)
            files = f'files as {{"{BYTES}": "…"}}, or ' if reads_files else ""
            name, tensors = component_tables.DATASETS.name_of(dataset), ", ".join(self.graph.inputs)
            raise DataError(f"instance 0: dataset {name} reads no lines; send {files}the tensors {tensors}")
        header, lines = dataset.as_lines(records)
        path = folder / "instances"
        for first, part in enumerate([[line] for line in lines] if dataset.num_places else [lines]):
            parts = line_prediction.predict_part(self._reader, loaded.predictor, path, header, part)

            # A text is an instance with all of its lines. The header follows from the first line.
            def place(line: int, first: int = first) -> str:
                return f"instance {first + (0 if dataset.num_places else max(0, line - len(header) - 1))}"

            with line_prediction.named_places(path, place):
                for one in parts:
                    yield from one.values

    def _predict_rows(self, records: Sequence[Any], loaded: Loaded) -> Iterator[Any]:
        if not all(isinstance(record, Mapping) for record in records):
            raise DataError("some instances are rows with names and others are not; send them apart")
        for number, batch in enumerate(self._reader.row_batches(records)):
            try:
                yield from loaded.predictor.predict(batch)
            except ExampleError as error:
                raise error.at(f"instance {number * BATCH_SIZE + error.example}") from error

    def _predict_files(
        self, records: Sequence[Mapping[str, Any]], folder: pathlib.Path, loaded: Loaded
    ) -> Iterator[Any]:
        suffix = ".wav" if self._dataset.reads_sounds else ".png" if self._dataset.image_shape else ""
        path = folder / f"file{suffix}"
        for number, record in enumerate(records):
            try:
                path.write_bytes(_decode(record[BYTES]))
                for batch in self._reader.file_batches(path):
                    values = loaded.predictor.predict(batch)
                    for part in parts_of(values, batch, self._dataset.num_places):
                        yield from part.values
            except DataError as error:
                raise DataError(f"instance {number}: {str(error).replace(str(path), 'the file')}") from error

    def _newest(self) -> tuple[str, int] | None:
        prefixes = checkpoint_lib.list_prefixes(self._folder)
        if not prefixes:
            return None
        # The time tells a checkpoint from one of the same name that the run has written again after a rollback.
        return prefixes[-1], pathlib.Path(f"{prefixes[-1]}.index").stat().st_mtime_ns

    def _load(self) -> Loaded:
        files = self._newest()
        checkpoint = report.find_checkpoint(self._folder)
        return Loaded(
            checkpoint.step, Predictor(self.graph, checkpoint, self._deadline_secs), files or (checkpoint.prefix, 0)
        )


def _decode(value: Any) -> bytes:
    """Returns the bytes of a file in base64."""
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError) as error:
        shown = repr(value) if len(repr(value)) <= _SHOWN else f"{repr(value)[:_SHOWN]}…"
        raise DataError(
            f"{BYTES!r} must be the file's bytes in base64, as `base64 -w0 FILE` prints them; it is {shown}"
        ) from error


def _batch_of(name: str, value: Any, placeholder: Any) -> np.ndarray:
    """Converts nested lists to the type of a placeholder; never rounds. An error names the instance."""
    if not isinstance(value, list):
        raise DataError(f"input {name!r} must be a list with an entry for each instance")
    try:
        return _array(value, placeholder)
    except DataError as error:
        wanted = ["any" if size is None else str(size) for size in placeholder.shape.as_list()[1:]]
        needs = "; the model needs " + (f"numbers of the shape [{', '.join(wanted)}]" if wanted else "one number")
        for number, one in enumerate(value):
            try:
                _array([one], placeholder)
            except DataError as of_one:
                raise DataError(f"instance {number}: input {name!r} {of_one}{needs}") from of_one
        raise DataError(f"input {name!r} {error}{needs}") from error


def _array(value: list[Any], placeholder: Any) -> np.ndarray:
    """Converts a list of instances; raises DataError with what is wrong, as the end of a sentence about the input."""
    dtype = placeholder.dtype.as_numpy_dtype
    try:
        given = np.asarray(value)
    except ValueError as error:
        raise DataError("has rows of different lengths") from error
    if given.dtype.kind not in "biuf":
        raise DataError("holds something else than numbers")
    with np.errstate(invalid="ignore", over="ignore"):
        array = given.astype(dtype)
    is_float = np.issubdtype(dtype, np.floating)
    if np.isinf(array).any() if is_float else not np.array_equal(array, given):
        fault = "are infinite as" if is_float else "are not"
        raise DataError(f"holds numbers that {fault} {placeholder.dtype.name}")
    if not placeholder.shape.is_compatible_with(array.shape):
        raise DataError(f"has the shape {list(array.shape[1:])}")
    return array

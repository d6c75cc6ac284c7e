"""Predictions for lines as they arrive on a stream, such as stdin."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from absl import logging

from ps_trainer import component_tables
from ps_trainer.errors import DataError
from ps_trainer.inference.line_reader import LineReader
from ps_trainer.inference.predictor import BATCH_SIZE, ExampleError, Predicted, Predictor, build_graph, parts_of
from ps_trainer.training.components import Components

STDIN = "stdin"
"""Name of the stream in messages."""

_READ_BYTES = 2**16
_MAX_LINE_BYTES = 2**24


def predict_lines(
    components: Components, values: Mapping[str, np.ndarray], stream: io.BufferedReader, *, takes_empty: bool = True
) -> Iterator[Predicted]:
    """Yields the predictions for the lines of a stream, for all lines that have arrived at a time.

    A line is an example of the dataset, after the header lines that its files have. Where the dataset cuts its
    examples from running text, each line is a separate text, with its end, and has one prediction for each place. Where
    it does not, an empty line has None in place of a prediction, so that each line has its own, and a warning names it.

    Args:
        components: Model and dataset.
        values: Values of the model variables by name.
        stream: Stream of lines.
        takes_empty: Whether the caller can show that a line has no prediction; otherwise such a line is wrong.

    Raises:
        CheckpointError: A variable of the model is missing or has another shape.
        DataError: The dataset does not read lines, or a line is wrong. The lines before it have been predicted for,
            except those that arrived together with it.
    """
    dataset = components.dataset
    if not getattr(dataset, "reads_lines", False):
        name = component_tables.DATASETS.name_of(dataset)
        raise DataError(f"--input=-: dataset {name} does not read lines; name a file: --input=FILE")
    predictor, reader = Predictor(build_graph(components), values), LineReader(dataset)
    header: list[bytes] = []
    has_examples = False
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder).resolve() / STDIN
        for number, lines in _runs(stream, are_texts=bool(dataset.num_places)):
            if not dataset.num_places and _is_empty(lines[0]):
                is_answered = len(header) == dataset.num_header_lines
                if is_answered and not takes_empty:
                    raise DataError(f"{STDIN}: line {number} is empty; remove it, or write .jsonl, which has null")
                told = f"line {number} is" if len(lines) == 1 else f"lines {number} to {number + len(lines) - 1} are"
                logging.warning("%s: %s empty, and %s", STDIN, told, "answered with null" if is_answered else "skipped")
                if is_answered:
                    yield Predicted(np.full(len(lines), None), is_empty=True)
                continue
            num_header = min(dataset.num_header_lines - len(header), len(lines))
            header += lines[:num_header]
            if rows := lines[num_header:]:
                has_examples = True
                with named_places(path, functools.partial(_place_in_stdin, number + num_header - len(header) - 1)):
                    yield from predict_part(reader, predictor, path, header, rows)
    if header and not has_examples:
        text = header[-1].decode(errors="replace").strip()
        raise DataError(
            f"{STDIN}: the first line must have the names of the columns, and no row follows it: {text}; give the"
            " names in the first line, and a row in each line after it"
        )


def predict_part(
    reader: LineReader, predictor: Predictor, path: pathlib.Path, header: Sequence[bytes], lines: Sequence[bytes]
) -> Iterator[Predicted]:
    """Yields the predictions for lines that form a file with `header`.

    Args:
        reader: Reader of the dataset's lines.
        predictor: Model.
        path: Path of a file to write.
        header: Lines before the first example.
        lines: One line for each example; or, if the dataset cuts running text, one text.

    Raises:
        DataError: A line is wrong; the message names it by its number in `path`.
    """
    dataset = reader.dataset
    for at, line in enumerate(lines, len(header) + 1):
        if not dataset.num_places and _is_empty(line):
            raise DataError(f"{path}: line {at} is empty; remove it")
    path.write_bytes(b"\n".join([*header, *lines, b""]))
    parts: list[Predicted] = []
    for number, batch in enumerate(reader.batches(path, lines)):
        try:
            parts += parts_of(predictor.predict(batch), batch, dataset.num_places)
        except ExampleError as error:
            at = 0 if dataset.num_places else number * BATCH_SIZE + error.example
            raise error.at(f"{path}: line {len(header) + 1 + at}") from error
    if not dataset.num_places:
        yield from parts
        return
    if any(part.num_unfilled for part in parts) or not parts:
        raise DataError(f"{path}: line {len(header) + 1} is too short: this model needs {dataset.num_places} tokens")
    yield Predicted(np.concatenate([part.values.reshape(-1, *part.values.shape[2:]) for part in parts])[np.newaxis])


def _runs(stream: io.BufferedReader, *, are_texts: bool) -> Iterator[tuple[int, list[bytes]]]:
    """Yields lines that follow each other, as they arrive, with the number of the first one.

    Args:
        stream: Stream of lines.
        are_texts: Whether each line is a separate text, which ends the windows; else no run has empty and other lines.
    """
    number = 1
    for lines in _lines_as_they_come(stream):
        runs = (
            [[line] for line in lines] if are_texts else [list(run) for _, run in itertools.groupby(lines, _is_empty)]
        )
        for run in runs:
            yield number, run
            number += len(run)


def _place_in_stdin(num_before: int, line: int) -> str:
    return f"{STDIN}: line {num_before + line}" if line else STDIN


def _is_empty(line: bytes) -> bool:
    # A tab may stand between two missing values.
    return not line.strip(b" \r")


def _lines_as_they_come(stream: io.BufferedReader) -> Iterator[list[bytes]]:
    """Yields the whole lines that have arrived, without their ends; waits for the next."""
    rest = b""
    while data := stream.read1(_READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > _MAX_LINE_BYTES:
            raise DataError(f"{STDIN}: a line is longer than {_MAX_LINE_BYTES} bytes; is it the right input?")
        if lines:
            yield lines
    if rest:
        yield [rest]


@contextlib.contextmanager
def named_places(path: pathlib.Path, name_of: Callable[[int], str]) -> Iterator[None]:
    """Lets a DataError about the file of a part name the user's place instead.

    Args:
        path: Path of the file.
        name_of: Function from a line of the file, from 1, to that place; line 0 stands for the whole file.
    """
    try:
        yield
    except DataError as error:
        at = rf"{re.escape(str(path))}(?:: line (\d+))?"
        raise DataError(re.sub(at, lambda found: name_of(int(found[1] or 0)), str(error))) from error

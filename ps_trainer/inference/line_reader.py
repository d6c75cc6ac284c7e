"""Turns lines, rows and files into batches, with a graph that is kept for the next ones of the same form."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.decode_errors import problem_of
from ps_trainer.data.pipeline.file_source import LINES, FileSource
from ps_trainer.data.pipeline.prediction_input import PredictionInput
from ps_trainer.errors import DataError
from ps_trainer.inference.predictor import BATCH_SIZE, batches_of

_MAX_KEPT = 16  # forms; a client that sends columns in ever new orders must not fill the memory
_FAILURES = (tf.errors.InvalidArgumentError, tf.errors.NotFoundError)

Decode = Callable[[tf.Tensor], dict[str, tf.Tensor]]


class _Graph(NamedTuple):
    """Lines, string [B], columns, string [C, B], or the content of a file, string []; their batch; its session."""

    given: tf.Tensor
    batch: dict[str, tf.Tensor]
    session: tf.Session


class LineReader:
    """Reads the lines or rows of a dataset, and single files. Threads may share it.

    Args:
        dataset: Dataset that reads lines, rows or single files.

    Attributes:
        dataset: The argument of this name.
    """

    def __init__(self, dataset: Any):
        self.dataset = dataset
        self._lock = threading.Lock()
        self._graphs: dict[Hashable, _Graph] = {}

    def batches(self, path: pathlib.Path, lines: Sequence[bytes]) -> Iterator[dict[str, np.ndarray]]:
        """Yields the batches of a file of lines.

        Args:
            path: Path of the file.
            lines: Its lines after the header.

        Raises:
            DataError: A line is wrong; the message names it by its number in the file.
        """
        decoder = self.dataset.line_decoder(path) if isinstance(self.dataset, FileSource) else None
        if decoder is None:
            yield from self.file_batches(path)
            return
        graph = self._graph_of(decoder.form, decoder.decode, [None])
        for first in range(0, len(lines), BATCH_SIZE):
            # TensorFlow's reader of files leaves out carriage returns wherever they are.
            part = [line.replace(b"\r", b"") for line in lines[first : first + BATCH_SIZE]]
            try:
                yield graph.session.run(graph.batch, {graph.given: part})
            except _FAILURES as error:
                problem = problem_of(error).replace(str(LINES), str(path))
                raise DataError(f"the examples cannot be read: {problem}") from error

    def row_batches(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, np.ndarray]]:
        """Yields the batches of rows, each with a value for each column.

        Raises:
            DataError: A row is wrong; the message names it as an instance, from 0.
        """
        dataset, texts = self.dataset, self.dataset.row_texts(rows)

        def decode(text_CB: tf.Tensor) -> dict[str, tf.Tensor]:
            columns = tf.unstack(text_CB, num=len(dataset.text_inputs))
            return dict(dataset.from_texts(dict(zip(dataset.text_inputs, columns, strict=True))))

        graph = self._graph_of("rows", decode, [len(dataset.text_inputs), None])
        columns = [[text.encode(errors="surrogatepass") for text in texts[name]] for name in dataset.text_inputs]
        for first in range(0, len(rows), BATCH_SIZE):
            try:
                yield graph.session.run(
                    graph.batch, {graph.given: [column[first : first + BATCH_SIZE] for column in columns]}
                )
            except _FAILURES as error:
                raise DataError(f"the instances cannot be read: {problem_of(error)}") from error

    def file_batches(self, path: pathlib.Path) -> Iterator[dict[str, np.ndarray]]:
        """Yields the batches of a file in the dataset's format.

        Raises:
            DataError: The file cannot be read, or one of its examples is broken.
        """
        decoder = self.dataset.content_decoder(path) if isinstance(self.dataset, PredictionInput) else None
        if decoder is None:
            yield from batches_of(self.dataset, path, BATCH_SIZE)
            return
        graph = self._graph_of(decoder.form, decoder.decode, [])
        try:
            batch = graph.session.run(graph.batch, {graph.given: path.read_bytes()})
        except _FAILURES as error:
            raise DataError(f"{path}{decoder.problem or f' cannot be read: {problem_of(error)}'}") from error
        for first in range(0, len(next(iter(batch.values()))), BATCH_SIZE):
            yield {name: values[first : first + BATCH_SIZE] for name, values in batch.items()}

    def _graph_of(self, form: Hashable, decode: Decode, shape: list[int | None]) -> _Graph:
        with self._lock:
            if form not in self._graphs:
                if len(self._graphs) >= _MAX_KEPT:
                    self._graphs.clear()
                self._graphs[form] = _build(decode, shape)
            return self._graphs[form]


def _build(decode: Decode, shape: list[int | None]) -> _Graph:
    with tf.Graph().as_default() as graph:
        given = tf.placeholder(tf.string, shape)
        # In a function, as when a file is read: there no table waits for a check of the lines.
        batch = tf.data.Dataset.from_tensors(given).map(decode).get_single_element()
        init_op = tf.tables_initializer()
    session = tf.Session(graph=graph)
    session.run(init_op)
    return _Graph(given, batch, session)

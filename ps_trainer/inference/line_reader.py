"""Turns lines into batches, with a graph that is kept for the next lines of the same form."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.decode_errors import problem_of
from ps_trainer.data.pipeline.file_source import LINES, FileSource, LineDecoder
from ps_trainer.errors import DataError
from ps_trainer.inference.predictor import BATCH_SIZE, batches_of

_MAX_KEPT = 16  # forms; a client that sends columns in ever new orders must not fill the memory


class _Graph(NamedTuple):
    """Lines, string [B]; the tensors of their batch; and the session that has them."""

    lines: tf.Tensor
    batch: dict[str, tf.Tensor]
    session: tf.Session


class LineReader:
    """Reads the lines of a dataset. Threads may share it.

    Args:
        dataset: Dataset that reads lines.

    Attributes:
        dataset: The argument of this name.
    """

    def __init__(self, dataset: Any):
        self.dataset = dataset
        self._lock = threading.Lock()
        self._graphs: dict[Hashable, _Graph] = {}

    def batches(self, path: pathlib.Path, lines: Sequence[bytes]) -> Iterator[dict[str, np.ndarray]]:
        """Yields the batches of a file.

        Args:
            path: Path of the file.
            lines: Its lines after the header.

        Raises:
            DataError: A line is wrong; the message names it by its number in the file.
        """
        decoder = self.dataset.line_decoder(path) if isinstance(self.dataset, FileSource) else None
        if decoder is None:
            yield from batches_of(self.dataset, path, BATCH_SIZE)
            return
        graph = self._graph_of(decoder)
        for first in range(0, len(lines), BATCH_SIZE):
            # TensorFlow's reader of files leaves out carriage returns wherever they are.
            part = [line.replace(b"\r", b"") for line in lines[first : first + BATCH_SIZE]]
            try:
                yield graph.session.run(graph.batch, {graph.lines: part})
            except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
                problem = problem_of(error).replace(str(LINES), str(path))
                raise DataError(f"the examples cannot be read: {problem}") from error

    def _graph_of(self, decoder: LineDecoder) -> _Graph:
        with self._lock:
            if decoder.form not in self._graphs:
                if len(self._graphs) >= _MAX_KEPT:
                    self._graphs.clear()
                self._graphs[decoder.form] = _build(decoder)
            return self._graphs[decoder.form]


def _build(decoder: LineDecoder) -> _Graph:
    with tf.Graph().as_default() as graph:
        lines = tf.placeholder(tf.string, [None])
        # In a function, as when a file is read: there no table waits for a check of the lines.
        batch = tf.data.Dataset.from_tensors(lines).map(decoder.decode).get_single_element()
        init_op = tf.tables_initializer()
    session = tf.Session(graph=graph)
    session.run(init_op)
    return _Graph(lines, batch, session)

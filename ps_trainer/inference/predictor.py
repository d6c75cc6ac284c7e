"""A model with the values of a checkpoint, which predicts for batches that the caller feeds."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.decode_errors import data_error, problem_of, unknown_id
from ps_trainer.data.pipeline.prediction_input import IS_CUT, NUM_PLACES
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import DataError
from ps_trainer.store.ancestors import ancestors
from ps_trainer.training.components import Components
from ps_trainer.training.plain_model import build_plain, load_values

BATCH_SIZE = 256
"""Number of examples that the commands predict for at once."""


class Predicted(NamedTuple):
    """The predictions for a run of successive examples.

    Attributes:
        values: Predictions, [examples, ...].
        is_short: Whether they belong to one example that the end of the file cuts short; then `values` covers only
            the filled places of this example.
        num_cut: Number of examples that were longer than the model allows, and were cut.
        num_unfilled: Number of examples that the end of the file cuts short, and that have no prediction.
        is_empty: Whether they are empty lines of a stream, which are no examples; then `values` holds None for each.
    """

    values: np.ndarray
    is_short: bool = False
    num_cut: int = 0
    num_unfilled: int = 0
    is_empty: bool = False


class ExampleError(DataError):
    """An example of a batch for which the model cannot predict.

    Args:
        problem: What is wrong with the example, and the fix.
        example: Number of the example in its batch, from 0.
    """

    def __init__(self, problem: str, example: int):
        super().__init__(problem)
        self.example = example

    def at(self, place: str) -> DataError:
        """Returns an error whose message begins with the place of the example."""
        return DataError(f"{place}: {self}")


class PredictionGraph(NamedTuple):
    """Graph from a batch to the predictions.

    Attributes:
        graph: The graph.
        inputs: Placeholders of the tensors of a batch on which the predictions depend, by name.
        predictions: Predictions, [examples, ...].
        variables: Variables of the model.
        init_op: Op that initializes everything except the variables.
        texts: Placeholders of the texts from which `inputs` are computed where they are not fed, string [examples], by
            name; empty if the graph takes none.
        num_places: Number of ids of each text, int64 [examples]; None unless the model predicts at each of them.
    """

    graph: tf.Graph
    inputs: dict[str, tf.Tensor]
    predictions: tf.Tensor
    variables: list[tf.Variable]
    init_op: tf.Operation
    texts: dict[str, tf.Tensor]
    num_places: tf.Tensor | None


def build_graph(components: Components, *, takes_texts: bool = False) -> PredictionGraph:
    """Builds the model for batches with the names, types and shapes of the dataset's.

    Args:
        components: Model and dataset.
        takes_texts: Whether the graph also takes texts, if the dataset makes batches of them.
    """
    dataset = components.dataset
    with tf.Graph().as_default() as graph:
        text_inputs = getattr(dataset, "text_inputs", ()) if takes_texts else ()
        texts = {name: tf.placeholder(tf.string, [None], name=f"text_{at}") for at, name in enumerate(text_inputs)}
        given = dataset.from_texts(texts) if texts else {}
        batch = {
            name: tf.placeholder_with_default(given[name], one.shape, name=name)
            if name in given
            else tf.placeholder(one.dtype, one.shape, name=name)
            for name, one in _spec_of_batches(dataset).items()
        }
        predictions = build_plain(components.model, batch).predictions
        variables = tf.global_variables()
        init_op = tf.group(tf.local_variables_initializer(), tf.tables_initializer())
    inputs = _inputs_of(predictions, batch)
    texts = texts if set(inputs) <= set(given) else {}
    return PredictionGraph(graph, inputs, predictions, variables, init_op, texts, given.get(NUM_PLACES))


def _spec_of_batches(dataset: Any) -> dict[str, tf.TensorSpec]:
    """Returns names, types and shapes of a batch of any size."""
    examples = dataset.test(batch_size=1)
    if examples is not None:
        spec = dict(examples.element_spec)
        for name in getattr(dataset, "of_any_length", ()):
            spec[name] = tf.TensorSpec([None, None, *spec[name].shape[2:]], spec[name].dtype)
        return spec
    # A dataset without test examples; its training batches have a fixed size.
    spec = dataset.train(shard=Shard(0, 1), batch_size=1, seed=0, num_epochs=1).element_spec
    return {name: tf.TensorSpec([None, *one.shape[1:]], one.dtype) for name, one in spec.items()}


class Predictor:
    """A session that holds the values of a checkpoint. Threads may share it.

    Args:
        graph: Graph of the model.
        values: Values of the model variables by name, for example a `Checkpoint`.
        timeout_secs: Time in seconds after which a prediction is given up; None = never.

    Raises:
        CheckpointError: A variable of the model is missing or has another shape.
    """

    def __init__(self, graph: PredictionGraph, values: Mapping[str, np.ndarray], timeout_secs: float | None = None):
        self._graph = graph
        self._options = tf.RunOptions(timeout_in_ms=int(1000 * timeout_secs)) if timeout_secs else None
        self._session = tf.Session(graph=graph.graph)
        load_values(self._session, graph.variables, values)
        self._session.run(graph.init_op)

    def predict(self, batch: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the predictions for a batch; entries on which they do not depend may be missing.

        Raises:
            ExampleError: An example has an id that the model does not know, or its prediction is not finite.
            DataError: An entry has the wrong shape or type, or the model cannot process an example.
            tf.errors.DeadlineExceededError: `timeout_secs` have passed.
        """
        try:
            feeds = {placeholder: batch[name] for name, placeholder in self._graph.inputs.items()}
            predictions = self._session.run(self._graph.predictions, feeds, options=self._options)
        except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
            raise prediction_error(error, self._graph.inputs, lambda: batch) from error
        except ValueError as error:  # of the feeds
            raise DataError(f"the examples do not fit the model: {error}") from error
        check_finite(predictions)
        return predictions


def prediction_error(
    error: tf.errors.OpError, inputs: Mapping[str, tf.Tensor], read: Callable[[], Mapping[str, Any]]
) -> DataError:
    """Returns the error of a model's ops as an error of the examples; it advises no option, as the model is trained.

    Args:
        error: Error of the session.
        inputs: Tensors of a batch in the model's graph, by name, each of a separate op.
        read: Function that returns their values.
    """
    if (unknown := unknown_id(error)) is None:
        return data_error(error) or DataError(f"the examples cannot be processed: {problem_of(error)}")
    highest = unknown.highest
    used = _inputs_of(error.op, inputs) if error.op is not None else {}
    batch = read() if used else {}
    for name in used:
        ids = np.asarray(batch[name])
        if ids.dtype.kind in "iu" and (places := np.argwhere((ids < 0) | (ids > highest))).size:
            return ExampleError(
                f"{name!r} has the id {ids[tuple(places[0])]}, and the trained model knows only the ids 0 to {highest};"
                " correct the id, or leave it out",
                int(places[0][0]),
            )
    return DataError(
        f"the trained model's table {unknown.table} has only the rows 0 to {highest}, and an example needs row"
        f" {unknown.id}; correct the ids of the examples"
    )


def check_finite(predictions: np.ndarray) -> None:
    """Raises ExampleError if a prediction, of shape [examples, ...], is NaN or infinite."""
    if predictions.dtype.kind == "f" and not np.isfinite(predictions).all():
        raise ExampleError(
            "the prediction is NaN or infinite; look for a number that is far outside the range of the training"
            " examples",
            int(np.argwhere(~np.isfinite(predictions))[0][0]) if predictions.ndim else 0,
        )


def batches_of(dataset: Any, path: pathlib.Path, batch_size: int) -> Iterator[dict[str, np.ndarray]]:
    """Yields the examples of a file in the dataset's format.

    Raises:
        DataError: The file cannot be read, or one of its examples is broken.
    """
    with tf.Graph().as_default() as graph:
        iterator = tf.data.make_initializable_iterator(dataset.read(path, batch_size))
        batch = iterator.get_next()
        init_op = tf.group(tf.tables_initializer(), iterator.initializer)
    with tf.Session(graph=graph) as session:
        session.run(init_op)
        while True:
            try:
                yield session.run(batch)
            except tf.errors.OutOfRangeError:
                return
            except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
                raise DataError(f"the examples cannot be read: {problem_of(error)}") from error


def parts_of(predictions: np.ndarray, told: Mapping[str, np.ndarray], num_places: int | None) -> Iterator[Predicted]:
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


def _inputs_of(output: tf.Tensor | tf.Operation, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns the tensors of `batch` on which `output` depends."""
    used = set(ancestors([output]))
    return {name: tensor for name, tensor in batch.items() if tensor.op in used}

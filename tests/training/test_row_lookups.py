"""An evaluation takes rows of a large table from where the table lies; its session never holds the table."""

from __future__ import annotations

import contextlib
import pathlib

import numpy as np
import pytest

from ps_trainer.checkpoints import file_arrays, writer
from ps_trainer.checkpoints.reader import Checkpoint
from ps_trainer.errors import CheckpointError
from ps_trainer.training import components as components_lib
from tests.testing import components as small
from tests.testing.cluster import config_of

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from models import layers
from ps_trainer.checkpoints.table_on_ps import TableOnPs, TableRows
from ps_trainer.inference.prediction import predict
from ps_trainer.store.extents import Extent, VariableSpec
from ps_trainer.store.pieces import Piece
from ps_trainer.training.evaluation import evaluate
from ps_trainer.training.row_lookups import RowLookups

NUM_ROWS, DIM = small.LargelyEmbedded.num_rows, 4
LIMIT = 2**16
"""The table has 16 times as many bytes."""
COMPONENTS = components_lib.load(config_of("LargelyEmbedded", "Rows", ["num_examples=300", "has_test=true"]), 1)


def values_of():
    random = np.random.RandomState(0)
    shapes = {"table": [NUM_ROWS, DIM], "logits/kernel": [DIM + small.NUM_FEATURES, 4], "logits/bias": [4]}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def in_file(values, folder):
    """The values as a save leaves them on the chief."""
    flat = file_arrays.allocate(values["table"].size, values["table"].dtype, folder)
    assert file_arrays.is_in_file(flat)
    flat[:] = values["table"].reshape([-1])
    return values | {"table": flat.reshape([NUM_ROWS, DIM])}


def in_checkpoint(values, folder):
    writer.write(folder, 7, values | {"global_step": np.int64(7)})
    return Checkpoint(folder / "model.ckpt-7")


@pytest.fixture
def feeds(monkeypatch):
    """Size in bytes of the largest array of each call of a session."""
    run, sizes = tf.Session.run, [0]

    def counted(self, fetches, feed_dict=None, *args, **options):
        sizes.append(max((np.asarray(array).nbytes for array in (feed_dict or {}).values()), default=0))
        return run(self, fetches, feed_dict, *args, **options)

    monkeypatch.setattr(tf.Session, "run", counted)
    return sizes


@pytest.fixture
def limit(monkeypatch):
    monkeypatch.setattr(file_arrays, "LARGE_BYTES", LIMIT)


@pytest.mark.parametrize("place", [lambda values, folder: values, in_file, in_checkpoint])
def test_metrics_and_predictions_keep_their_bits_and_no_session_gets_the_table(tmp_path, feeds, monkeypatch, place):
    found = []
    for large in (2**40, LIMIT):
        monkeypatch.setattr(file_arrays, "LARGE_BYTES", LIMIT)
        values = place(values_of(), tmp_path)
        monkeypatch.setattr(file_arrays, "LARGE_BYTES", large)
        feeds[:] = [0]
        predictions = np.concatenate([part.values for part in predict(COMPONENTS, values, None)])
        found.append((evaluate(COMPONENTS, values), predictions.tobytes(), max(feeds) < LIMIT))
    assert found == [(*found[0][:2], False), (*found[0][:2], True)]


def test_the_file_of_a_checkpoints_table_goes_with_the_evaluation(tmp_path, limit):
    values = in_checkpoint(values_of(), tmp_path)
    files = []

    class Watched(small.LargelyEmbedded):
        """Notes the files of this process while it is evaluated."""

        def build(self, batch, training):
            note = lambda label: files.append(open_files(tmp_path)) or label  # noqa: E731 - used once
            label = tf.numpy_function(note, [batch["label"]], tf.int64)
            label.set_shape(batch["label"].shape)
            return super().build(batch | {"label": label}, training)

    evaluate(COMPONENTS._replace(model=Watched()), values)
    assert set(files) == {1} and open_files(tmp_path) == 0


def open_files(folder):
    """Number of files without a name in a folder that this process has mapped."""
    maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
    return sum(str(folder) in line and line.endswith("(deleted)") for line in maps)


def test_a_missing_table_and_a_wrong_shape_are_named(limit):
    values = values_of()
    with pytest.raises(
        CheckpointError, match=r"'table' has the shape \[7, 4\]; the model needs the shape \[65536, 4\]"
    ):
        evaluate(COMPONENTS, values | {"table": values["table"][:7]})
    del values["table"]
    with pytest.raises(CheckpointError, match="'table' is missing in the checkpoint"):
        evaluate(COMPONENTS, values)


class TestGraph:
    """Look-ups in a graph of a table of 5 rows."""

    @pytest.fixture(autouse=True)
    def graph(self, monkeypatch):
        monkeypatch.setattr(file_arrays, "LARGE_BYTES", 0)
        with tf.Graph().as_default():
            self.table = tf.get_variable("table", [5, 2], use_resource=True)
            self.ids = tf.placeholder(tf.int32, [None, None])
            yield

    def rows_of(self, fetch, values, ids):
        lookups = RowLookups([self.table], [fetch])
        with tf.Session() as session, lookups.use(values):
            assert lookups.names == ("table",) and not lookups.others
            return session.run(fetch, {self.ids: ids})

    def test_ids_of_any_shape_and_several_look_ups(self):
        rows = tf.nn.embedding_lookup(self.table, self.ids)
        both = tf.concat([rows, 1 * tf.gather(self.table, self.ids + 1)], axis=0)
        values, ids = np.arange(10, dtype=np.float32).reshape([5, 2]), np.array([[0, 3, 3], [2, 1, 0]])
        found = self.rows_of(both, {"table": values}, ids)
        np.testing.assert_array_equal(found, np.concatenate([values[ids], values[ids + 1]]))

    @pytest.mark.parametrize("wrong", [-1, 5])
    def test_an_id_that_the_table_lacks_is_an_error(self, wrong):
        rows = tf.nn.embedding_lookup(self.table, self.ids)
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"table has the rows 0 to 4, not {wrong}"):
            self.rows_of(rows, {"table": np.zeros([5, 2], np.float32)}, [[1, wrong]])

    @pytest.mark.parametrize(
        "read",
        [
            lambda table, ids: tf.reduce_sum(table),
            lambda table, ids: tf.gather(table, ids[0], axis=1),
            lambda table, ids: tf.gather_nd(table, ids),
            lambda table, ids: tf.cond(ids[0, 0] > 0, lambda: tf.gather(table, ids), lambda: tf.zeros([1, 1, 2])),
            lambda table, ids: tf.raw_ops.ResourceGather(resource=table.handle, indices=ids, dtype=tf.float32),
        ],
        ids=["sum", "columns", "gather_nd", "in a function", "fetched"],
    )
    def test_a_table_that_is_also_read_in_another_way_is_left_to_the_session(self, read):
        both = [tf.gather(self.table, self.ids) * 2, read(self.table, self.ids)]
        lookups = RowLookups([self.table], both)
        assert not lookups.names and lookups.others == [self.table]
        values, ids = np.arange(10, dtype=np.float32).reshape([5, 2]), [[0, 1], [4, 0]]
        with tf.Session() as session, lookups.use({}):
            self.table.load(values, session)
            np.testing.assert_array_equal(session.run(both, {self.ids: ids})[0], 2 * values[ids])

    def test_rows_on_several_ps_tasks(self):
        parts = [tf.get_variable(f"part_{part}", [size, 2], use_resource=True) for part, size in enumerate((2, 2, 1))]
        pieces = [Piece(part, ps, (Extent("table", 0, 0, 0),), None) for ps, part in enumerate(parts)]
        spec = VariableSpec("table", (5, 2), np.dtype(np.float32), trainable=True, is_table=True)
        table = TableOnPs(spec, pieces)
        values, ids = np.arange(10, dtype=np.float32).reshape([5, 2]), np.array([[4, 0, 3], [0, 1, 4]])
        init_op = tf.group(*(part.assign(rows) for part, rows in zip(parts, np.split(values, [2, 4]), strict=True)))
        with tf.Session() as session:
            session.run(init_op)
            found = self.rows_of(1 * tf.gather(self.table, self.ids), {"table": TableRows(table, session)}, ids)
        np.testing.assert_array_equal(found, values[ids])


class Wide:
    """A model whose batches look up random rows of all parts of a table of 256 MiB."""

    num_rows, dim = 2**20, 64

    def build(self, batch, training):
        ids = tf.random.uniform([tf.shape(batch["label"])[0], 64], maxval=self.num_rows, dtype=tf.int64)
        rows_BND = layers.embedding("table", self.num_rows, self.dim, ids)
        return layers.classifier_output(tf.reduce_mean(rows_BND, axis=1)[:, : small.NUM_CLASSES], batch["label"])


def test_the_memory_of_this_process_does_not_grow_with_the_table(tmp_path):
    size = Wide.num_rows * Wide.dim
    flat = file_arrays.allocate(size, np.dtype(np.float32), tmp_path)
    assert file_arrays.is_in_file(flat)
    components = COMPONENTS._replace(model=Wide())
    table = {"table": flat.reshape([Wide.num_rows, Wide.dim])}
    evaluate(components, table)  # loads what TensorFlow needs for any evaluation
    file_arrays.release(flat)
    with peak_bytes() as grown:
        metrics = evaluate(components, table)
    assert metrics["loss"] == pytest.approx(np.log(small.NUM_CLASSES))
    # A batch has 4 MB of rows, and the pages of 1,024 rows have 64 MiB at most.
    assert grown[0] < 4 * size / 2


@contextlib.contextmanager
def peak_bytes():
    """Lets the first entry be the growth of the largest resident memory of this process in the context."""
    grown = []
    # Makes the present memory the largest.
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    yield grown
    grown.append(peak() - before)


def peak():
    (line,) = [line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return 1024 * int(line.split()[1])

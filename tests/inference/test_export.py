"""A SavedModel predicts as its model, takes only the inputs it needs, and is written whole or not at all."""

from __future__ import annotations

import dataclasses
import pathlib
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from models import layers
from ps_trainer.checkpoints import writer
from ps_trainer.errors import CheckpointError, SaveError
from ps_trainer.inference import export
from tests.testing import components as small
from tests.testing.cluster import config_of

ROWS = small.Rows(small.RowOptions()).arrays
CONFIG = config_of("Dense", "Rows")


class Looked:
    """A model with a lookup table, a local variable, an embedding and a partitioned kernel."""

    def build(self, batch, training):
        keys = tf.range(small.VOCAB_SIZE, dtype=tf.int64)
        mirror = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, small.VOCAB_SIZE - 1 - keys), -1)
        rows_BND = layers.embedding("table", small.VOCAB_SIZE, 4, mirror.lookup(batch["ids"]))
        shift = tf.get_variable("shift", [4], initializer=tf.ones_initializer(), collections=["local_variables"])
        x_BD = tf.reduce_sum(rows_BND, axis=1) + shift
        with tf.variable_scope("", partitioner=tf.fixed_size_partitioner(2)):
            logits_BC = layers.dense(x_BD, small.NUM_CLASSES, "logits")
        return layers.classifier_output(logits_BC, batch["label"])._replace(predictions=logits_BC)


def values_of(**shapes):
    random = np.random.RandomState(0)
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


DENSE = {"hidden/kernel": [6, 5], "hidden/bias": [5], "logits/kernel": [5, 4], "logits/bias": [4]}


def save(folder, values, step=7):
    writer.write(folder, step, values | {"global_step": np.int64(step)})
    return folder


def served(folder, batch):
    """The output of the SavedModel's signature in plain TensorFlow."""
    with tf.Graph().as_default(), tf.Session() as session:
        signature = tf.saved_model.load(session, [tf.saved_model.SERVING], str(folder)).signature_def["serving_default"]
        feeds = {info.name: batch[name] for name, info in signature.inputs.items()}
        return session.run(signature.outputs["predictions"].name, feeds), set(signature.inputs)


def test_predicts_as_the_model_from_the_inputs_it_needs(tmp_path):
    values = values_of(**DENSE)
    description = export.write(CONFIG, save(tmp_path / "checkpoints", values), tmp_path / "deep" / "out")
    got, inputs = served(tmp_path / "deep" / "out", ROWS)
    hidden = np.tanh(ROWS["x"] @ values["hidden/kernel"] + values["hidden/bias"])
    np.testing.assert_allclose(got, hidden @ values["logits/kernel"] + values["logits/bias"], rtol=1e-5, atol=1e-6)
    assert inputs == {"x"}
    assert description.endswith("model.ckpt-7, x float32 (None, 6) -> predictions float32 (None, 4)")


def test_lookup_tables_local_variables_and_embeddings_are_exported(tmp_path):
    values = values_of(**{"table": [small.VOCAB_SIZE, 4], "logits/kernel": [4, 4], "logits/bias": [4]})
    config = dataclasses.replace(CONFIG, model=f"{__name__}:Looked")
    export.write(config, save(tmp_path / "checkpoints", values), tmp_path / "out")
    got, inputs = served(tmp_path / "out", ROWS)
    x = values["table"][small.VOCAB_SIZE - 1 - ROWS["ids"]].sum(axis=1) + 1
    np.testing.assert_allclose(got, x @ values["logits/kernel"] + values["logits/bias"], rtol=1e-5, atol=1e-6)
    assert inputs == {"ids"}


def test_another_models_checkpoint_is_rejected_and_leaves_no_file(tmp_path):
    folder = save(tmp_path / "checkpoints", values_of(**{**DENSE, "hidden/bias": [9]}))
    with pytest.raises(
        CheckpointError, match=r"'hidden/bias' has the shape \[9\]; the model needs the shape \[5\]; give the --model"
    ):
        export.write(CONFIG, folder, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


def test_a_folder_that_another_process_filled_is_not_touched(tmp_path):
    folder = save(tmp_path / "checkpoints", values_of(**DENSE))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("kept")
    with pytest.raises(SaveError, match="cannot be written"):
        export.write(CONFIG, folder, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints", "out"]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is a folder of Linux")
def test_an_error_of_the_disk_names_the_folder_that_was_given(tmp_path):
    folder = save(tmp_path / "checkpoints", values_of(**DENSE))
    with pytest.raises(SaveError, match="^--out=/proc/x cannot be written: No such file or directory; name") as raised:
        export.write(CONFIG, folder, pathlib.Path("/proc/x"))
    assert "writing-" not in str(raised.value)


def test_an_export_without_a_checkpoint_fails(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        export.write(CONFIG, tmp_path / "checkpoints", tmp_path / "out")

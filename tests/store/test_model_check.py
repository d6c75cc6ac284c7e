"""Models that do what the run does itself are rejected with the fix, and tables in plain variables are found."""

from __future__ import annotations

import pytest

from ps_trainer.errors import OptionError
from ps_trainer.store import model_check
from ps_trainer.store.trace import placeholders, trace
from tests.testing.cluster import environment  # noqa: F401 - prepares TensorFlow's environment

import tensorflow.compat.v1 as tf  # isort: skip - after the environment

from models import layers

BATCH_SIZE = 32
SPEC = {
    "image": tf.TensorSpec([BATCH_SIZE, 8], tf.float32),
    "center": tf.TensorSpec([BATCH_SIZE], tf.int64),
    "label": tf.TensorSpec([BATCH_SIZE], tf.int64),
}


def traced(build, spec=SPEC):
    """The trace of a model whose `build` is a function."""

    class Model:
        def build(self, batch, training):
            return build(batch)

    return trace(lambda: model_check.build(Model(), "mine:Model", placeholders(spec)), seed=0)


def output(batch, x=None):
    return layers.classifier_output(layers.dense(batch["image"] if x is None else x, 4, "dense"), batch["label"])


def refusal(build):
    with pytest.raises(OptionError) as refused:
        traced(build)
    message = str(refused.value)
    assert message.startswith("model 'mine:Model': ")
    assert "\n" not in message
    return message


def test_a_right_model_is_built():
    assert [spec.name for spec in traced(output).specs] == ["dense/kernel", "dense/bias"]


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: tf.train.GradientDescentOptimizer(0.1),
        lambda: tf.train.AdamOptimizer(0.1),
        lambda: tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 2),
    ],
    ids=["sgd", "adam", "sync"],
)
def test_an_optimizer_in_build_is_to_be_left_out(optimizer):
    def build(batch):
        result = output(batch)
        optimizer().minimize(result.loss, tf.train.get_or_create_global_step())
        return result

    message = refusal(build)
    assert "build applies gradients by its own optimizer" in message
    assert "leave the optimizer and minimize out" in message
    assert "--optimizer" in message


def test_a_train_op_beside_the_loss_is_an_optimizer_too():
    def build(batch):
        loss = output(batch).loss
        return loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss)

    assert "leave the optimizer and minimize out" in refusal(build)


def test_a_global_step_in_build_is_to_be_left_out():
    def build(batch):
        tf.train.get_or_create_global_step()
        return output(batch)

    message = refusal(build)
    assert "leave tf.train.get_or_create_global_step out" in message
    assert "--schedule" in message


@pytest.mark.parametrize(
    ("result", "what"),
    [
        (lambda out: out.loss, "a tensor alone"),
        (lambda out: (out.loss, out.predictions), "a tuple of 2 values"),
        (lambda out: {"loss": out.loss}, "a dict"),
        (lambda out: None, "None"),
    ],
    ids=["loss", "tuple", "dict", "nothing"],
)
def test_another_result_than_an_output_names_the_right_one(result, what):
    message = refusal(lambda batch: result(output(batch)))
    assert f"build returned {what}; return layers.ModelOutput(loss, predictions, metrics)" in message
    assert "layers.classifier_output(logits, label)" in message


def test_the_loss_is_a_scalar_tensor():
    message = refusal(lambda batch: output(batch)._replace(loss=tf.zeros([BATCH_SIZE])))
    assert "the loss has the shape (32,), and a loss is a scalar; return its mean, tf.reduce_mean(loss)" in message
    assert "the loss is a float; it has to be a scalar tensor" in refusal(
        lambda batch: output(batch)._replace(loss=0.5)
    )


def test_placeholders_are_replaced_by_the_batch():
    def build(batch):
        x, y = tf.placeholder(tf.float32, [None, 8], "x"), tf.placeholder(tf.int64, [None], "y")
        return layers.classifier_output(layers.dense(x, 4, "dense"), y)

    message = refusal(build)
    assert "build uses the placeholders x, y, and no step has a feed_dict" in message
    assert "take the tensors from `batch` (here: center, image, label), which the dataset fills" in message


def test_a_placeholder_of_a_metric_or_an_update_counts_and_an_unused_or_default_one_does_not():
    def build(batch, use):
        tf.placeholder(tf.float32, [], "unused")
        rate = tf.placeholder_with_default(tf.constant(0.5), [])
        result = output(batch, batch["image"] * rate)
        return use(result, tf.placeholder(tf.float32, [BATCH_SIZE], "fed"))

    traced(lambda batch: build(batch, lambda result, fed: result))

    def in_update(result, fed):
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.identity(fed))
        return result

    for use in (lambda result, fed: result._replace(metrics={"m": fed}), in_update):
        assert "the placeholder fed, and" in refusal(lambda batch, use=use: build(batch, use))


def test_a_tensor_that_the_dataset_lacks_is_named_with_those_that_it_has():
    message = refusal(lambda batch: output(batch, batch["pixels"]))
    assert "build reads batch['pixels'], and the dataset gives center, image, label; choose a dataset" in message

    def build(batch):
        assert "pixels" not in batch and batch.get("pixels") is None
        return output(batch)

    traced(build)


def test_what_a_model_of_the_package_or_a_layer_refuses_is_no_traceback():
    message = refusal(lambda batch: output(batch, layers.conv2d(batch["image"], 4, 3, "conv")))
    assert "convolution 'conv' needs [batch, height, width, channels] with known channels" in message
    with pytest.raises(ValueError, match="^own$"):
        traced(lambda batch: output(batch, int_of("own")))


def int_of(text):
    raise ValueError(text)


def test_layers_that_tensorflow_no_longer_has_are_replaced():
    message = refusal(lambda batch: output(batch, tf.layers.dense(batch["image"], 4)))
    assert "`dense` is not available with Keras 3." in message
    assert "Use the layers of ps_trainer.models.layers, or tf.get_variable and tf.nn" in message
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        traced(lambda batch: tf.no_such_name)


def test_other_parameters_of_build_are_named():
    class Estimator:
        def build(self, features, labels, mode):
            raise AssertionError("not to be called")

    with pytest.raises(OptionError, match=r"build\(features, labels, mode\).*define it as build\(self, batch, train"):
        trace(lambda: model_check.build(Estimator(), "mine:Model", placeholders(SPEC)), seed=0)


ROWS, DIM, SAMPLED = 20_000, 64, 64


def word2vec(batch, collections=None):
    """The tutorial of 2016: 10.32 MB of variables, of which a step needs 32 and 96 rows."""
    table = tf.get_variable("table", [ROWS, DIM], collections=collections)
    weights = tf.get_variable("weights", [ROWS, DIM], collections=collections)
    biases = tf.get_variable("biases", [ROWS], collections=collections)
    embedded = tf.nn.embedding_lookup(table, batch["center"])
    loss = tf.nn.nce_loss(weights, biases, batch["label"][:, tf.newaxis], embedded, SAMPLED, ROWS)
    return layers.ModelOutput(tf.reduce_mean(loss), batch["center"], {"loss": loss})


def test_plain_variables_that_are_only_gathered_should_be_embedding_tables():
    advice = model_check.embedding_advice(traced(word2vec))
    whole = 4 * (2 * ROWS * DIM + ROWS) / 1e6
    needed = 4 * (BATCH_SIZE * DIM + (BATCH_SIZE + SAMPLED) * (DIM + 1)) / 1e6
    assert "only some rows of table, weights, biases by a gather" in advice
    assert f"the whole {whole:.2f} MB travel to the worker in every step" in advice
    assert f"a dense gradient of {whole:.2f} MB travels back" in advice
    assert f"create them by layers.embedding, so that only the batch's rows travel (at most {needed:.2f} MB)" in advice


def test_an_unknown_number_of_rows_is_left_out():
    def build(batch):
        ids = tf.unique(batch["center"]).y
        rows = tf.gather(tf.get_variable("table", [ROWS, DIM]), ids)
        return output(batch, batch["image"] + tf.reduce_sum(rows))

    advice = model_check.embedding_advice(traced(build))
    assert advice.endswith("so that only the batch's rows travel")


@pytest.mark.parametrize("read", [tf.convert_to_tensor, tf.identity])
def test_a_gather_from_a_read_value_counts(read):
    def build(batch):
        rows = tf.gather(read(tf.get_variable("table", [ROWS, DIM])), batch["center"])
        return output(batch, tf.concat([batch["image"], rows], axis=1))

    assert "rows of table by a gather" in model_check.embedding_advice(traced(build))


def lookup(batch, table):
    return output(batch, tf.concat([batch["image"], tf.gather(table, batch["center"])], axis=1))


def tied(batch):
    table = tf.get_variable("table", [ROWS, DIM])
    result = lookup(batch, table)
    return result._replace(loss=result.loss + tf.nn.l2_loss(table))


def all_rows(batch):
    table = tf.get_variable("table", [BATCH_SIZE, 4 * ROWS])
    return output(batch, tf.concat([batch["image"], tf.gather(table, tf.range(BATCH_SIZE))], axis=1))


NO_TABLES = {
    "dense": output,
    "small": lambda batch: lookup(batch, tf.get_variable("table", [20, DIM])),
    "a dense use beside the gather": tied,
    "every row": all_rows,
    "untrained": lambda batch: lookup(batch, tf.get_variable("table", [ROWS, DIM], trainable=False)),
    "layers.embedding": lambda batch: output(batch, layers.embedding("table", ROWS, DIM, batch["center"])),
    "the collection": lambda batch: word2vec(batch, ["variables", layers.EMBEDDING_TABLES]),
}


@pytest.mark.parametrize("build", NO_TABLES.values(), ids=NO_TABLES)
def test_no_warning_where_an_embedding_table_would_not_help(build):
    assert model_check.embedding_advice(traced(build)) is None

"""Models, data and callbacks of the API's tests, in a module that other processes can import."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.models import layers
from ps_trainer.options import option

# The work of a test's run is small; these keep the threads few and the waits short.
FAST = {
    "report_secs": 0.2,
    "start_timeout_secs": 60.0,
    "stall_timeout_secs": 60.0,
    "intra_op_threads": 1,
    "inter_op_threads": 2,
}


class Linear:
    """Logits by one dense layer, for batches of pairs or dicts."""

    def build(self, batch, training):
        features, labels = batch if isinstance(batch, tuple) else (batch["image"], batch["label"])
        logits = layers.dense(layers.flatten(features), 10, "logits")
        return layers.classifier_output(logits, labels)


class Scaled:
    """Like `Linear`, with an option."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        scale: float = option(1.0, "factor of the pixels", above=0)

    def __init__(self, options):
        self.options = options

    def build(self, batch, training):
        logits = layers.dense(layers.flatten(batch["image"]) * self.options.scale, 10, "logits")
        return layers.classifier_output(logits, batch["label"])


class Broken:
    """Fails while it builds its graph."""

    def build(self, batch, training):
        raise ZeroDivisionError("the model divides by zero")


class NoTraining:
    """Its `build` has no parameter `training`."""

    def build(self, batch):
        return Linear().build(batch, training=True)


class FailsInAStep:
    """Builds well; each of its steps fails."""

    def build(self, batch, training):
        output = Linear().build(batch, training)
        with tf.control_dependencies([tf.debugging.Assert(tf.constant(False), ["the model fails in a step"])]):
            return output._replace(loss=tf.identity(output.loss))


class Diverges:
    """Its loss is NaN from the first step on."""

    def build(self, batch, training):
        output = Linear().build(batch, training)
        return output._replace(loss=output.loss * float("nan"))


def arrays(num_examples=400, seed=0):
    """Features [n, 4] and labels [n] that a linear model separates."""
    random = np.random.RandomState(seed)
    labels = random.randint(0, 10, num_examples).astype(np.int64)
    features = np.eye(10, dtype=np.float32)[labels] + random.normal(scale=0.1, size=(num_examples, 10))
    return features.astype(np.float32), labels


def input_fn(mode, batch_size):
    """Batches of `arrays`, as an input function of Estimator's time makes them."""
    dataset = tf.data.Dataset.from_tensor_slices(arrays(seed=0 if mode == "train" else 1))
    if mode == "train":
        dataset = dataset.shuffle(400, seed=1)
    return dataset.batch(batch_size, drop_remainder=mode == "train")


def feeds():
    """Batches of 20 examples, one after the other."""
    features, labels = arrays()
    for first in range(0, 400, 20):
        yield features[first : first + 20], labels[first : first + 20]


def model_fn(features, labels, mode, params):
    """A model in Estimator's form, with its own optimizer."""
    w = tf.get_variable("w", [10, 10])
    b = tf.get_variable("b", [10], initializer=tf.zeros_initializer())
    logits = tf.matmul(features, w) + b
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    metrics = {"accuracy": tf.metrics.accuracy(labels, tf.argmax(logits, axis=1))}
    train_op = None
    if mode == "train":
        optimizer = tf.train.MomentumOptimizer(params["rate"], 0.5)
        train_op = optimizer.minimize(loss, global_step=tf.train.get_or_create_global_step())

    class Spec:
        pass

    spec = Spec()
    spec.loss, spec.train_op, spec.eval_metric_ops, spec.predictions = loss, train_op, metrics, logits
    return spec

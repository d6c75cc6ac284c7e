"""Models as they come from a TF1 script, for the digits."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from ps_trainer.models import layers


def output(x, batch):
    return layers.classifier_output(layers.dense(x, 10, "logits"), batch["label"])


class Optimizer:
    """Makes its own updates."""

    def build(self, batch, training):
        result = output(layers.flatten(batch["image"]), batch)
        tf.train.AdamOptimizer(0.01).minimize(result.loss, tf.train.get_or_create_global_step())
        return result


class BareLoss:
    """Returns the loss alone."""

    def build(self, batch, training):
        return output(layers.flatten(batch["image"]), batch).loss


class Placeholder:
    """Waits for a feed."""

    def build(self, batch, training):
        return output(tf.placeholder(tf.float32, [None, 64], "x"), batch)


class Variable:
    """Creates a variable that the parameter store does not see."""

    def build(self, batch, training):
        x = layers.flatten(batch["image"])
        return output(x * tf.Variable(1.0, name="w"), batch)


class PlainTable:
    """Looks rows up in a plain variable of 2.56 MB."""

    def build(self, batch, training):
        rows = tf.nn.embedding_lookup(tf.get_variable("table", [10_000, 64]), batch["label"])
        return output(layers.flatten(batch["image"]) + rows, batch)

"""The model's variables in a worker's graph, and the tensors that a step sends between worker and ps tasks."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest

from ps_trainer.checkpoints import reader as checkpoint_lib
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.training import components as components_lib
from ps_trainer.training import graph as graph_lib
from ps_trainer.training.graph_parts import combined_result
from tests.testing import components as small
from tests.testing.cluster import InProcessCluster, config_of
from tests.updates.assembled import assemble

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from models import layers

LAYOUTS = ("packed", "per_variable")
DECAY = 0.75


class MovingAverage:
    """Dense features minus their moving average, which the model keeps itself."""

    def build(self, batch, training):
        mean_F = tf.get_variable("mean", [small.NUM_FEATURES], initializer=tf.zeros_initializer(), trainable=False)
        if training:
            update_op = mean_F.assign(DECAY * mean_F + (1 - DECAY) * tf.reduce_mean(batch["x"], axis=0))
            tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, update_op)
        logits_BC = layers.dense(batch["x"], small.NUM_CLASSES, "logits")
        return layers.classifier_output(logits_BC, batch["label"])


class Unused:
    """A model with variables that do not influence its loss."""

    def build(self, batch, training):
        tf.get_variable("unused_first", [3], initializer=tf.ones_initializer())
        logits_BC = layers.dense(batch["x"], small.NUM_CLASSES, "logits")
        tf.get_variable("unused_last", [7, 2], initializer=tf.ones_initializer())
        return layers.classifier_output(logits_BC, batch["label"])


class Regularized:
    """A weight with a regularizer that is used twice."""

    def build(self, batch, training):
        for _ in range(2):
            with tf.variable_scope("shared", reuse=tf.AUTO_REUSE, regularizer=lambda w: 0.5 * tf.reduce_sum(w * w)):
                kernel_FC = tf.get_variable("kernel", [small.NUM_FEATURES, small.NUM_CLASSES])
        tf.get_variable("free", [2], regularizer=lambda w: None)
        output = layers.classifier_output(tf.matmul(batch["x"], kernel_FC), batch["label"])
        losses = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
        return output._replace(loss=output.loss + tf.add_n(losses))


def own_config(model, **fields):
    config = config_of("Dense", "Rows", batch_size=8, **fields)
    return dataclasses.replace(config, model=f"{__name__}:{model.__name__}")


def build(config, num_ps=1, num_workers=2, worker=0):
    """The graph of a worker, built without a server."""
    jobs = {
        "ps": tuple(f"localhost:{2000 + ps}" for ps in range(num_ps)),
        "worker": tuple(f"localhost:{3000 + index}" for index in range(num_workers)),
    }
    cluster = ClusterConfig(jobs=jobs, job_name="worker", task_index=worker)
    config = dataclasses.replace(config, steps_per_call=1)  # a call of several steps would copy the ops
    return graph_lib.build(components_lib.load(config, num_workers), cluster, config, "run")


@pytest.fixture(scope="module")
def one_worker():
    with InProcessCluster(num_ps=2, num_workers=1) as cluster:
        yield cluster


@pytest.mark.parametrize("layout", LAYOUTS)
class TestModel:
    def test_keeps_a_moving_average(self, one_worker, layout, tmp_path):
        config = own_config(MovingAverage, layout=layout, max_steps=10, logdir=str(tmp_path))
        (outcome,) = one_worker.run(config)
        mean = np.zeros(small.NUM_FEATURES)
        for batch in small.global_batches(8, 10):
            mean = DECAY * mean + (1 - DECAY) * batch["x"].mean(axis=0)
        saved = checkpoint_lib.latest(tmp_path / "checkpoints")
        np.testing.assert_allclose(saved["mean"], mean, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(saved["mean"], outcome.worker.final_values["mean"])

    @pytest.mark.parametrize("update", ["async", "sync"])
    def test_may_have_variables_that_its_loss_does_not_use(self, one_worker, layout, update):
        config = own_config(Unused, layout=layout, update=update, optimizer="momentum", max_steps=5)
        (outcome,) = one_worker.run(config)
        losses, values = small.plain_loop(
            Unused(), small.global_batches(8, 5), lambda: tf.train.MomentumOptimizer(0.1, 0.9)
        )
        np.testing.assert_allclose(outcome.losses, losses, rtol=0, atol=1e-6)
        got = outcome.worker.final_values
        np.testing.assert_allclose(got["logits/kernel"], values["logits/kernel"], rtol=0, atol=1e-6)
        np.testing.assert_array_equal(got["unused_first"], np.ones(3))
        np.testing.assert_array_equal(got["unused_last"], np.ones([7, 2]))

    def test_has_each_regularization_loss_once_as_in_plain_tensorflow(self, one_worker, layout):
        config = own_config(Regularized, layout=layout, learning_rate=0.01, max_steps=5)
        train = build(config)
        assert len(train.graph.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)) == 1
        (outcome,) = one_worker.run(config)
        losses, values = small.plain_loop(
            Regularized(), small.global_batches(8, 5), lambda: tf.train.GradientDescentOptimizer(0.01)
        )
        np.testing.assert_allclose(outcome.losses, losses, rtol=0, atol=1e-6)
        kernel = "shared/kernel"
        np.testing.assert_allclose(outcome.worker.final_values[kernel], values[kernel], rtol=0, atol=1e-6)

    def test_finds_a_tensor_per_variable_among_the_trainable_variables(self, one_worker, layout):
        config = config_of("Dense", "Rows", layout=layout)
        train = build(config, num_ps=3)
        with train.graph.as_default():
            tensors = tf.trainable_variables()
        wanted = [spec for spec in train.store.specs if spec.trainable]
        assert [tensor.op.name for tensor in tensors] == [f"{spec.name}/pulled" for spec in wanted]
        assert [tuple(tensor.shape.as_list()) for tensor in tensors] == [spec.shape for spec in wanted]
        assert {tensor.device for tensor in tensors} == {"/job:worker/task:0"}


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("update", ["async", "sync"])
class TestTraffic:
    """A step of `Dense`: 59 parameters in one piece per ps task."""

    @pytest.mark.parametrize("num_ps", [1, 2])
    def test_only_gradients_go_to_a_ps_and_only_parameters_and_progress_come_back(self, update, optimizer, num_ps):
        config = config_of("Dense", "Rows", layout="packed", update=update, optimizer=optimizer)
        train = build(config, num_ps=num_ps)
        to_ps, to_worker = crossings(train)
        sizes = [piece.variable.shape.num_elements() for piece in train.store.pieces]
        assert len(sizes) == num_ps
        assert sorted(to_ps) == sorted((ps, "data", (size,)) for ps, size in enumerate(sizes))
        # global_step and staleness of ps 0, and the staleness of ps 1: each takes the place of two floats.
        results = [2 * 2, 2]
        assert sorted(to_worker) == sorted((ps, "data", (size + results[ps],)) for ps, size in enumerate(sizes))

    def test_a_layout_of_many_variables_sends_each_gradient_and_no_more(self, update, optimizer):
        config = config_of("Dense", "Rows", layout="per_variable", update=update, optimizer=optimizer)
        train = build(config)
        to_ps, to_worker = crossings(train)
        shapes = Counter((0, "data", spec.shape) for spec in train.store.specs)
        assert Counter(to_ps) == shapes
        assert to_worker == [(0, "data", (sum(spec.size for spec in train.store.specs) + 2 * 2,))]


def crossings(train, fetches=None):
    """The messages of a step: lists of (ps, "data" or "control", shape), to ps tasks and to the worker.

    An op without a device runs on the worker, which owns the session. A tensor that several ops of a task use counts
    once, because TensorFlow's partitioner sends it once.
    """
    pending = [getattr(fetch, "op", fetch) for fetch in tf.nest.flatten(fetches or train.fetches)]
    seen, sent = set(), set()
    while pending:
        op = pending.pop()
        if op in seen:
            continue
        seen.add(op)
        for tensor in op.inputs:
            shape = () if tensor.shape.rank is None else tuple(tensor.shape.as_list())
            sent.add((tensor.name, place(tensor.op), place(op), "data", shape))
            pending.append(tensor.op)
        for before in op.control_inputs:
            sent.add((before.name, place(before), place(op), "control", ()))
            pending.append(before)
    to_ps = [(to, kind, shape) for _, source, to, kind, shape in sent if source is None and to is not None]
    to_worker = [(source, kind, shape) for _, source, to, kind, shape in sent if source is not None and to is None]
    return to_ps, to_worker


def place(op):
    """The ps task that an op runs on, or None for the worker."""
    device = tf.DeviceSpec.from_string(op.device)
    return device.task if device.job == "ps" else None


class Large:
    """A model whose parameters are more than those that travel with the result of a step."""

    def build(self, batch, training):
        x = layers.dense(batch["x"], 4 * 1400, "hidden")
        return layers.classifier_output(layers.dense(x, small.NUM_CLASSES, "logits"), batch["label"])


class Even:
    """A model of as many parameters, of which each begins and ends at a multiple of 64 bytes."""

    def build(self, batch, training):
        x = layers.dense(tf.zeros([8, 16]) + batch["x"][0, 0], 4 * 1024, "hidden")
        return layers.classifier_output(layers.dense(x, 16, "logits"), batch["label"])


def test_many_parameters_travel_without_the_result():
    _, to_worker = crossings(build(own_config(Large)))
    assert len(to_worker) == 2
    assert (0, "data", (2,)) in to_worker


def test_many_parameters_travel_with_the_result_if_that_copies_nothing_on_the_worker(monkeypatch):
    size = (16 + 1 + 16) * 4 * 1024 + 16
    assert crossings(build(own_config(Even)))[1] == [(0, "data", (size + 2 * 2,))]
    assert len(crossings(assemble(own_config(Even), steps_per_call=0))[1]) == 1
    monkeypatch.setattr(combined_result, "MAX_ALIGNED_BYTES", 4 * size - 1)
    assert len(crossings(build(own_config(Even)))[1]) == 2


def test_few_parameters_of_16_bits_travel_with_the_result():
    _, to_worker = crossings(build(own_config(Unused, pull_dtype="float16")))
    assert len(to_worker) == 1

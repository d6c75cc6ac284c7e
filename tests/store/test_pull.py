"""The pull: in another type, and twice from the same parameters."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.testing import oracles
from tests.testing.cluster import InProcessCluster, config_of
from tests.testing.components import Dense, global_batches, plain_loop
from tests.testing.script import Linear, initial_values
from tests.training.test_graph import build, crossings

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from models import layers
from ps_trainer.store.ancestors import ancestors
from ps_trainer.training.graph_parts import combined_result

LAYOUTS = ("packed", "per_variable")
STEPS, RATE = 6, 0.1


@pytest.mark.parametrize("update", ["async", "sync"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_gradient_belongs_to_the_rounded_parameters_and_the_ps_keeps_all_digits(layout, dtype, update):
    config = config_of("Dense", "Rows", layout=layout, update=update, pull_dtype=dtype, batch_size=8, max_steps=STEPS)
    config = dataclasses.replace(config, model="tests.testing.script:Linear")
    with InProcessCluster(2, 1) as cluster:
        (outcome,) = cluster.run(config)
    params = initial_values(Linear())
    losses = []
    for batch in global_batches(8, STEPS):
        rounded = {name: rounded_to(dtype, value) for name, value in params.items()}
        loss, gradient = oracles.linear(rounded, batch)
        losses.append(loss)
        params = oracles.sgd(params, gradient, RATE)
    np.testing.assert_allclose(outcome.losses, losses, rtol=0, atol=1e-6)
    for name, value in params.items():
        np.testing.assert_allclose(outcome.worker.final_values[name], value, rtol=0, atol=1e-6, err_msg=name)


class Large:
    """A model whose loss is a parameter, in thousands, that starts beyond the range of float16."""

    def build(self, batch, training):
        large = tf.get_variable("large", [2], initializer=tf.constant_initializer([70_000.0, -80_000.0]))
        loss = tf.reduce_sum(large * [1.0, -2.0]) / 1000
        return layers.ModelOutput(loss, batch["x"], {})


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_values_out_of_range_travel_as_the_end_of_the_range(dtype):
    config = config_of(f"{__name__}:Large", "Rows", pull_dtype=dtype, batch_size=8, max_steps=1)
    with InProcessCluster(1, 1) as cluster:
        (outcome,) = cluster.run(config)
    pulled = {"bfloat16": rounded_to("bfloat16", np.array([70_000.0, -80_000.0])), "float16": [65_504.0, -65_504.0]}
    np.testing.assert_allclose(outcome.losses, [(pulled[dtype][0] - 2 * pulled[dtype][1]) / 1000], rtol=1e-6)


def test_float32_equals_the_default():
    with InProcessCluster(1, 1) as cluster:
        (outcome,) = cluster.run(config_of("Dense", "Rows", pull_dtype="float32", batch_size=8, max_steps=STEPS))
    losses, _ = plain_loop(Dense(), global_batches(8, STEPS), lambda: tf.train.GradientDescentOptimizer(RATE))
    np.testing.assert_allclose(outcome.losses, losses, rtol=0, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_float16_pulls_have_half_the_bytes(layout, monkeypatch):
    monkeypatch.setattr(combined_result, "MAX_BYTES", 0)  # the result of a step would add bytes to the parameters
    train = build(config_of("Dense", "Rows", layout=layout, pull_dtype="bfloat16"))
    full = build(config_of("Dense", "Rows", layout=layout))
    assert sorted(crossings(train)[0]) == sorted(crossings(full)[0])
    assert sorted(crossings(train)[1]) == sorted(crossings(full)[1])  # the same number of tensors of the same shapes
    assert 2 * float_bytes_to_worker(train) == float_bytes_to_worker(full) == 4 * 59


def float_bytes_to_worker(train):
    """Bytes of the floating tensors that ops of the worker receive from ps ops."""
    tensors = {
        tensor.name: tensor
        for op in train.graph.get_operations()
        if "worker" in op.device and op.type == "Stage"
        for tensor in op.inputs
        if "ps" in tensor.device and tensor.dtype.is_floating
    }
    prime = {name for name in tensors if tensors[name].op in set(ancestors(train.join_ops))}
    return sum(t.dtype.size * t.shape.num_elements() for name, t in tensors.items() if name not in prime)


def rounded_to(dtype, value):
    """`value` rounded to nearest in `dtype`, as float32."""
    if dtype == "float16":
        return value.astype(np.float16).astype(np.float32)
    return value.astype(tf.bfloat16.as_numpy_dtype).astype(np.float32)

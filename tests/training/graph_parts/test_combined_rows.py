"""Rows of several tables in one message, and their gradients in another: the same numbers as in separate messages."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps_trainer.training.graph_parts import combined_rows, float_message, next_rows
from tests.store import test_table_lookups as tables
from tests.testing import components as small
from tests.testing.cluster import InProcessCluster, config_of
from tests.testing.repetitions import repetitions
from tests.training.test_graph import build, crossings

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

STEPS = 7


@pytest.fixture(autouse=True)
def own_rows(monkeypatch):
    """Each step looks up its own rows, as where their ids do not follow from the batch alone."""
    monkeypatch.setattr(next_rows, "build", lambda *_: None)


def config(model, **fields):
    made = config_of("Dense", "Rows", batch_size=8, max_steps=STEPS, seed=3, steps_per_call=1, **fields)
    module = tables.__name__ if hasattr(tables, model) else small.__name__
    return dataclasses.replace(made, model=f"{module}:{model}")


def trained(num_ps, made):
    with InProcessCluster(num_ps, 1) as cluster:
        (outcome,) = cluster.run(made)
    return outcome


@pytest.mark.parametrize(
    ("model", "num_ps", "fields"),
    [
        ("Tables", 1, {}),
        ("Tables", 2, {"pull_dtype": "bfloat16", "optimizer": "momentum"}),
        *repetitions(
            [
                ("Chained", 2, {"update": "sync", "optimizer": "lazy_adam"}),
                ("TwiceEmbedded", 2, {"update": "staleness_aware", "pull_dtype": "float16"}),
                ("Embedded", 1, {"update": "hogwild", "layout": "per_variable"}),
            ]
        ),
    ],
)
def test_the_numbers_are_those_of_separate_messages(model, num_ps, fields, monkeypatch):
    together = trained(num_ps, config(model, **fields))
    monkeypatch.setattr(combined_rows, "send_together", lambda parts, sender, receiver: None)
    apart = trained(num_ps, config(model, **fields))
    assert together.losses == apart.losses
    assert len(set(together.losses)) == STEPS
    for name, value in apart.worker.final_values.items():
        np.testing.assert_array_equal(together.worker.final_values[name], value, err_msg=name)


@pytest.mark.parametrize(
    ("model", "fields", "num_to_ps", "num_to_worker"),
    [
        # Ids and gradients; rows, and parameters with the result.
        ("Embedded", {}, 2, 2),
        ("Tables", {}, 2, 2),
        ("Tables", {"pull_dtype": "float16"}, 2, 2),
        # Transforms send each gradient in a message of its own, with its indices.
        ("Tables", {"gradient_transform": ("cast:dtype=bfloat16",)}, 4, 2),
    ],
)
def test_a_step_makes_these_messages(model, fields, num_to_ps, num_to_worker):
    to_ps, to_worker = crossings(build(config(model, **fields)))
    assert (len(to_ps), len(to_worker)) == (num_to_ps, num_to_worker)


def test_a_large_dense_gradient_travels_by_itself(monkeypatch):
    monkeypatch.setattr(combined_rows, "MAX_BYTES", 4)
    to_ps, _ = crossings(build(config("Tables")))
    assert len(to_ps) == 3


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float16, tf.int64])
@pytest.mark.parametrize(("shape", "known"), [((3, 1), False), ((3, 5), False), ((3, 4), False), ((3, 5), True)])
def test_a_message_of_floats_keeps_all_bits(dtype, shape, known):
    values = np.arange(1, 1 + np.prod(shape)).reshape(shape)
    with tf.Graph().as_default(), tf.Session() as session:
        tensor = tf.constant(values, dtype)
        if not known:
            tensor = tf.placeholder_with_default(tensor, [None, shape[1]])
        floats = float_message.as_floats(tensor)
        wanted_size = tf.convert_to_tensor(float_message.num_floats(tensor, tf.range(3)))
        got, size, wanted_size = session.run([float_message.from_floats(floats, tensor), tf.size(floats), wanted_size])
    np.testing.assert_array_equal(got.astype(np.float64), values)
    assert size == wanted_size

"""A call of several steps makes the same steps as single calls, and ends when the step loop has something to do."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.errors import Interrupted, NanLossError
from tests.testing import components as small
from tests.testing.cluster import InProcessCluster, config_of, wait_until
from tests.testing.repetitions import repetitions

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from models import layers

STEPS = 17  # not a multiple of the steps in a call
PER_CALL = 5


class Busy:
    """A model with a table, dropout, a variable that it assigns itself, a conditional and a loop."""

    def build(self, batch, training):
        rows_BND = layers.embedding("table", small.VOCAB_SIZE, 4, batch["ids"])
        x_BF = tf.concat([tf.reduce_mean(rows_BND, axis=1), batch["x"]], axis=1)
        count = tf.get_variable("count", [], initializer=tf.zeros_initializer(), trainable=False)
        if training:
            x_BF = tf.nn.dropout(x_BF, rate=0.5)
            tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, count.assign_add(1.0))
        x_BF = tf.cond(tf.reduce_sum(x_BF) > 0, lambda: 2.0 * x_BF, lambda: 1.0 * x_BF)
        _, x_BF = tf.while_loop(lambda i, _: i < 3, lambda i, x: [i + 1, tf.nn.tanh(x)], [0, x_BF])
        return layers.classifier_output(layers.dense(x_BF, small.NUM_CLASSES, "logits"), batch["label"])


class Exploding:
    """A model whose loss is NaN in its fourth step on, as its parameter is above 3 then."""

    def build(self, batch, training):
        weight = tf.convert_to_tensor(tf.get_variable("weight", [], initializer=tf.zeros_initializer()))
        loss = tf.where(weight > 2.5, tf.constant(np.nan), tf.constant(0.0)) - weight
        return layers.ModelOutput(loss, loss, {})


def config(steps_per_call, model="Busy", **fields):
    model = f"{__name__}:{model}" if model in ("Busy", "Exploding") else model
    return config_of(
        model, "Rows", **{"batch_size": 8, "max_steps": STEPS, "seed": 3, "steps_per_call": steps_per_call, **fields}
    )


def trained(steps_per_call, num_ps=1, num_workers=1, **fields):
    """The chief's outcome, with its graph."""
    with InProcessCluster(num_ps, num_workers) as cluster:
        return cluster.run(config(steps_per_call, **fields))[0]


def figures(outcome):
    progress = outcome.progress
    return progress.losses, progress.global_steps, [value.tolist() for value in progress.staleness_values]


@pytest.mark.parametrize(
    ("num_ps", "fields"),
    [
        *repetitions(
            [
                (1, {"optimizer": "adam"}),
                (2, {"layout": "per_variable", "update": "drop_stale"}),
                (1, {"gradient_transform": ("error_feedback", "top_k:ratio=0.3"), "update": "staleness_aware"}),
                (2, {"update": "sync"}),
                (1, {"update": "ssp", "update_option": ("staleness=2",)}),
                (1, {"sharding": "dynamic", "shard_examples": 16}),
                (1, {"pull_dtype": "bfloat16", "update": "hogwild"}),
            ],
            every=7,
        ),
        (0, {}),  # the worker holds the parameters
    ],
)
def test_the_steps_of_a_call_are_those_of_single_calls_to_the_last_bit(num_ps, fields):
    single, several, automatic = (trained(number, num_ps, **fields) for number in (1, PER_CALL, 0))
    assert figures(several) == figures(single)
    assert figures(automatic) == figures(single)
    assert len(single.losses) == single.progress.global_steps[-1] == STEPS
    assert len(set(single.losses)) == STEPS
    values = single.worker.final_values
    assert several.worker.final_values.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_array_equal(several.worker.final_values[name], value, err_msg=name)
    assert values["count"] == STEPS


@pytest.mark.parametrize("num_ps", repetitions([0, 2]), ids=lambda num_ps: f"{num_ps}_ps")
def test_workers_behind_a_barrier_make_the_same_steps_whatever_their_calls_hold(num_ps):
    single = trained(1, num_ps, 2, update="sync")
    with InProcessCluster(num_ps, 2) as cluster:
        calls = [cluster.start(config(number, update="sync"), worker) for worker, number in enumerate((PER_CALL, 3))]
        chief, other = (cluster.finish(call) for call in calls)
    assert figures(chief) == figures(single)
    assert other.progress.global_steps == chief.progress.global_steps


@pytest.mark.parametrize("sharding", repetitions(["static", "dynamic"]))
def test_the_end_of_the_data_comes_in_the_middle_of_a_call(tmp_path, sharding):
    fields = {"num_epochs": 1, "max_steps": None, "sharding": sharding, "options": ("num_examples=56",)}
    outcomes = [trained(number, logdir=str(tmp_path / str(number)), **fields) for number in (1, PER_CALL)]
    assert figures(outcomes[1]) == figures(outcomes[0])
    assert len(outcomes[1].losses) == 56 // 8
    if sharding == "static":
        folders = [str(tmp_path / str(number) / "checkpoints") for number in (1, PER_CALL)]
        assert [tf.train.load_checkpoint(folder).get_tensor("data/position").tolist() for folder in folders] == [
            [56]
        ] * 2


def test_a_call_ends_with_each_step_after_which_a_save_is_due(tmp_path):
    trained(1000, logdir=str(tmp_path), save_checkpoint_steps=4, report_secs=1000.0)
    saved = {path.stem.partition("-")[2] for path in (tmp_path / "checkpoints").glob("model.ckpt-*.index")}
    assert saved == {"4", "8", "12", "16", "17"}


def test_a_call_ends_with_the_step_whose_loss_is_nan():
    with InProcessCluster(1, 1) as cluster:
        call = cluster.start(config(1000, "Exploding", learning_rate=1.0), 0)
        outcome = cluster.finish(call)
    assert isinstance(outcome.error, NanLossError)
    assert "at global step 4" in str(outcome.error)
    assert outcome.progress.global_steps == [1, 2, 3, 4]


def test_a_stop_request_ends_a_call_after_its_step(tmp_path):
    with InProcessCluster(1, 1) as cluster:
        call = cluster.start(config(10_000, max_steps=10**9, logdir=str(tmp_path), report_secs=1000.0), 0)
        wait_until(lambda: call.made and len(call.made[-1].losses) > PER_CALL)
        call.stop.request(Interrupted(15))
        outcome = cluster.finish(call)
    assert isinstance(outcome.error, Interrupted)
    (saved,) = (tmp_path / "checkpoints").glob("model.ckpt-*.index")
    assert saved.stem == f"model.ckpt-{outcome.progress.global_steps[-1]}"

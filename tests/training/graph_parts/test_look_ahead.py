"""A step that looks up the rows of the next one: the same numbers as without, in fewer messages."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.training.graph_parts import look_ahead
from ps_trainer.updates import gradient_collector
from tests.store import test_table_lookups as tables
from tests.testing import components as small
from tests.testing.cluster import InProcessCluster, config_of
from tests.testing.repetitions import repetitions
from tests.updates.assembled import ancestors_within_step, assemble

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from models import layers

STEPS, PER_CALL = 17, 5  # the last call is not a full one


class Rows(small.Rows):
    """`Rows` in batches of which the last one may be smaller."""

    def train(self, *, batch_size, **arguments):
        return super().train(batch_size=1, **arguments).unbatch().batch(batch_size)


class OnlyTable:
    """A model whose only parameters are the rows of a table."""

    def build(self, batch, training):
        rows_BND = layers.embedding("table", small.VOCAB_SIZE, 4, batch["ids"])
        loss_B = tf.square(tf.reduce_sum(rows_BND, axis=[1, 2]) - batch["x"][:, 0])
        return layers.ModelOutput(tf.reduce_mean(loss_B), loss_B, {})


class Sampled:
    """A model that draws some of the ids."""

    def build(self, batch, training):
        ids = tf.concat([batch["ids"][:, 0], tf.random.uniform([3], 0, small.VOCAB_SIZE, tf.int64)], axis=0)
        loss = tf.reduce_mean(tf.square(layers.embedding("table", small.VOCAB_SIZE, 4, ids)))
        return layers.ModelOutput(loss, batch["label"], {})


class Counted(OnlyTable):
    """A model with a variable that has the name of an op of a dataset."""

    def build(self, batch, training):
        tf.get_variable("count", [], initializer=tf.zeros_initializer(), trainable=False)
        return super().build(batch, training)


class Falling:
    """A model whose gradient is 1 for each number of a table; its loss is the largest of them."""

    def build(self, batch, training):
        ids = tf.range(small.VOCAB_SIZE, dtype=tf.int64) + 0 * batch["label"][0]
        rows = layers.embedding("table", small.VOCAB_SIZE, 40, ids, initializer=tf.zeros_initializer())
        slope = tf.reduce_sum(rows) - tf.stop_gradient(tf.reduce_sum(rows))
        return layers.ModelOutput(tf.stop_gradient(tf.reduce_max(rows)) + slope, batch["label"], {})


def config(model, **fields):
    fields = {"batch_size": 8, "max_steps": STEPS, "seed": 3, **fields}
    made = config_of("Dense", "Rows", fields.pop("options", ()), **fields)
    module = tables.__name__ if hasattr(tables, model) else small.__name__ if hasattr(small, model) else __name__
    return dataclasses.replace(made, model=f"{module}:{model}", dataset=f"{__name__}:Rows")


def results_of(monkeypatch, module, name):
    """The results of a module's function, in a list that grows during the test."""
    made, function = [], getattr(module, name)

    def keep(*arguments):
        made.append(function(*arguments))
        return made[-1]

    monkeypatch.setattr(module, name, keep)
    return made


@pytest.fixture
def plans(monkeypatch):
    """The plans that are made during the test."""
    return results_of(monkeypatch, look_ahead, "plan")


def trained(model, steps_per_call, num_ps=1, num_workers=1, **fields):
    with InProcessCluster(num_ps, num_workers) as cluster:
        return cluster.run(config(model, steps_per_call=steps_per_call, **fields))


def assert_same(outcome, other):
    assert outcome.losses == other.losses
    assert outcome.progress.global_steps == other.progress.global_steps
    assert [value.tolist() for value in outcome.progress.staleness_values] == [
        value.tolist() for value in other.progress.staleness_values
    ]
    values = other.worker.final_values
    assert outcome.worker.final_values.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_array_equal(outcome.worker.final_values[name], value, err_msg=name)


@pytest.mark.parametrize(
    ("model", "num_ps", "fields"),
    [
        ("OnlyTable", 1, {}),
        ("Tables", 2, {"optimizer": "momentum"}),
        *repetitions(
            [
                ("TwiceEmbedded", 1, {"pull_dtype": "bfloat16"}),
                ("Tables", 1, {"pull_dtype": "float16", "gradient_transform": ("cast:dtype=bfloat16",)}),
                ("Chained", 2, {"update": "staleness_aware"}),
                ("Tables", 2, {"update": "sync", "optimizer": "lazy_adam"}),
                ("OnlyTable", 2, {"update": "ssp", "update_option": ("staleness=2",)}),
            ]
        ),
    ],
)
def test_the_numbers_are_those_of_steps_that_look_up_their_own_rows(model, num_ps, fields, plans):
    (single,) = trained(model, 1, num_ps, **fields)
    assert not plans
    (several,) = trained(model, PER_CALL, num_ps, **fields)
    (automatic,) = trained(model, 0, num_ps, **fields)
    assert len(plans) == 2
    assert None not in plans
    assert len(set(single.losses)) == STEPS
    assert_same(several, single)
    assert_same(automatic, single)


def test_the_numbers_are_the_same_where_parts_of_the_parameters_are_updated_one_by_one(plans, monkeypatch):
    """As under `sync` between hosts, where the next step's parameters are read part by part."""
    monkeypatch.setattr(ClusterConfig, "spans_hosts", True)
    monkeypatch.setattr(gradient_collector, "_NUM_PARTS", 100)
    monkeypatch.setattr(gradient_collector, "_LEAST_PART_BYTES", 1)
    fields = {"update": "sync", "layout": "per_variable"}
    (single,), (several,) = (trained("Tables", number, **fields) for number in (1, PER_CALL))
    assert plans[0] is not None
    assert_same(several, single)


def test_the_data_end_with_their_last_batch(plans):
    fields = {"num_epochs": 2, "max_steps": None, "options": ("num_examples=51",)}  # 102 = 12 * 8 + 6
    (single,), (several,) = (trained("Tables", number, **fields) for number in (1, PER_CALL))
    assert plans[0] is not None
    assert_same(several, single)
    assert len(several.losses) == 13


def test_a_run_that_resumes_in_the_middle_of_a_call_reads_on_where_it_stopped(tmp_path):
    (whole,) = trained("Tables", 1)
    fields = {"logdir": str(tmp_path), "save_checkpoint_secs": 10**6}
    (first,) = trained("Tables", PER_CALL, max_steps=8, **fields)
    (second,) = trained("Tables", PER_CALL, max_steps=STEPS, **fields)
    assert first.losses + second.losses == whole.losses


def assert_rows_are_as_old_as_the_staleness_says(steps_per_call):
    """Each number of the table is minus the count of its updates."""
    outcomes = trained(
        "Falling", steps_per_call, num_workers=3, learning_rate=1.0, max_steps=300, batch_size=1,
        options=("num_examples=3",),
    )  # fmt: skip
    seen = []
    for outcome in outcomes:
        progress = outcome.progress
        numbers = zip(progress.global_steps, progress.staleness_values, progress.losses, strict=True)
        for step, (staleness,), loss in numbers:
            assert -loss >= step - 1 - staleness
            seen.append(int(staleness))
    assert max(seen) > 0


def test_rows_are_at_most_as_old_as_the_staleness_says(plans):
    assert_rows_are_as_old_as_the_staleness_says(steps_per_call=0)
    assert len(plans) == 3
    assert None not in plans


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("Sampled", {}),
        ("Dense", {}),
        ("OnlyTable", {"sharding": "dynamic", "shard_examples": 16}),
        ("Tables", {"update": "hybrid"}),
        ("OnlyTable", {"straggler": ("det:mean_ms=1",)}),
    ],
)
def test_no_rows_are_looked_up_ahead_where_ids_or_data_forbid_it(model, fields, plans):
    assemble(config(model, **fields), steps_per_call=0)
    assert not plans


def test_a_worker_that_reads_pairs_of_batches_gives_variables_the_same_names(plans):
    names = []
    for steps_per_call in (1, 0):
        ops = assemble(config("Counted"), steps_per_call=steps_per_call).graph.get_operations()
        names.append({op.get_attr("shared_name") for op in ops if op.type == "VarHandleOp"})
    assert len(plans) == 1
    assert names[0] == names[1]


def test_rows_are_read_after_the_update_and_after_the_clock(plans):
    graph = assemble(config("OnlyTable"), steps_per_call=0).graph
    (look_up,) = [op for op in graph.get_operations() if op.type == "ResourceGather" and op.name.startswith("call/")]
    before = {op.type for op in ancestors_within_step([look_up])}
    assert before >= {"ResourceScatterNdSub", "ResourceCountUpTo", "Stage"}


def messages(train):
    """The messages of a step in a call: to ps tasks, and to the worker."""
    sent = set()
    for op in train.graph.get_operations():
        if op.name.startswith("call/"):
            for source in (*op.inputs, *op.control_inputs):
                before = getattr(source, "op", source)
                # What comes from outside of the loop is sent once in a call.
                if task(before) != task(op) and before.name.startswith("call/"):
                    sent.add((source.name, task(before), task(op)))
    assert all("worker" in {source, to} for _, source, to in sent)
    return len([to for _, _, to in sent if to != "worker"]), len([to for _, _, to in sent if to == "worker"])


def task(op):
    device = tf.DeviceSpec.from_string(op.device)
    return f"ps {device.task}" if device.job == "ps" else "worker"


@pytest.mark.parametrize(
    ("model", "num_ps", "fields", "to_ps", "to_worker"),
    [
        # That a step begins, and gradient with ids; result with rows.
        ("OnlyTable", 1, {}, 2, 1),
        ("OnlyTable", 2, {}, 4, 2),
        ("OnlyTable", 1, {"update": "sync"}, 2, 1),
        # Without a table, gradient and parameters with the result; each message goes to one op.
        ("Dense", 1, {}, 2, 1),
        ("Dense", 2, {}, 4, 2),
        # The dense gradient and the dense parameters travel in the same messages.
        ("Tables", 1, {}, 2, 1),
        ("TwiceEmbedded", 2, {}, 4, 2),
        # Transforms send the ids of a gradient with its values: ids of the next step, and a message for each table.
        ("TwiceEmbedded", 1, {"gradient_transform": ("cast:dtype=bfloat16",)}, 5, 1),
        # Rows of 16 bits travel in the memory of floats.
        ("OnlyTable", 1, {"pull_dtype": "bfloat16"}, 2, 1),
        ("Embedded", 1, {"pull_dtype": "bfloat16"}, 2, 1),
        ("Tables", 1, {"pull_dtype": "bfloat16"}, 2, 1),
        # Ids and rows of the second look-up, which needs the first.
        ("Chained", 1, {}, 3, 2),
    ],
)
def test_a_step_makes_these_messages(model, num_ps, fields, to_ps, to_worker):
    train = assemble(config(model, **fields), num_ps=num_ps, steps_per_call=0)
    assert messages(train) == (to_ps, to_worker)

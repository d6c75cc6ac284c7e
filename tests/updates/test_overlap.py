"""Transfers beside computation: what a part of a step waits for, and that its numbers stay the same."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.store import pull
from ps_trainer.store.ancestors import ancestors
from ps_trainer.training.graph_parts import combined_result
from ps_trainer.updates import gradient_collector
from tests.testing.cluster import InProcessCluster, config_of
from tests.testing.repetitions import repetitions
from tests.updates.assembled import ancestors_within_step, assemble

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from models import layers

NUM_LAYERS = 4
# Rules that update a part of the parameters as soon as its gradient is there; `sync` does so between hosts only.
PORTIONED = [("async", False), ("async", True), ("sync", True), ("backup", True)]
STEPS, PER_CALL = 11, 4
SCHEDULE = (f"decay_steps={2 * STEPS}",)


class Deep:
    """Four layers, and a variable that the loss does not depend on."""

    def build(self, batch, training):
        x = batch["x"]
        for number in range(NUM_LAYERS):
            x = tf.nn.tanh(tf.matmul(x, tf.get_variable(f"layer_{number}", [x.shape[-1], 6])), name=f"out_{number}")
        tf.get_variable("unused", [20], initializer=tf.ones_initializer())
        loss = tf.reduce_mean(tf.square(x))
        return layers.ModelOutput(loss, batch["x"], {})


def deep_config(**fields):
    return config_of(
        f"{__name__}:Deep", "Rows", batch_size=8, **{"max_steps": STEPS, "layout": "per_variable", **fields}
    )


@pytest.fixture(autouse=True)
def an_area_for_each_variable(monkeypatch):
    for place in pull.AREA_BYTES:
        monkeypatch.setitem(pull.AREA_BYTES, place, 1)
    monkeypatch.setattr(gradient_collector, "_NUM_PARTS", 100)
    monkeypatch.setattr(gradient_collector, "_LEAST_PART_BYTES", 1)
    monkeypatch.setattr(combined_result, "MAX_BYTES", 0)


def variable_of(op):
    """The name of the variable that an op reads first."""
    while op.type != "VarHandleOp":
        op = op.inputs[0].op
    return op.name


def updates_of(train):
    """The ops that update the layers on the ps task, by the name of the layer."""
    updates = [op for op in train.graph.get_operations() if op.type == "ResourceApplyGradientDescent"]
    assert len(updates) == NUM_LAYERS
    return {variable_of(op): op for op in updates}


def gradients_of(train):
    """The ops on the worker that compute the gradients of the layers, by the name of the layer."""
    names = [f"gradients/MatMul{f'_{number}' if number else ''}_grad/MatMul_1" for number in range(NUM_LAYERS)]
    return {f"layer_{number}": train.graph.get_operation_by_name(name) for number, name in enumerate(names)}


def test_an_update_waits_for_no_gradient_of_the_layers_before():
    train = assemble(deep_config(update="async"))
    gradients = gradients_of(train)
    for name, update in updates_of(train).items():
        waits_for = {other for other, gradient in gradients.items() if gradient in set(ancestors([update]))}
        assert name in waits_for
        assert not {other for other in waits_for if other < name}


@pytest.mark.parametrize(("update", "spans_hosts"), PORTIONED)
def test_the_pull_of_a_layer_waits_for_no_gradient_of_the_layers_before(update, spans_hosts):
    train = assemble(deep_config(update=update), spans_hosts=spans_hosts)
    gradients = gradients_of(train)
    ops = [getattr(target, "op", target) for target in train.fetches[0].targets]
    staged = {variable_of(op.inputs[0].op): op for op in ops if op.type == "Stage" and "worker" in op.device}
    assert set(staged) == {*gradients, "unused"}
    for name, stage in staged.items() - {("unused", staged["unused"])}:
        waits_for = {other for other, gradient in gradients.items() if gradient in set(ancestors([stage]))}
        assert not {other for other in waits_for if other < name}
    assert gradients["layer_0"] in set(ancestors([staged["layer_0"]]))


@pytest.mark.parametrize("update", ["async", "sync"])
def test_a_step_of_a_call_waits_for_the_parameters_of_each_layer_alone(update):
    graph = assemble(deep_config(update=update), steps_per_call=PER_CALL).graph
    of_call = {op.name: op for op in graph.get_operations() if op.name.startswith("call/")}
    note = next(op for op in of_call.values() if op.type == "PyFunc")
    stages = [op for op in of_call.values() if op.type == "Stage" and "worker" in op.device]
    assert len(stages) == NUM_LAYERS + 1
    within_step = ancestors_within_step([note])
    assert not set(stages) & within_step  # the next step begins before the parameters have arrived
    first, last = (of_call[f"call/out_{number}"] for number in (0, NUM_LAYERS - 1))
    taken = {
        name: {op for op in ancestors_within_step([out]) if op.type == "Unstage" and "worker" in op.device}
        for name, out in (("first", first), ("last", last))
    }
    assert len(taken["first"]) == 1
    assert len(taken["last"]) == NUM_LAYERS
    for op in taken["last"]:
        (pivot,) = op.control_inputs
        # The way back of its own chain leads to the op that stages its values, and to no other.
        name = op.get_attr("shared_name").decode()
        ended = of_call[pivot.name.removesuffix("pivot") + "ended"]
        assert [stage.get_attr("shared_name").decode() for stage in ended.control_inputs] == [name]


@pytest.mark.parametrize(
    ("num_ps", "fields"),
    repetitions(
        [
            (1, {"update": "async", "optimizer": "adam"}),
            (2, {"update": "async", "optimizer": "momentum"}),
            (1, {"update": "sync"}),
            (1, {"update": "async", "pull_dtype": "bfloat16", "gradient_transform": ("clip_norm:norm=0.1",)}),
        ],
        every=4,
    ),
)
def test_the_numbers_do_not_depend_on_the_number_of_staging_areas(num_ps, fields, monkeypatch):
    outcomes = []
    for area_bytes, per_call in ((2**20, 1), (1, 1), (1, PER_CALL), (2**20, PER_CALL)):
        monkeypatch.setitem(pull.AREA_BYTES, "one host", area_bytes)
        with InProcessCluster(num_ps, 1) as cluster:
            outcomes.append(cluster.run(deep_config(steps_per_call=per_call, seed=3, **fields))[0])
    first = outcomes[0]
    assert len(set(first.losses)) == STEPS
    for outcome in outcomes[1:]:
        assert outcome.losses == first.losses
        assert outcome.progress.global_steps == first.progress.global_steps
        assert all(not staleness.any() for staleness in outcome.progress.staleness_values)
        for name, value in first.worker.final_values.items():
            np.testing.assert_array_equal(outcome.worker.final_values[name], value, err_msg=name)


@pytest.mark.parametrize("num_ps", [1, 2])
@pytest.mark.parametrize("optimizer", repetitions(["adam", "momentum"]))
def test_the_numbers_do_not_depend_on_the_number_of_parts(num_ps, optimizer, monkeypatch):
    config = deep_config(update="sync", optimizer=optimizer, schedule="polynomial", schedule_option=SCHEDULE, seed=3)
    outcomes = []
    for spans_hosts in (False, True):
        monkeypatch.setattr(ClusterConfig, "spans_hosts", spans_hosts)
        with InProcessCluster(num_ps, 2) as cluster:
            outcomes.append(cluster.run(config))
    for whole, parted in zip(*outcomes, strict=True):
        assert len(set(whole.losses)) == STEPS
        assert parted.losses == whole.losses
        assert parted.progress.global_steps == whole.progress.global_steps
        assert all(not staleness.any() for staleness in parted.progress.staleness_values)
    for name, value in outcomes[0][0].worker.final_values.items():
        np.testing.assert_array_equal(outcomes[1][0].worker.final_values[name], value, err_msg=name)


def test_staleness_counts_at_least_the_updates_that_the_pulled_parameters_lack():
    """Every gradient is 1 everywhere, so each number of a layer is minus the count of its updates."""
    config = config_of(
        f"{__name__}:Falling", "Rows", layout="per_variable", learning_rate=1.0, batch_size=1, max_steps=200
    )
    with InProcessCluster(1, 3) as cluster:
        outcomes = cluster.run(config)
    seen = []
    for outcome in outcomes:
        progress = outcome.progress
        numbers = zip(progress.global_steps, progress.staleness_values, progress.losses, strict=True)
        for step, (staleness,), loss in numbers:
            # The least number of updates in a layer; a layer may have more than the clock counts, and none has fewer.
            assert -loss >= step - 1 - staleness
            seen.append(int(staleness))
    assert max(seen) > 0


class Wide:
    """One layer of several hundred kB a feature."""

    def build(self, batch, training):
        x = tf.matmul(batch["x"], tf.get_variable("w", [batch["x"].shape[-1], 10**5]))
        return layers.ModelOutput(tf.reduce_mean(x), batch["x"], {})


@pytest.mark.parametrize("chief_spans", [True, False])
def test_all_workers_make_the_pieces_that_the_chiefs_addresses_call_for(chief_spans, monkeypatch):
    """Behind a tunnel a worker may see other addresses than the chief."""
    monkeypatch.setattr(ClusterConfig, "spans_hosts", property(lambda cluster: cluster.is_chief == chief_spans))
    with InProcessCluster(1, 2) as cluster:
        outcomes = cluster.run(config_of(f"{__name__}:Wide", "Rows", batch_size=1, max_steps=6))
    names = [[piece.variable.op.name for piece in outcome.worker._trained.store.pieces] for outcome in outcomes]
    assert names[0] == names[1]
    assert (len(names[0]) > 1) == chief_spans


class Falling:
    """A model whose loss is the largest parameter."""

    def build(self, batch, training):
        variables = [tf.get_variable(f"v{number}", [300], initializer=tf.zeros_initializer()) for number in range(6)]
        values = tf.stack([tf.reduce_mean(variable) for variable in variables])
        slope = 300 * (tf.reduce_sum(values) - tf.stop_gradient(tf.reduce_sum(values)))
        return layers.ModelOutput(tf.stop_gradient(tf.reduce_max(values)) + slope, batch["x"], {})

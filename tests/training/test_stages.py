"""A model with stages on several workers trains as on one, and each stage's data take their own way."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.errors import OptionError
from ps_trainer.training import components as components_lib
from ps_trainer.training import graph as graph_lib
from tests.testing import components as small
from tests.testing.cluster import InProcessCluster, config_of
from tests.testing.script import initial_values

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from models import layers

BATCH_SIZE, NUM_STEPS = 8, 5


class Staged:
    """A model with a table, a dense layer and the classes, each on a stage; stages 1 and 2 share a kernel."""

    def build(self, batch, training):
        with layers.stage(1):
            rows_BND = layers.embedding("table", small.VOCAB_SIZE, 4, batch["ids"])
            x_BD = tf.concat([tf.reduce_mean(rows_BND, axis=1), batch["x"]], axis=1)
            kernel_DD = tf.get_variable("shared", [4 + small.NUM_FEATURES, 4 + small.NUM_FEATURES])
            x_BD = tf.nn.tanh(tf.matmul(x_BD, kernel_DD))
        with layers.stage(2):
            x_BD = tf.nn.tanh(tf.matmul(x_BD, kernel_DD))
            logits_BC = layers.dense(x_BD, small.NUM_CLASSES, "logits")
        scale = tf.get_variable("scale", [], initializer=tf.ones_initializer())
        return layers.classifier_output(logits_BC * scale, batch["label"])


class Gap:
    """A model that names stage 2 but not stage 1."""

    def build(self, batch, training):
        with layers.stage(2):
            return layers.classifier_output(layers.dense(batch["x"], small.NUM_CLASSES, "logits"), batch["label"])


def config(num_steps=NUM_STEPS, model=f"{__name__}:Staged", **fields):
    fields = {"optimizer": "momentum", "batch_size": BATCH_SIZE, "seed": 3, **fields}
    return config_of(model, "Rows", max_steps=num_steps, **fields)


def split(**fields):
    return config(placement="model_parallel", **fields)


def single():
    """Settings for a graph that holds each op once: a call of several steps copies them."""
    return split(steps_per_call=1)


@pytest.mark.parametrize("layout", ["packed", "per_variable"])
def test_losses_and_values_are_those_of_one_process(layout):
    with InProcessCluster(2, 3) as cluster:
        outcome, *others = cluster.run(split(layout=layout))
    batches = small.global_batches(BATCH_SIZE, NUM_STEPS)
    losses, values = small.plain_loop(Staged(), batches, lambda: tf.train.MomentumOptimizer(0.1, 0.9), seed=3)
    np.testing.assert_allclose(outcome.losses, losses, rtol=0, atol=1e-5)
    for name, value in values.items():
        np.testing.assert_allclose(outcome.worker.final_values[name], value, rtol=0, atol=1e-5, err_msg=name)
    assert [other.losses for other in others] == [[], []]
    assert set(outcome.worker.summary.workers) == {0}


def test_groups_train_together_by_the_rule_and_each_reads_its_part():
    with InProcessCluster(1, 6) as cluster:
        outcomes = cluster.run(split(update="sync", optimizer="sgd"))
    batches = small.global_batches(BATCH_SIZE, NUM_STEPS, num_workers=2)
    _, values = small.plain_loop(Staged(), batches, lambda: tf.train.GradientDescentOptimizer(0.1), seed=3)
    for name, value in values.items():
        np.testing.assert_allclose(outcomes[0].worker.final_values[name], value, rtol=0, atol=1e-5, err_msg=name)
    assert [len(outcome.losses) for outcome in outcomes] == [NUM_STEPS, NUM_STEPS, 0, 0, 0, 0]
    assert set(outcomes[0].worker.summary.workers) == {0, 1}


def test_transforms_use_the_gradients_of_all_stages():
    """Clipping uses the norm over all gradients; each stage alone has at most half of it."""
    fields = {"gradient_transform": ("clip_norm:norm=0.3",), "optimizer": "sgd"}
    with InProcessCluster(2, 3) as cluster:
        in_stages, *_ = cluster.run(split(**fields))
    with InProcessCluster(2, 1) as cluster:
        (whole,) = cluster.run(config(**fields))
        (unclipped,) = cluster.run(config(optimizer="sgd"))
    np.testing.assert_allclose(in_stages.losses, whole.losses, rtol=0, atol=1e-5)
    assert abs(unclipped.losses[-1] - whole.losses[-1]) > 1e-3
    for name, value in whole.worker.final_values.items():
        np.testing.assert_allclose(in_stages.worker.final_values[name], value, rtol=0, atol=1e-5, err_msg=name)


def test_error_feedback_is_kept_for_each_stage():
    """A later step sends the part that a lossy transform leaves out of one step, for each stage."""
    with InProcessCluster(1, 3) as cluster:
        (outcome, *_) = cluster.run(
            split(num_steps=60, gradient_transform=("error_feedback", "top_k:ratio=0.25"), optimizer="sgd")
        )
    first, last = np.mean(outcome.losses[:5]), np.mean(outcome.losses[-5:])
    assert last < 0.97 * first
    initial = initial_values(Staged(), 3)
    for name, value in initial.items():
        assert not np.array_equal(outcome.worker.final_values[name], value), name


def test_a_straggler_delays_the_gradients_of_all_stages_on_their_workers():
    train = graph_lib.build(
        components_lib.load(split(straggler=("det:mean_ms=1",)), 3), small_cluster(num_workers=3), single(), "run"
    )
    held = {op.device for op in train.graph.get_operations() if op.type == "Identity" and "straggler/" in op.name}
    assert held == {f"/job:worker/task:{index}" for index in range(3)}
    with InProcessCluster(1, 3) as cluster:
        delayed, *_ = cluster.run(split(straggler=("det:mean_ms=1",)))
        plain, *_ = cluster.run(split())
    np.testing.assert_allclose(delayed.losses, plain.losses, rtol=0, atol=1e-6)
    assert delayed.progress.injected_delay >= 0.001
    assert plain.progress.injected_delay == 0.0


class TestGraph:
    @pytest.fixture(scope="class")
    def train(self):
        cluster = small_cluster(num_workers=6)
        return graph_lib.build(components_lib.load(split(), 6), cluster, single(), "run")

    def test_each_stage_pulls_its_own_parameters_and_sends_its_own_gradients(self, train):
        pulled = {piece.device: {extent.name for extent in piece.extents} for piece in train.store.dense}
        assert pulled == {
            "/job:worker/task:0": {"scale"},
            "/job:worker/task:2": {"shared"},
            "/job:worker/task:4": {"logits/kernel", "logits/bias"},
        }
        for piece in train.store.dense:
            assert piece.pulled.device == piece.device
        to_ps = {(source, edge.op.name) for source, edge in crossing(train.graph, to="ps") if "gradients" in edge.name}
        assert {source for source, _ in to_ps} == set(pulled)

    def test_forward_and_backward_of_a_stage_are_in_one_place(self, train):
        products = [op for op in train.graph.get_operations() if op.type == "MatMul"]
        where = [op.device.rpartition(":")[2] for op in products]
        assert sorted(where) == ["2"] * 3 + ["4"] * 6

    def test_an_unsplit_run_ignores_the_stages(self):
        whole = config(steps_per_call=1)
        train = graph_lib.build(components_lib.load(whole, 6), small_cluster(num_workers=6), whole, "run")
        devices = {op.device for op in train.graph.get_operations() if "worker" in op.device}
        assert devices == {"/job:worker/task:0"}
        (piece,) = train.store.dense
        assert piece.variable.op.name == "packed/float32/ps_0/piece_0"


def crossing(graph, to):
    """(device, tensor) for each input that ops on job `to` receive from another job."""
    for op in graph.get_operations():
        for tensor in op.inputs:
            if f"job:{to}" in op.device and tensor.device and f"job:{to}" not in tensor.device:
                yield tensor.device, tensor


def small_cluster(num_workers):
    from ps_trainer.cluster.config import ClusterConfig

    hosts = tuple(f"localhost:{port}" for port in range(2000, 2000 + num_workers))
    return ClusterConfig(jobs={"ps": ("localhost:1999",), "worker": hosts}, job_name="worker", task_index=0)


@pytest.mark.parametrize(
    ("fields", "num_workers", "message"),
    [
        ({}, 4, "num_workers=4 is not a multiple of the model's 3 stages, .*; start 3 or 6 workers"),
        ({}, 2, "num_workers=2 is not a multiple of the model's 3 stages, .*; start 3 workers"),
        ({"model": "Dense"}, 2, "model 'tests.testing.components:Dense' has only one stage"),
        ({"model": f"{__name__}:Gap"}, 3, r"has the stages \[0, 2\], and 1 is missing"),
        ({"update": "all_reduce"}, 3, "with --update=all_reduce each worker keeps a copy of the whole model"),
        ({"update": "easgd"}, 3, "with --update=easgd each worker keeps a copy of the whole model"),
    ],
)
def test_models_that_cannot_be_split_are_rejected(fields, num_workers, message):
    with pytest.raises(OptionError, match=f"--placement=model_parallel: .*{message}"):
        components_lib.load(split(**fields), num_workers)


def test_rules_count_groups():
    with pytest.raises(OptionError, match="backup_workers=2 leaves none of num_workers=2"):
        components_lib.load(split(update="backup", update_option=("backup_workers=2",)), 6)

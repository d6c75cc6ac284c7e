"""Messages of a step of the rules that count every gradient on the ps tasks, and the sources of its results."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.testing.cluster import config_of
from tests.training.test_graph import crossings
from tests.updates.assembled import ancestors_within_step, assemble

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from models import layers

RULES = {
    "async": ("async", ()),
    "hogwild": ("hogwild", ()),
    "staleness_aware": ("staleness_aware", ()),
    "drop_stale": ("drop_stale", ()),
    "dc_asgd": ("dc_asgd", ()),
    "dc_asgd adaptive": ("dc_asgd", ("adaptive=true",)),
    "accumulate": ("accumulate", ("steps=3",)),
}


@pytest.mark.parametrize("optimizer", ["sgd", "lazy_adam"])
@pytest.mark.parametrize("num_ps", [1, 2])
@pytest.mark.parametrize("case", RULES)
def test_a_push_sends_the_gradient_and_gets_counts_and_parameters_back(case, num_ps, optimizer):
    update, options = RULES[case]
    config = config_of(
        "Dense", "Rows", layout="packed", update=update, update_option=options, optimizer=optimizer,
        schedule="exponential",
    )  # fmt: skip
    train = assemble(config, num_ps=num_ps)
    to_ps, to_worker = crossings(train, train.fetches[0])
    pieces = [(ps, "data", (piece.variable.shape.num_elements(),)) for ps, piece in enumerate(train.store.pieces)]
    assert len(pieces) == num_ps
    places = [(0, "data", (None, 1))] if case == "accumulate" else []  # batches that the worker held back
    assert Counter(to_ps) == Counter([*pieces, *places])
    # The counts come with the parameters, each in the place of two floats.
    sizes = [piece.variable.shape.num_elements() + (4 if ps == 0 else 2) for ps, piece in enumerate(train.store.pieces)]
    assert sorted(to_worker) == [(ps, "data", (size,)) for ps, size in enumerate(sizes)]


def test_a_step_that_accumulates_sends_nothing():
    train = assemble(config_of("Dense", "Rows", update="accumulate", update_option=("steps=3",)), num_ps=2)
    assert crossings(train, train.fetches[1]) == ([], [])


class Averaged:
    """A linear model that keeps a moving average on a ps task."""

    def build(self, batch, training):
        mean_F = tf.get_variable("mean", [6], initializer=tf.zeros_initializer(), trainable=False)
        if training:
            layers.moving_average_update(mean_F, tf.reduce_mean(batch["x"], axis=0), 0.9)
        return layers.classifier_output(layers.dense(batch["x"], 4, "logits"), batch["label"])


@pytest.mark.parametrize(
    ("update", "options", "local"),
    [
        ("accumulate", ("steps=3",), [False, True]),
        ("local_sgd", ("period=4",), [False, True]),
        pytest.param("model_averaging", ("period=4",), [False, True], marks=pytest.mark.full),  # as `local_sgd`
        ("easgd", ("period=4",), [False, True]),
        ("downpour", ("n_push=2", "n_fetch=3"), [False, False, False, True]),
    ],
)
def test_a_local_step_skips_the_models_own_updates_and_sends_nothing(update, options, local):
    config = config_of(f"{__name__}:Averaged", "Rows", update=update, update_option=options)
    train = assemble(config, num_ps=2)
    (update_op,) = train.graph.get_collection(tf.GraphKeys.UPDATE_OPS)
    assert sorted(phase.is_local for phase in train.step.phases) == local
    for phase, fetches in zip(train.step.phases, train.fetches, strict=True):
        assert (update_op in fetches[-1]) == (not phase.is_local)
        assert (crossings(train, fetches) == ([], [])) == phase.is_local


class OnlyLast:
    """A model with a variable on each of two ps tasks, whose loss depends on the second variable only."""

    def build(self, batch, training):
        tf.get_variable("first", [6, 4])
        kernel = tf.get_variable("last", [6, 4])
        return layers.classifier_output(tf.matmul(batch["x"], kernel), batch["label"])


@pytest.mark.parametrize("update", ["async", "hogwild", "staleness_aware", "drop_stale", "dc_asgd", "ssp", "downpour"])
def test_a_ps_task_without_a_gradient_counts_when_the_gradients_are_computed(update):
    config = config_of(f"{__name__}:OnlyLast", "Rows", layout="per_variable", update=update)
    train = assemble(config, num_ps=2)
    assert {piece.extents[0].name for piece in train.store.pieces if piece.ps == 0} == {"first"}
    (loss,) = (op for op in train.graph.get_operations() if op.type == "SparseSoftmaxCrossEntropyWithLogits")
    for clock in train.store.clocks:
        counts = [op for op in clock.handle.consumers() if op.type == "ResourceCountUpTo"]
        assert counts or update == "drop_stale"  # drop_stale counts in a branch
        assert all(loss in ancestors_within_step([count]) for count in counts)
    assert loss in ancestors_within_step([train.step.phases[0].pushed.op])

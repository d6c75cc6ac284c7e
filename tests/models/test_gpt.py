"""The language model: its output, its first loss, its view of earlier symbols only, and that it learns a text."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from models.gpt import Gpt
from tests.testing.gradients import assert_gradients_are_slopes

SMALL = {"vocab_size": 11, "dim": 8, "num_heads": 2, "hidden": 12, "num_layers": 1, "num_buckets": 13}
IDS = np.random.RandomState(0).randint(0, 11, (4, 7))


def create(**options):
    return Gpt(Gpt.Options(**{**SMALL, "ngram_dropout": 0.0, **options}))


def build(model, training=False, ids=IDS):
    return model.build({"ids": tf.constant(ids)}, training=training)


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        tf.set_random_seed(0)
        yield


def run(fetches):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches)


def test_output_has_a_symbol_for_each_position_and_metrics_for_each_example():
    output = run(build(create()))
    assert output.predictions.shape == (4, 6)
    assert set(output.metrics) == {"bits_per_symbol", "accuracy"}
    assert output.metrics["bits_per_symbol"].mean() * np.log(2) == pytest.approx(output.loss, rel=1e-5)
    np.testing.assert_allclose(output.metrics["accuracy"], np.mean(output.predictions == IDS[:, 1:], axis=1), rtol=1e-6)


def test_at_the_start_all_symbols_are_about_equally_likely():
    loss = build(Gpt(Gpt.Options()), True, np.random.RandomState(0).randint(0, 104, (8, 33))).loss
    assert sum(variable.shape.num_elements() for variable in tf.trainable_variables()) == 8_497_256
    assert run(loss) == pytest.approx(np.log(104), rel=0.02)


def test_gradients_are_slopes_of_the_loss():
    assert_gradients_are_slopes(build(create(), True).loss)


@pytest.mark.parametrize("max_ngram", [1, 4])
def test_a_prediction_does_not_depend_on_later_symbols(max_ngram):
    changed = IDS.copy()
    changed[:, 4] = (changed[:, 4] + 1) % 11
    losses = []
    for ids in (IDS, changed):
        with tf.variable_scope("", reuse=bool(losses)):
            losses.append(create(max_ngram=max_ngram)._logits(tf.constant(ids), training=False))
    before, after = run(losses)
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert np.all(np.any(before[:, 4:] != after[:, 4:], axis=2))


def test_symbols_in_one_group_are_distinguished_by_their_order():
    model = create(num_buckets=100_003, max_ngram=2, num_layers=1)
    ids = np.array([[1, 2, 3], [2, 1, 3]])
    model._embed(tf.constant(ids), training=False)
    (lookup,) = [op for op in tf.get_default_graph().get_operations() if op.name.endswith("FloorMod")]
    buckets = run(lookup.outputs[0])
    assert buckets[0, 1] != buckets[1, 1]
    assert buckets[0, 0] != buckets[1, 0]


def test_without_groups_of_symbols_there_is_one_table():
    build(create(max_ngram=1))
    assert [name for name in (v.op.name for v in tf.global_variables()) if "/" not in name] == ["embedding"]


def test_a_text_is_learned_by_heart():
    output = build(create(dim=16, hidden=32), True)
    step = tf.train.AdamOptimizer(0.02).minimize(output.loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(60):
            session.run(step)
        assert session.run(output.metrics["bits_per_symbol"]).mean() < 0.3  # the first symbol leaves the text open


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 9}, "dim=9 must be even and a multiple of num_heads=2"),
    ],
)
def test_wrong_option_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        create(**options)

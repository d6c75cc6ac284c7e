"""The masked language model and its classifier: the hidden symbols, their first loss, and that they learn."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from models.bert import Bert
from tests.testing.gradients import assert_gradients_are_slopes

SMALL = {"vocab_size": 11, "dim": 8, "num_heads": 2, "hidden": 12, "num_layers": 1}
IDS = np.random.RandomState(0).randint(0, 11, (6, 20))
LABEL = np.array([0, 1, 2, 0, 1, 2])


def create(**options):
    return Bert(Bert.Options(**{**SMALL, **options}))


def build(model, training=False, ids=IDS):
    return model.build({"ids": tf.constant(ids), "label": tf.constant(LABEL)}, training=training)


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        tf.set_random_seed(0)
        yield


def run(fetches):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches)


def test_output_of_the_language_model_has_the_hidden_positions_of_each_text():
    output = run(build(create()))
    assert output.predictions.shape == (6, 3)  # 15 % of 20
    assert set(output.metrics) == {"masked_accuracy", "unigram_accuracy"}
    assert all(values.shape == (6,) for values in output.metrics.values())


def test_output_of_the_classifier_has_the_share_of_each_class():
    output = run(build(create(num_classes=3)))
    assert output.predictions.shape == (6, 3)
    assert set(output.metrics) == {"accuracy"}


@pytest.mark.parametrize(("num_classes", "num_parameters"), [(0, 117_864), (8, 111_496)])
def test_at_the_start_all_outputs_are_about_equally_likely(num_classes, num_parameters):
    random = np.random.RandomState(0)
    batch = {"ids": tf.constant(random.randint(0, 104, (16, 64))), "label": tf.constant(np.arange(16) % 8)}
    loss = Bert(Bert.Options(num_classes=num_classes)).build(batch, training=True).loss
    assert sum(variable.shape.num_elements() for variable in tf.trainable_variables()) == num_parameters
    assert run(loss) == pytest.approx(np.log(num_classes or 104), rel=0.02)


@pytest.mark.parametrize("num_classes", [0, 3])
def test_gradients_are_slopes_of_the_loss(num_classes):
    assert_gradients_are_slopes(build(create(num_classes=num_classes)).loss)


def test_hidden_symbols_are_drawn_as_in_the_paper():
    ids = np.random.RandomState(0).randint(0, 11, (500, 100))
    places, seen = run(create()._hide(tf.constant(ids), training=True))
    assert places.shape == (500, 15)
    assert all(len(set(row)) == 15 for row in places)
    is_told = np.zeros(ids.shape, bool)
    np.put_along_axis(is_told, places, True, axis=1)
    np.testing.assert_array_equal(seen[~is_told], ids[~is_told])
    # For 7,500 draws the standard deviation of a share is below sqrt(0.25 / 7500) = 0.006.
    assert np.mean(seen[is_told] == 11) == pytest.approx(0.8, abs=0.03)
    assert np.mean(seen[is_told] == ids[is_told]) == pytest.approx(0.1 + 0.1 / 11, abs=0.03)
    assert np.bincount(places.ravel(), minlength=100) == pytest.approx(75, abs=6 * 75**0.5)
    assert set(np.unique(seen)) == set(range(12))


def test_evaluation_hides_the_same_symbols_each_time_and_training_does_not():
    hidden = [create()._hide(tf.constant(IDS), training=training)[0] for training in (True, False)]
    with tf.Session() as session:
        first, second = (session.run(hidden) for _ in range(2))
    assert np.any(first[0] != second[0])
    np.testing.assert_array_equal(first[1], second[1])


def test_a_hidden_symbol_is_not_visible_to_the_model():
    """The loss depends on the symbol at a hidden position, the logits do not."""
    model = create(mask_share=1.0)
    seen = [model._hide(tf.constant(ids), training=False)[1] for ids in (IDS, (IDS + 1) % 11)]
    one, other = run(seen)
    is_hidden = one == 11
    assert is_hidden.mean() > 0.7
    np.testing.assert_array_equal(one[is_hidden], other[is_hidden])


def test_the_unigram_accuracy_is_the_share_of_the_first_symbol():
    ids = np.zeros((6, 20), np.int64)
    ids[3:] = 5
    output = run(build(create(), ids=ids))
    np.testing.assert_array_equal(output.metrics["unigram_accuracy"], [1, 1, 1, 0, 0, 0])


def test_classifier_and_language_model_share_the_encoder():
    build(create())
    shared = {variable.op.name: variable.shape for variable in tf.trainable_variables()}
    with tf.Graph().as_default():
        build(create(num_classes=3))
        tuned = {variable.op.name: variable.shape for variable in tf.trainable_variables()}
    assert {name for name in tuned if name not in shared} == {
        f"classifier/{layer}/{part}" for layer in ("pooled", "logits") for part in ("kernel", "bias")
    }
    assert all(shared[name] == shape for name, shape in tuned.items() if name in shared)


@pytest.mark.parametrize("num_classes", [0, 3])
def test_a_rule_is_learned(num_classes):
    """Each text repeats one symbol, which determines the hidden symbols and the class."""
    ids = np.repeat(np.array([1, 2, 3, 1, 2, 3])[:, np.newaxis], 20, axis=1)
    model = create(num_classes=num_classes)
    output = build(model, True, ids)
    with tf.variable_scope("", reuse=True):
        evaluated = build(model, False, ids)
    step = tf.train.AdamOptimizer(0.02).minimize(output.loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(60):
            session.run(step)
        metrics = session.run(evaluated.metrics)
    assert metrics["accuracy" if num_classes else "masked_accuracy"].mean() > 0.95


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 1}, "num_classes=1: give at least 2 classes, or 0 to predict masked symbols"),
        ({"num_heads": 3}, "dim=8 must be even and a multiple of num_heads=3"),
    ],
)
def test_wrong_option_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        create(**options)

"""An evaluation within its limits: a sample over all examples, progress, and an end when it is asked for."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from models.layers import ModelOutput
from ps_trainer.api.data import ArrayDataset, LargeArrayDataset
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline.array_source import ArraySource
from ps_trainer.errors import Interrupted
from ps_trainer.training import components as components_lib
from ps_trainer.training.components import ComponentObjects
from ps_trainer.training.evaluation import evaluate
from ps_trainer.training.evaluation_pace import EvaluationLimits

TOTAL = 40 * 256
NUMBERS = np.arange(TOTAL, dtype=np.float32)


class Mean:
    """The loss is the mean of the examples' numbers, so it tells which examples were used."""

    def build(self, batch, training):
        bias = tf.get_variable("bias", [], initializer=tf.zeros_initializer())
        return ModelOutput(tf.reduce_mean(batch["number"]) + bias, batch["number"], {"number": batch["number"]})


class FakeTime:
    """Each read of the time takes some time."""

    def __init__(self, step_secs=0.1):
        self.secs, self._step_secs = 0.0, step_secs

    def __call__(self):
        self.secs += self._step_secs
        return self.secs


@pytest.fixture
def components():
    arrays = {"number": NUMBERS}
    source = ArraySource(arrays, arrays, num_classes=None)
    return components_lib.load(TrainConfig(), 1, ComponentObjects(model=Mean(), dataset=source))


def measured(components, **limits):
    metrics = evaluate(components, {"bias": np.float32(0)}, EvaluationLimits(**limits))
    assert metrics["number"] == pytest.approx(metrics["loss"], rel=1e-5)
    return metrics["number"]


@pytest.mark.parametrize("count", [1, 100, 256, 3000, TOTAL - 1, 2 * TOTAL])
def test_a_number_of_examples_is_spread_over_all(components, count):
    wanted = NUMBERS[:: max(1, TOTAL // count)][:count]
    assert measured(components, num_examples=count) == pytest.approx(wanted.mean(), rel=1e-5)


def test_without_a_limit_of_time_all_examples_count(components, caplog):
    assert measured(components, time_fn=FakeTime()) == pytest.approx(NUMBERS.mean(), rel=1e-5)
    assert measured(components, max_secs=100, time_fn=FakeTime()) == pytest.approx(NUMBERS.mean(), rel=1e-5)
    assert "--eval_examples" not in caplog.text


def test_an_evaluation_that_is_too_slow_uses_a_sample_of_all(components, caplog):
    fake_time = FakeTime()
    # A batch takes 0.2 s at least, so all would take more than 8 s.
    found = measured(components, max_secs=4.0, time_fn=fake_time)
    assert fake_time.secs < 5.0
    assert found == pytest.approx(NUMBERS.mean(), rel=0.2)  # the first half alone has the mean 0.5 of that
    assert f"of {TOTAL} test examples; --eval_examples sets their number" in caplog.text


@pytest.mark.parametrize(("step_secs", "num_batches"), [(7.0, 1), (2.2, 2)])
def test_an_evaluation_without_time_left_ends_with_what_it_has(components, step_secs, num_batches):
    """It neither goes on after a first batch that took all of the time, nor begins again."""
    batches = []
    found = measured(components, max_secs=6.0, time_fn=FakeTime(step_secs), check=lambda: batches.append(1))
    assert len(batches) == num_batches
    assert found == pytest.approx(NUMBERS[: 256 * num_batches].mean(), rel=1e-5)


def test_progress_is_reported_and_an_evaluation_ends_when_it_is_asked_to(components):
    told, batches = [], []

    def check():
        batches.append(1)
        if len(batches) == 39:
            raise Interrupted(2)

    with pytest.raises(Interrupted):
        measured(components, check=check, report=told.append, time_fn=FakeTime(1.0))
    assert len(batches) == 39
    assert told and told[0].startswith("evaluating: ") and told[0].endswith(f"of {TOTAL} test examples")


def test_a_dataset_that_does_not_know_its_number_is_cut(components, caplog):
    class Stream:
        def test(self, *, batch_size):
            return tf.data.Dataset.from_tensor_slices({"number": NUMBERS}).batch(batch_size)

    streamed = components._replace(dataset=Stream())
    assert measured(streamed, num_examples=300) == pytest.approx(NUMBERS[:300].mean(), rel=1e-5)
    assert measured(streamed, max_secs=2.0, time_fn=FakeTime()) < 0.7 * NUMBERS.mean()
    assert "--eval_examples" in caplog.text


def test_training_examples_do_not_stand_in_for_test_examples(components):
    """Neither of a dataset from arrays in memory, nor of one from larger arrays."""
    for dataset in (ArrayDataset({"number": NUMBERS}), LargeArrayDataset({"number": NUMBERS})):
        assert dataset.num_test_examples == 0  # so that no worker waits to help
        untested = components._replace(dataset=dataset)
        assert evaluate(untested, {"bias": np.float32(0)}, EvaluationLimits(num_examples=300)) == {}

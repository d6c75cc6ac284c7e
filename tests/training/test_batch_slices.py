"""A test batch that takes long is evaluated in slices, and its metrics are those of whole batches."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from models import layers
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline.array_source import ArraySource
from ps_trainer.training import batch_slices
from ps_trainer.training import components as components_lib
from ps_trainer.training.batch_slices import MAX_SECS, slice_size
from ps_trainer.training.components import ComponentObjects
from ps_trainer.training.evaluation import evaluate
from ps_trainer.training.evaluation_pace import EvaluationLimits
from tests.training.shared_components import StreamingOutput

TOTAL = 2 * 256 + 40
NUMBERS = np.arange(TOTAL, dtype=np.float32)


@pytest.mark.parametrize(
    ("secs_per_example", "secs_per_call"), [(0.0, 0.1), (0.001, 0.0), (0.01, 0.2), (0.03, 0.1), (1.0, 0.0), (9.0, 0.0)]
)
def test_a_slice_fits_into_the_limit_and_is_not_far_below(secs_per_example, secs_per_call):
    measured = []

    def secs_of(size):
        measured.append(secs_per_call + secs_per_example * size)
        return measured[-1] + (20 if len(measured) == 1 else 0)

    size = slice_size(256, secs_of)
    secs = secs_per_call + secs_per_example * size
    assert secs <= MAX_SECS or size == 1
    assert size == 256 or secs >= MAX_SECS / 4
    assert sum(measured) <= 2 * MAX_SECS + 2 * measured[0]


class SlowMean:
    """The time of a batch is proportional to its size, and its loss and metrics to its numbers."""

    def __init__(self, secs_per_example):
        self._secs, self.sizes = secs_per_example, []

    def build(self, batch, training):
        bias = tf.get_variable("bias", [], initializer=tf.zeros_initializer())
        number_B = tf.numpy_function(self._wait, [batch["number"]], tf.float32)
        number_B.set_shape([None])
        mean = tf.reduce_mean(number_B) + bias
        pooled = {"median": layers.Pooled((number_B,), np.median)}
        return layers.ModelOutput(mean, number_B, {"number": number_B}, pooled=pooled)

    def _wait(self, number):
        self.sizes.append(len(number))
        time.sleep(self._secs * len(number))
        return number


class Streamed(SlowMean):
    """The same with a metric of `tf.metrics`."""

    def build(self, batch, training):
        output = super().build(batch, training)
        return StreamingOutput(output.loss, {"mean": tf.metrics.mean(output.predictions)}, output.metrics)


def evaluated(model, **limits):
    arrays = {"number": NUMBERS}
    source = ArraySource(arrays, arrays, num_classes=None)
    components = components_lib.load(TrainConfig(), 1, ComponentObjects(model=model, dataset=source))
    return evaluate(components, {"bias": np.float32(0)}, EvaluationLimits(**limits))


@pytest.mark.parametrize(
    ("model", "last"), [(SlowMean, {"median": np.median(NUMBERS)}), (Streamed, {"mean": NUMBERS.mean()})]
)
def test_the_slices_of_slow_batches_give_the_metrics_of_all_examples(model, last, monkeypatch):
    monkeypatch.setattr(batch_slices, "MAX_SECS", 0.08)
    slow, checks = model(0.002), []
    metrics = evaluated(slow, check=lambda: checks.append(1))
    assert metrics == pytest.approx({"loss": NUMBERS.mean(), "number": NUMBERS.mean(), **last}, rel=1e-5)
    assert max(slow.sizes) <= 16  # 16 examples take more than a quarter of the limit
    assert len(checks) >= TOTAL / 16


def test_quick_batches_stay_whole():
    quick, checks = SlowMean(0.0), []
    evaluated(quick, check=lambda: checks.append(1))
    assert [size for size in quick.sizes if size > 64] == [256, 256]
    assert len(checks) == 3


def test_a_slow_evaluation_ends_in_time_with_examples_of_all_places(monkeypatch):
    """The clock stands still but for the examples: 0.5 s for each."""
    monkeypatch.setattr(batch_slices, "MAX_SECS", 0.02)
    slow = SlowMean(0.001)
    metrics = evaluated(slow, max_secs=60.0, time_fn=lambda: 0.5 * sum(slow.sizes))
    assert 0.5 * sum(slow.sizes) < 70
    assert metrics["number"] == pytest.approx(NUMBERS.mean(), rel=0.25)

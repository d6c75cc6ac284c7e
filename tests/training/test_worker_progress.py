"""Rates, losses and staleness of one worker's steps, by a time that the test moves."""

from __future__ import annotations

import json
import math
from collections import Counter

import numpy as np
import pytest

from ps_trainer.errors import NanLossError
from ps_trainer.metrics.traffic import Traffic
from ps_trainer.training.chance_level import ChanceLevel
from ps_trainer.training.worker_progress import WorkerProgress, mean_of

BATCH_SIZE = 16


class FakeTime:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def fake_time():
    return FakeTime()


def add(progress, fake_time, secs, global_step, staleness, loss=1.0):
    fake_time.now += secs
    progress.add(global_step, np.array(staleness), loss)


def test_steps_that_only_follow_other_workers_are_neither_a_stall_nor_a_step(fake_time):
    progress = WorkerProgress(BATCH_SIZE, fake_time)
    for step in (1, 2):
        add(progress, fake_time, 0.5, step, [0])
    for step in (3, 4, 5):
        fake_time.now += 10.0
        progress.count_foreign_exchange(step)
    assert (progress.global_step, progress.local_steps, progress.last_step_at) == (5, 2, fake_time.now)
    assert progress.summary().steps_per_sec == 2 / (2 * 0.5)


def test_a_report_covers_the_steps_since_the_last_report(fake_time):
    progress = WorkerProgress(BATCH_SIZE, fake_time)
    for step, loss in ((1, 4.0), (3, 2.0)):
        add(progress, fake_time, 0.5, step, [0, 1], loss)
    fake_time.now += 1.0
    assert progress.secs_since_report() == 0.5 + 0.5 + 1.0
    assert progress.report().as_json() == {
        "local_step": 2,
        "steps_per_sec": 2 / 2.0,
        "examples_per_sec": 2 * BATCH_SIZE / 2.0,
        "loss": (4.0 + 2.0) / 2,
        "staleness_mean": (0 + 1 + 0 + 1) / 4,
    }
    assert progress.secs_since_report() == 0
    add(progress, fake_time, 0.25, 9, [3], 7.0)
    second = progress.report()
    assert (second.local_step, second.steps_per_sec, second.loss) == (3, 1 / 0.25, 7.0)
    assert second.staleness_mean == 3


def test_a_loss_that_has_grown_is_warned_of_once(fake_time):
    progress = WorkerProgress(BATCH_SIZE, fake_time)
    warnings = []
    for step, loss in enumerate((0.7, 70.0, 71.0, 1e6), 1):
        add(progress, fake_time, 0.5, step, [0], loss)
        warnings.append(progress.warning_of(progress.report()))
    assert warnings == ["", "", warnings[2], ""]
    assert "the loss has grown from 0.7 to 71; lower --learning_rate, or scale the inputs" in warnings[2]


def test_a_worker_that_joins_trained_parameters_warns_of_a_loss_far_above_a_guess_only(fake_time):
    progress = WorkerProgress(BATCH_SIZE, fake_time)
    progress.chance = ChanceLevel(loss=2.0, local_steps=1000)
    warnings = []
    for step, loss in enumerate((0.001, 0.2, 199.0, 201.0), 1):
        add(progress, fake_time, 0.5, step, [0], loss)
        warnings.append(progress.warning_of(progress.report()))
    assert warnings[:3] == ["", "", ""]
    assert "the loss has grown from 0.001 to 201; lower --learning_rate" in warnings[3]


@pytest.mark.parametrize("loss", [math.inf, 0.1])
def test_a_loss_that_has_grown_from_above_a_guess_is_warned_of(fake_time, loss):
    progress = WorkerProgress(BATCH_SIZE, fake_time)
    progress.chance = ChanceLevel(loss=loss, local_steps=1000)
    for step, value in ((1, 0.5), (2, 51.0)):
        add(progress, fake_time, 0.5, step, [0], value)
        warning = progress.warning_of(progress.report())
    assert "the loss has grown from 0.5 to 51" in warning


def test_a_first_loss_of_zero_gives_no_warning(fake_time):
    progress = WorkerProgress(BATCH_SIZE, fake_time)
    for step, loss in ((1, 0.0), (2, 5.0)):
        add(progress, fake_time, 0.5, step, [0], loss)
    assert progress.warning_of(progress.report()) == ""


@pytest.mark.parametrize(
    ("loss", "num_steps", "is_warned"), [(math.log(10), 150, True), (2.0, 150, False), (math.log(10), 140, False)]
)
def test_a_loss_that_stays_at_chance_for_an_epoch_is_warned_of_once(fake_time, loss, num_steps, is_warned):
    progress = WorkerProgress(BATCH_SIZE, fake_time)
    progress.chance = ChanceLevel(loss=math.log(10), local_steps=150)
    for step in range(num_steps):
        add(progress, fake_time, 0.1, step, [0], loss)
    warning = progress.warning_of(progress.report())
    assert ("after an epoch the loss is 2.303, and a guess without the inputs has 2.303" in warning) == is_warned
    add(progress, fake_time, 0.1, num_steps, [0], loss)
    assert progress.warning_of(progress.report()) == ""


@pytest.mark.parametrize(
    ("rate", "num_steps", "epoch_steps", "is_warned"),
    [(1.0, 150, 150, True), (1.2, 150, 150, True), (0.9, 150, 150, False), (1.0, 140, 150, False), (1.0, 40, 8, True)],
)
def test_a_test_metric_at_chance_after_an_epoch_is_warned_of_once(fake_time, rate, num_steps, epoch_steps, is_warned):
    progress = WorkerProgress(BATCH_SIZE, fake_time)
    progress.chance = ChanceLevel(loss=math.inf, local_steps=epoch_steps, metrics={"label_error_rate": 1.0})
    for step in range(num_steps):
        add(progress, fake_time, 0.1, step, [0], 2.3)
    assert progress.warning_of(progress.report()) == ""  # the loss of a guess is not known
    assert progress.warning_of_metrics({"loss": 2.3}) == ""
    warning = progress.warning_of_metrics({"loss": 2.3, "label_error_rate": rate})
    told = f"after an epoch label_error_rate is {rate:.4g}, and a guess without the inputs has 1: nothing was learned; "
    assert warning.startswith(f"{told}train longer, try --learning_rate") == is_warned
    assert progress.warning_of_metrics({"loss": 2.3, "label_error_rate": rate}) == ""


def test_a_loss_at_chance_is_not_warned_of_again_by_a_test_metric(fake_time):
    progress = WorkerProgress(BATCH_SIZE, fake_time)
    progress.chance = ChanceLevel(loss=2.0, local_steps=100, metrics={"error": 1.0})
    for step in range(100):
        add(progress, fake_time, 0.1, step, [0], 2.0)
    assert "after an epoch the loss is 2" in progress.warning_of(progress.report())
    assert progress.warning_of_metrics({"error": 1.0}) == ""


def test_an_early_loss_at_chance_does_not_count(fake_time):
    progress = WorkerProgress(BATCH_SIZE, fake_time)
    progress.chance = ChanceLevel(loss=math.log(10), local_steps=150)
    for step in range(300):
        add(progress, fake_time, 0.1, step, [0], math.log(10) if step < 200 else 0.5)
    assert progress.warning_of(progress.report()) == ""


def test_without_a_step_the_report_is_empty(fake_time):
    progress = WorkerProgress(BATCH_SIZE, fake_time)
    fake_time.now += 5
    assert progress.report() is None
    assert progress.secs_since_report() == 5


def test_the_summary_covers_the_whole_run_whatever_was_reported(fake_time):
    progress = WorkerProgress(BATCH_SIZE, fake_time)
    add(progress, fake_time, 1.0, 1, [0])
    progress.report()
    add(progress, fake_time, 1.0, 4, [2, 2])
    add(progress, fake_time, 2.0, 6, [1])
    fake_time.now += 60.0  # time after the last step does not count
    summary = progress.summary()
    assert summary.as_json() == {
        "local_steps": 3,
        "examples": 3 * BATCH_SIZE,
        "pushes": 3,
        "gradients_dropped": 0,
        "secs": 4.0,
        "steps_per_sec": 3 / 4.0,
        "examples_per_sec": 3 * BATCH_SIZE / 4.0,
        "staleness": {"0": 1, "1": 1, "2": 2},
        "staleness_mean": (0 + 1 + 2 + 2) / 4,
    }
    assert json.loads(json.dumps(summary.as_json())) == summary.as_json()
    assert progress.summary() == summary  # a call of `summary` changes nothing
    assert progress.global_step == 6


def test_a_run_without_steps_has_a_summary_too(fake_time):
    summary = WorkerProgress(BATCH_SIZE, fake_time).summary()
    assert summary.local_steps == summary.steps_per_sec == 0
    assert summary.staleness == {} and summary.staleness_mean is None


def test_unused_gradients_have_no_staleness(fake_time):
    progress = WorkerProgress(BATCH_SIZE, fake_time)
    add(progress, fake_time, 1.0, 1, [-1])
    assert progress.report().staleness_mean is None
    add(progress, fake_time, 1.0, 1, [-2, 3])
    assert progress.report().staleness_mean == 3
    assert progress.summary().staleness == {3: 1}
    assert progress.summary().local_steps == 2


def test_a_step_with_a_value_below_zero_is_a_dropped_gradient(fake_time):
    progress = WorkerProgress(BATCH_SIZE, fake_time)
    add(progress, fake_time, 1.0, 1, [0, 0])
    assert progress.report().gradients_dropped is None
    add(progress, fake_time, 1.0, 1, [-1, -1])  # one gradient, for any number of ps tasks
    add(progress, fake_time, 1.0, 2, [1, 0])
    add(progress, fake_time, 1.0, 2, [-1, 4])
    assert progress.report().gradients_dropped == 2
    add(progress, fake_time, 1.0, 2, [-1, -1])
    assert progress.report().gradients_dropped == 1
    assert (progress.summary().gradients_dropped, progress.summary().pushes) == (3, 5)


def test_a_step_without_staleness_pushed_nothing(fake_time):
    progress = WorkerProgress(BATCH_SIZE, fake_time)
    for staleness in ([], [], [1]):
        add(progress, fake_time, 1.0, 1, np.array(staleness, np.int64))
    assert progress.report().staleness_mean == 1
    assert (progress.summary().local_steps, progress.summary().pushes) == (3, 1)


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), -float("inf"), np.float32("nan")])
def test_a_loss_that_is_not_finite_ends_the_run_after_it_was_counted(fake_time, loss):
    progress = WorkerProgress(BATCH_SIZE, fake_time)
    with pytest.raises(NanLossError, match=rf"the loss is {loss} at global step 7; lower --learning_rate"):
        add(progress, fake_time, 1.0, 7, [0], loss)
    assert (progress.local_steps, progress.global_step) == (1, 7)


def test_the_mean_of_a_histogram():
    assert mean_of(Counter({0: 3, 4: 1})) == 4 / 4


def test_injected_delays_are_reported_as_their_mean(fake_time):
    progress = WorkerProgress(BATCH_SIZE, fake_time)
    add(progress, fake_time, 1.0, 1, [0])
    assert progress.report().injected_delay_mean is progress.summary().injected_delay_mean is None
    progress = WorkerProgress(BATCH_SIZE, fake_time)
    last = [0.0]
    progress.count_delays(lambda: last[0])
    assert progress.summary().injected_delay_mean == 0
    for step, last[0] in ((1, 0.5), (2, 0.25)):
        add(progress, fake_time, 1.0, step, [0])
    assert progress.report().injected_delay_mean == (0.5 + 0.25) / 2
    last[0] = 3.0
    add(progress, fake_time, 4.0, 3, [0])
    assert progress.report().injected_delay_mean == 3.0  # the mean covers the steps since the last report
    assert progress.summary().injected_delay_mean == (0.5 + 0.25 + 3.0) / 3


def test_bytes_that_cross_the_wire_are_sampled_once_per_report(fake_time):
    samples = iter([Traffic(50, 7), Traffic(50 + 600, 7 + 60), Traffic(650 + 100, 67 + 10)])
    progress = WorkerProgress(BATCH_SIZE, fake_time)
    assert progress.summary().push_bytes_per_step is None
    sent = iter([10, 10 + 300, 310 + 50])
    progress.watch(lambda: next(samples), lambda: next(sent))
    for step in (1, 2, 3):
        add(progress, fake_time, 1.0, step, [0])
    first = progress.report()
    assert (first.push_bytes_per_step, first.pull_bytes_per_step) == (600 / 3, 60 / 3)
    assert first.push_bytes_computed == 300 / 3
    assert progress.report() is None  # no step, no sample
    add(progress, fake_time, 1.0, 4, [0])
    second = progress.report()
    assert (second.push_bytes_per_step, second.pull_bytes_per_step) == (100 / 1, 10 / 1)
    summary = progress.summary()
    assert (summary.push_bytes_per_step, summary.pull_bytes_per_step) == (700 / 4, 70 / 4)
    assert summary.push_bytes_computed == 350 / 4


def test_batches_of_different_sizes_count_the_examples_that_were_read(fake_time):
    progress = WorkerProgress(BATCH_SIZE, fake_time)
    progress.count_examples(lambda steps: sum([16, 16, 3][:steps]))
    for step in (1, 2):
        add(progress, fake_time, 0.5, step, [0])
    assert progress.report().examples_per_sec == (16 + 16) / 1.0
    add(progress, fake_time, 0.5, 3, [0])
    assert progress.report().examples_per_sec == 3 / 0.5
    assert progress.summary().examples == 16 + 16 + 3


def test_waiting_for_data_is_not_a_stall(fake_time):
    progress = WorkerProgress(BATCH_SIZE, fake_time)
    fake_time.now += 50.0
    progress.wait_for_data()
    assert progress.last_step_at == fake_time.now

"""The watch of the target metric: it evaluates checkpoints beside training, one at a time."""

from __future__ import annotations

import threading

import pytest

from ps_trainer.config import TrainConfig
from ps_trainer.errors import CheckpointError, OptionError
from ps_trainer.training import components, target_watch
from ps_trainer.training.target_watch import TargetOutcome, TargetWatch
from tests.testing.processes import END_SECS, wait_until


class FakeWriter:
    """A writer that records its calls."""

    def __init__(self):
        self.told = []

    def eval(self, step, metrics):
        self.told.append((step, metrics))


class Evaluations:
    """A stand-in for `evaluate`: accuracy is a thousandth of the step; the call waits while the test holds it."""

    def __init__(self):
        self.may_end = threading.Event()
        self.may_end.set()
        self.error = None

    def __call__(self, _components, values, _limits):
        self.may_end.wait(END_SECS)
        if self.error is not None:
            raise self.error
        return {"loss": 1.0, "accuracy": values["global_step"] / 1000}


@pytest.fixture
def evaluations(monkeypatch):
    evaluations = Evaluations()
    monkeypatch.setattr(target_watch, "evaluate", evaluations)
    return evaluations


@pytest.fixture
def watch():
    watch = TargetWatch(
        TrainConfig(target_metric="accuracy>=0.5", logdir="unused"), components=None, writer=FakeWriter()
    )
    yield watch
    watch.close()


def test_is_reached_by_the_first_checkpoint_that_is_good_enough(watch, evaluations):
    watch.offer({"global_step": 400})
    wait_until(lambda: watch.poll() or watch._writer.told, END_SECS, "nothing is evaluated")
    assert watch.poll() == ""
    watch.offer({"global_step": 500})
    assert wait_until(watch.poll, END_SECS, "never") == "accuracy>=0.5 is reached: 0.5 at step 500"
    watch.offer({"global_step": 100})
    wait_until(lambda: watch.poll() and len(watch._writer.told) == 3, END_SECS, "nothing is evaluated")
    assert watch.poll() == "accuracy>=0.5 is reached: 0.5 at step 500"
    assert watch.outcome(600, {"accuracy": 0.1}) == TargetOutcome("accuracy>=0.5", global_step=500, value=0.5)


def test_a_checkpoint_that_comes_during_an_evaluation_is_skipped(watch, evaluations):
    evaluations.may_end.clear()
    watch.offer({"global_step": 300})
    watch.offer({"global_step": 900})
    assert watch.poll() == ""
    evaluations.may_end.set()
    wait_until(lambda: watch.poll() or watch._writer.told, END_SECS, "nothing is evaluated")
    assert [step for step, _ in watch._writer.told] == [300]


def test_a_synchronous_look_has_its_answer_at_once(watch, evaluations):
    watch.evaluate_now({"global_step": 700})
    assert watch.poll() == "accuracy>=0.5 is reached: 0.7 at step 700"


def test_the_evaluation_at_the_end_counts_as_well(watch):
    assert watch.outcome(100, {"accuracy": 0.4}) == TargetOutcome("accuracy>=0.5")
    assert watch.outcome(200, {"accuracy": 0.6}).global_step == 200


def test_an_error_of_an_evaluation_is_raised(watch, evaluations):
    evaluations.error = CheckpointError("does not fit")
    watch.offer({"global_step": 1})
    wait_until(watch._evaluation.done, END_SECS, "nothing is evaluated")
    with pytest.raises(CheckpointError, match="does not fit"):
        watch.poll()


class TestCheck:
    def test_metrics_of_the_model_and_the_loss_are_known(self, tmp_path):
        for text in ("accuracy>=0.9", "loss<=0.1"):
            self.check(tmp_path, text)
        with pytest.raises(OptionError, match="has no test metric 'acuracy'; did you mean accuracy. it has loss, acc"):
            self.check(tmp_path, "acuracy>=0.9")

    def test_without_a_logdir_there_are_no_checkpoints(self):
        with pytest.raises(OptionError, match="give a --logdir"):
            self.check(None, "accuracy>=0.9")

    def check(self, logdir, text):
        config = TrainConfig(model="softmax", dataset="digits", logdir=logdir and str(logdir), target_metric=text)
        target_watch.check(config, components.load(config, 1))

"""An evaluation in parts gives the metrics of one pass, whatever becomes of the helpers."""

from __future__ import annotations

import contextlib
import dataclasses
import functools

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints import file_arrays
from ps_trainer.config import TrainConfig
from ps_trainer.errors import Interrupted
from ps_trainer.runtime import messages
from ps_trainer.runtime.control import PsState
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.run_record import EvaluationCall, PackedArray, RunStatus, Status, TaskFingerprint
from ps_trainer.training import components as components_lib
from ps_trainer.training import evaluation_helper, shared_evaluation
from ps_trainer.training.components import ComponentObjects
from ps_trainer.training.evaluation import evaluate
from ps_trainer.training.evaluation_helper import EvaluationHelper, can_help
from ps_trainer.training.evaluation_pace import EvaluationLimits
from ps_trainer.training.shared_evaluation import SharedEvaluation
from tests.runtime.fakes import GONE, entry, ready_run, roster
from tests.testing.logs import log_lines
from tests.testing.repetitions import repetitions
from tests.training.shared_components import BATCH_SIZE, Clicks, Embedded, Slow, SlowOptions, Streaming

NUM_BATCHES = 20
NUM_EXAMPLES = NUM_BATCHES * BATCH_SIZE - 100
VALUES = {"logits/kernel": np.array([[1.0], [-2.0], [0.5]], np.float32), "logits/bias": np.array([0.1], np.float32)}

CALL = EvaluationCall(call_id="c", workers=(1,), parameters=0, num_test_examples=9, first_batch=2, num_parts=3)


class FakeTime:
    """Each read of the time takes a while, so that a batch takes at least as long."""

    def __init__(self, step_secs=1.0):
        self.secs, self._step_secs = 0.0, step_secs

    def __call__(self):
        self.secs += self._step_secs
        return self.secs


class FakePs:
    """The part of ps 0 that an evaluation uses. What is sent passes through JSON."""

    def __init__(self):
        self.run = ready_run()
        self.fields = {"roster": roster("r", w0="training", w1="done", w2="done")}
        self.next_part = 0
        self.results: list[str] = []
        self.error = None
        self.taken: list[int] = []

    def begin_parts(self):
        self._fail()
        self.next_part = 0

    def take_part(self):
        self._fail()
        self.next_part += 1
        return self.next_part - 1

    def send_part(self, result):
        self.results.append(messages.encode(result))

    def receive_parts(self):
        self._fail()
        texts, self.results = self.results, []
        return [messages.decode_part(text.encode()) for text in texts]

    def _fail(self):
        if self.error is not None:
            raise self.error


def load(model=None, **options):
    dataset = Slow(SlowOptions(**options))
    return components_lib.load(TrainConfig(), 1, ComponentObjects(model=model or Clicks(), dataset=dataset))


@functools.cache
def evaluated_alone(num_examples=None):
    """The metrics of one pass over all test examples, or over a sample."""
    return evaluate(load(), VALUES, EvaluationLimits(num_examples))


def assert_same(got, wanted):
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-6, err_msg=name)


class Shared:
    """An evaluation on the chief, with helpers that act when the chief writes its call.

    Args:
        on_call: Function of (this object, call).
        workers: Reports of the other workers.
    """

    def __init__(self, on_call=lambda shared, call: None, workers=None):
        self.ps_0 = FakePs()
        self.components = load()
        self.calls = []
        self._on_call = on_call
        self._workers = workers or {1: entry("done"), 2: entry("done")}

    def evaluate(self, components=None, values=VALUES, **limits):
        """The chief's metrics."""
        self.chief = components or self.components
        helpers = SharedEvaluation(
            self.ps_0,
            write_call=self._write_call,
            workers=self._workers,
            host="here",
            num_test_examples=self.chief.dataset.num_test_examples,
        )
        return evaluate(self.chief, values, EvaluationLimits(**{"time_fn": FakeTime()} | limits), helpers)

    def helper(self, worker=1, components=None, values=VALUES):
        return EvaluationHelper(
            self.ps_0,
            run_id="r",
            worker=worker,
            components=components or load(),
            open_parameters=lambda looked_up: contextlib.nullcontext(values),
            report=lambda words: None,
            silence_secs=30.0,
        )

    def help(self, call, num_parts, **details):
        """Lets a helper evaluate some parts, and lets it believe then that none is left."""
        helper = self.helper(**details)
        take = self.ps_0.take_part
        left = iter(range(num_parts))
        self.ps_0.take_part = lambda: take() if next(left, None) is not None else call.num_parts
        helper._evaluate_parts(call)
        self.ps_0.take_part = take

    def _write_call(self, call):
        self.calls.append(call)
        self._on_call(self, call)


@pytest.mark.parametrize(
    ("num_examples", "num_helped"),
    repetitions([(None, 0), (None, 1), (None, 12), (None, 7), (4500, 7), (2400, 7)]),
)
def test_parts_of_several_workers_give_the_metrics_of_one_pass(num_helped, num_examples):
    shared = Shared(lambda shared, call: shared.help(call, num_helped))
    got = shared.evaluate(num_examples=num_examples, time_fn=FakeTime(2.0))
    (call,) = shared.calls
    num_batches = -(-(num_examples or NUM_EXAMPLES) // BATCH_SIZE)
    assert (call.first_batch, call.num_parts) == (2, min(3, num_batches - 2))
    assert_same(got, evaluated_alone(num_examples))


def test_each_batch_is_evaluated_once():
    seen = []

    class Counted(Slow):
        def _prepare(self, batch):
            number = tf.numpy_function(lambda n: seen.append(int(n[0])) or n, [batch["number"]], tf.int64)
            number.set_shape(batch["number"].shape)
            return batch | {"number": number}

    counted = components_lib.load(TrainConfig(), 1, ComponentObjects(model=Clicks(), dataset=Counted(SlowOptions())))
    shared = Shared(lambda shared, call: shared.help(call, 5, components=counted))
    shared.evaluate(counted)
    # The pass over all batches had prefetched some when it ended.
    first_parts = [number for number in seen if number >= shared.calls[0].first_batch * BATCH_SIZE]
    assert set(seen) == set(range(0, NUM_BATCHES * BATCH_SIZE, BATCH_SIZE))
    assert len(first_parts) <= len(set(first_parts)) + 4


def test_a_part_that_a_lost_helper_has_taken_is_evaluated_by_the_chief():
    def takes_and_dies(shared, call):
        assert [shared.ps_0.take_part() for _ in range(3)] == [0, 1, 2]

    assert_same(Shared(takes_and_dies).evaluate(), evaluated_alone())


def test_a_late_result_counts_once():
    def is_late(shared, call):
        shared.help(call, 2)
        late, shared.ps_0.results = shared.ps_0.results, []
        receive = shared.ps_0.receive_parts

        def receive_at_last():
            if shared.ps_0.next_part > call.num_parts:  # the chief has found that no part is left
                shared.ps_0.results += late  # again and again
            return receive()

        shared.ps_0.receive_parts = receive_at_last

    shared = Shared(is_late)
    with log_lines() as lines:
        assert_same(shared.evaluate(), evaluated_alone())
    assert "workers 1 have helped with the evaluation" in lines


@pytest.mark.parametrize("when", ["at the call", "in a part"])
def test_without_ps_0_the_chief_evaluates_alone(when, monkeypatch):
    monkeypatch.setattr(shared_evaluation, "_RECEIVE_SECS", 0.0)

    def dies(shared, call):
        shared.help(call, 1)
        if when == "at the call":
            raise GONE
        take = shared.ps_0.take_part

        def take_and_die():
            part = take()
            shared.ps_0.error = GONE
            return part

        shared.ps_0.take_part = take_and_die

    with log_lines() as lines:
        assert_same(Shared(dies).evaluate(), evaluated_alone())
    assert any(line.startswith("ps 0 does not answer, so the chief evaluates the rest alone") for line in lines)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"totals": {"number": 1.0}}, "other metrics"),
        ({"collected": {}}, "other metrics"),
        ({"num_examples": 7}, "another number of examples"),
        ({"collected": {"auc": (PackedArray(dtype="<f4", shape=(), data="AAAAAA=="),) * 2}}, "number of examples"),
        ({"collected": {"auc": (PackedArray(dtype="|O", shape=(1,), data=""),) * 2}}, "not a type of numbers"),
        ({"collected": {"auc": (PackedArray(dtype="?!", shape=(1,), data=""),) * 2}}, "unknown type"),
        ({"collected": {"auc": (PackedArray(dtype="<f4", shape=(9,), data="AAAA"),) * 2}}, ""),
    ],
)
def test_a_result_of_another_model_is_dropped(changes, reason):
    def sends_others(shared, call):
        shared.help(call, 1)
        (result,) = shared.ps_0.receive_parts()
        shared.ps_0.send_part(dataclasses.replace(result, **changes))
        shared.ps_0.send_part(dataclasses.replace(result, call_id="earlier", loss=1e9, part=1))
        shared.ps_0.send_part(dataclasses.replace(result, loss=1e9, part=call.num_parts))

    with log_lines() as lines:
        assert_same(Shared(sends_others).evaluate(), evaluated_alone())
    (line,) = [line for line in lines if line.startswith("a result of worker 1 was dropped: ")]
    assert reason in line


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        ({"values": VALUES | {"logits/bias": np.array([0.2], np.float32)}}, "the parameters have changed"),
        ({"components": load(num_examples=2000)}, f"the chief has {NUM_EXAMPLES} test examples"),
    ],
    ids=["parameters", "examples"],
)
def test_a_worker_with_other_parameters_or_examples_does_not_help(details, reason):
    shared = Shared(lambda shared, call: shared.help(call, 3, **details))
    with log_lines() as lines:
        assert_same(shared.evaluate(), evaluated_alone())
    assert any("this worker does not help with the evaluation any more" in line and reason in line for line in lines)
    assert not any("have helped" in line for line in lines)


def test_a_short_evaluation_calls_nobody():
    shared = Shared()
    shared.evaluate(time_fn=FakeTime(0.5))
    assert not shared.calls


def test_a_limited_time_is_enough_for_more_examples_with_help():
    # A batch takes 2 s and more: the first two and 18 more take at least 40 s.
    alone = evaluate(load(), VALUES, EvaluationLimits(max_secs=30.0, time_fn=FakeTime()))
    shared = Shared(lambda shared, call: shared.help(call, 12))
    assert_same(shared.evaluate(max_secs=30.0), evaluated_alone())
    assert alone["number"] != pytest.approx(evaluated_alone()["number"], rel=1e-6)


def test_without_help_a_limited_time_cuts_the_parts():
    shared = Shared()
    fake_time = FakeTime()
    with log_lines() as lines:
        got = shared.evaluate(max_secs=30.0, time_fn=fake_time)
    assert fake_time.secs < 40
    assert any("test examples; --eval_examples sets their number" in line for line in lines)
    assert got["number"] == pytest.approx(NUM_BATCHES * BATCH_SIZE / 2, rel=0.25)  # the parts lie all over the examples


def on(host, status="done"):
    return entry(status, fingerprint=TaskFingerprint(host=host))


@pytest.mark.parametrize(
    ("used_cores", "called"), [(0.1, (1, 2, 3, 4, 5)), (1.9, (2, 4))], ids=["idle cores", "busy cores"]
)
def test_busy_machines_lend_one_worker_each(monkeypatch, used_cores, called):
    monkeypatch.setattr(shared_evaluation.os, "cpu_count", lambda: 2)
    workers = {1: on("here"), 2: on("a"), 3: on("a"), 4: on("b"), 5: on("here"), 6: on("c", "lost")}
    helpers = SharedEvaluation(
        FakePs(), write_call=lambda call: None, workers=workers, host="here", num_test_examples=9
    )
    assert helpers.count(used_cores) == len(called)
    assert helpers._called == called


def test_only_a_dataset_that_gives_parts_of_its_test_examples_is_shared():
    class Replaced(Slow):
        def test(self, *, batch_size):
            return super().test(batch_size=batch_size).take(1)

    class Plain:
        num_test_examples = 10**6

        def test(self, *, batch_size):
            return None

    assert can_help(load(), None) and can_help(load(), 2048)
    assert not can_help(load(), 2047) and not can_help(load(num_examples=2047), None)
    for dataset in (Replaced(SlowOptions()), Plain()):
        assert not can_help(load()._replace(dataset=dataset), None)


class EmbeddedWhole(Embedded):
    """`Embedded`, whose loss also needs the whole table."""

    def build(self, batch, training):
        output = super().build(batch, training)
        with tf.variable_scope(tf.get_variable_scope(), reuse=True):
            return output._replace(loss=output.loss + tf.reduce_sum(tf.get_variable("table", TABLE.shape)))


TABLE = np.random.RandomState(1).standard_normal([2**16, 4]).astype(np.float32)


@pytest.fixture
def large_table(monkeypatch):
    """Values of `Embedded`, whose table counts as large although it has 1 MiB."""
    monkeypatch.setattr(Embedded, "num_rows", len(TABLE))
    monkeypatch.setattr(Embedded, "dim", TABLE.shape[1])
    monkeypatch.setattr(file_arrays, "LARGE_BYTES", TABLE.nbytes)
    return VALUES | {"table": TABLE}


def test_a_helper_gets_only_the_rows_of_a_large_table(large_table):
    class Rows:
        shape, num_rows = TABLE.shape, 0

        def take_rows(self, ids):
            Rows.num_rows += len(ids)
            return TABLE[ids]

    def helps(shared, call):
        shared.help(call, 1, components=load(Embedded()), values=VALUES | {"table": Rows()})

    wanted = evaluate(load(Embedded()), large_table)
    assert_same(Shared(helps).evaluate(load(Embedded()), large_table), wanted)
    assert 0 < Rows.num_rows < NUM_EXAMPLES


def test_a_worker_does_not_help_where_it_would_need_a_large_table_as_a_whole(monkeypatch, large_table):
    monkeypatch.setattr(evaluation_helper, "_MAX_TABLE_BYTES", TABLE.nbytes - 1)
    components = load(EmbeddedWhole())
    wanted = evaluate(components, large_table)
    shared = Shared(lambda shared, call: shared.help(call, 1, components=components, values=large_table))
    with log_lines() as lines:
        assert_same(shared.evaluate(components, large_table), wanted)
    assert any(line.endswith("the model reads tables of 1048576 bytes as a whole") for line in lines)


def test_tf_metrics_are_computed_by_the_chief_alone():
    shared = Shared()
    streaming = load(Streaming())
    values = {name: VALUES[name] for name in ("logits/kernel", "logits/bias")}
    got = shared.evaluate(streaming, values)
    assert not shared.calls
    assert got["mean"] == pytest.approx(streaming.dataset.arrays["test"]["x"].mean(), abs=1e-5)


class TestWait:
    """A helper that waits for the chief's call."""

    def wait(self, ps_0, *acts, worker=1):
        """Waits; at each wait the chief acts once. Returns whether the helper was called."""
        shared = Shared()
        shared.ps_0 = ps_0
        helper, called, remaining = shared.helper(worker), [], list(acts)
        helper._evaluate_parts = called.append

        class Stop(StopRequest):
            def wait(self, secs):
                assert remaining or called, "the helper still waits after the last act"
                if remaining:
                    remaining.pop(0)(ps_0, self)
                return self.is_requested

        helper.help(Stop())
        assert not remaining
        return bool(called)

    class Ps(FakePs):
        def read(self, *, is_patient=False):
            self._fail()
            return PsState(run=self.run, **self.fields)

    def calls(self, *workers):
        def act(ps_0, stop):
            ps_0.run = ps_0.run.replace(evaluation=dataclasses.replace(CALL, workers=workers))

        return act

    def test_a_worker_that_is_called_helps(self):
        assert self.wait(self.Ps(), lambda *_: None, self.calls(1, 2))

    def test_another_worker_ends(self):
        assert not self.wait(self.Ps(), self.calls(2))

    def test_it_ends_with_the_run(self):
        def ends(ps_0, stop):
            ps_0.run = ps_0.run.replace(status=RunStatus.ENDED)

        assert not self.wait(self.Ps(), lambda *_: None, ends)

    @pytest.mark.parametrize("status", [Status.LOST, Status.FAILED, Status.INTERRUPTED])
    def test_it_ends_with_the_chief(self, status):
        def dies(ps_0, stop):
            ps_0.fields["roster"] = roster("r", w0=status.value, w1="done")

        assert not self.wait(self.Ps(), dies)

    def test_it_ends_with_ps_0_but_not_with_a_late_answer(self):
        def fails(error):
            return lambda ps_0, stop: setattr(ps_0, "error", error)

        late = tf.errors.DeadlineExceededError(None, None, "late")
        assert not self.wait(self.Ps(), fails(late), fails(None), fails(GONE))

    def test_it_ends_at_a_signal(self):
        assert not self.wait(self.Ps(), lambda ps_0, stop: stop.request(Interrupted(15)))

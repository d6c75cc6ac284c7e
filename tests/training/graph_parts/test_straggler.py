"""Delays inside a step: the parameters of the gradient, the counts of delays, and their effect on other workers."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import types
import uuid
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.disturbances import delays
from ps_trainer.errors import Interrupted, OptionError
from tests.testing import oracles, script
from tests.testing.cluster import InProcessCluster, config_of, wait_until
from tests.testing.repetitions import repetitions, representatives
from tests.testing.rule_promises import LIKE_ANOTHER, PROMISES

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from ps_trainer.store.pieces import Gradient
from ps_trainer.training import components as components_lib
from ps_trainer.training import graph as graph_lib
from ps_trainer.training.graph_parts import straggler as straggler_lib
from ps_trainer.training.graph_parts.straggler import Straggler
from ps_trainer.training.sessions import open_alone

SCRIPT = [0, 1, 1, 0, 1, 0]
STALENESS = [[0, 2, 1], [1, 0, 1]]  # steps of other workers since the worker's own previous step
BATCH_SIZE, RATE = 4, 0.5
MODELS = {"Linear": oracles.linear, "EmbeddedLinear": oracles.embedded_linear}
CHOSEN = representatives(PROMISES, [rule for rule in PROMISES if rule not in LIKE_ANOTHER])
A_MINUTE = "det:mean_ms=60000"
SOON_SECS = 30.0  # far less than a minute, and far more than any call needs that does not wait for one


class Delays:
    """Replaces the passing of time: a delay is over when the test ends it. It takes the place of `Straggler._wait`."""

    def __init__(self):
        self.begun = defaultdict(list)
        self._ends = defaultdict(lambda: threading.Semaphore(0))

    def wait(self, straggler, secs):
        self.begun[straggler.worker_index].append(secs)
        return not self._ends[straggler.worker_index].acquire(timeout=60.0)

    def end(self, worker):
        self._ends[worker].release()


@pytest.fixture
def by_hand(monkeypatch):
    """The `Delays` of every straggler."""
    made = Delays()
    monkeypatch.setattr(Straggler, "_wait", lambda self, asked: made.wait(self, asked.delay))
    return made


@pytest.fixture(scope="module")
def two_workers():
    with InProcessCluster(2, 2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def one_worker():
    with InProcessCluster(1, 1) as cluster:
        yield cluster


def straggler_of(texts, *, seed=0, worker=0):
    return straggler_lib.create(
        [delays.parse(text) for text in texts],
        seed=seed,
        worker_index=worker,
        device="/job:worker/task:0",
        container="",
    )


def next_delays(straggler, count):
    return [straggler._next_delay() for _ in range(count)]


def build(config, *, num_workers=3, worker=0):
    """A worker's graph, built without a server."""
    jobs = {"ps": ("localhost:2000",), "worker": tuple(f"localhost:{3000 + index}" for index in range(num_workers))}
    cluster = ClusterConfig(jobs=jobs, job_name="worker", task_index=worker)
    return graph_lib.build(components_lib.load(config, num_workers), cluster, config, "run")


def nodes(train):
    return [(node.name, node.op, list(node.input), node.device) for node in train.graph.as_graph_def().node]


def needed(fetches):
    """The ops that a run of `fetches` runs."""
    pending, seen = [getattr(fetch, "op", fetch) for fetch in tf.nest.flatten(fetches)], set()
    while pending:
        op = pending.pop()
        if op not in seen:
            seen.add(op)
            pending += [*(tensor.op for tensor in op.inputs), *op.control_inputs]
    return seen


@pytest.mark.parametrize("layout", repetitions(["packed", "per_variable"]))
@pytest.mark.parametrize("model", repetitions(list(MODELS), first=1))  # this one has dense parts
def test_a_gradient_uses_the_parameters_that_its_worker_read_before_the_delay(two_workers, by_hand, model, layout):
    wanted = oracles.async_sgd(
        MODELS[model],
        script.initial_values(getattr(script, model)()),
        SCRIPT,
        lambda worker, step: script.worker_batch(worker, 2, BATCH_SIZE, step),
        RATE,
    )
    config = config_of(
        f"tests.testing.script:{model}", "Rows", ["lengths=3,3"], straggler=("det",), layout=layout,
        batch_size=BATCH_SIZE, learning_rate=RATE, max_steps=None, num_epochs=100,
    )  # fmt: skip
    calls = [two_workers.start(config, worker) for worker in (0, 1)]

    def steps(worker):
        return len(calls[worker].made[-1].losses)

    for worker in (0, 1):
        wait_until(lambda worker=worker: by_hand.begun[worker], SOON_SECS)
    for worker in SCRIPT:
        done = steps(worker)
        by_hand.end(worker)
        wait_until(lambda worker=worker, done=done: steps(worker) == done + 1, SOON_SECS)
        if done < 2:  # the next step has read the current parameters
            wait_until(lambda worker=worker, done=done: len(by_hand.begun[worker]) == done + 2, SOON_SECS)
    outcomes = [two_workers.finish(call) for call in calls]
    for name, value in wanted.values[-1].items():
        got = outcomes[0].worker.final_values[name]
        np.testing.assert_allclose(got, value, rtol=0, atol=1e-6, err_msg=name)
    for worker, outcome in enumerate(outcomes):
        assert outcome.error is None
        np.testing.assert_allclose(outcome.losses, wanted.losses[worker], rtol=0, atol=1e-6)
        assert [set(values) for values in outcome.progress.staleness_values] == [{s} for s in STALENESS[worker]]


def test_delays_are_counted_and_there_is_none_after_the_last_batch(one_worker, by_hand):
    config = config_of("Dense", "Rows", ["lengths=3"], straggler=("exp",), max_steps=None, num_epochs=9, batch_size=4)
    for _ in range(3):
        by_hand.end(0)
    outcome = one_worker.finish(one_worker.start(config, 0))
    sampled = next_delays(straggler_of(["exp"]), 3)
    assert (outcome.code, by_hand.begun[0]) == (0, sampled)
    assert outcome.progress.summary().injected_delay_mean == pytest.approx(sum(sampled) / 3)


@pytest.mark.parametrize(("is_paced", "waits"), [(False, [0.4, 0.4]), (True, [0.1, 0.0])])
def test_a_paced_delay_counts_from_the_start_of_the_step(is_paced, waits):
    now = [100.0]
    straggler = Straggler(
        lambda: 0.4, worker_index=0, device="", container="", is_paced=is_paced, time_fn=lambda: now[0]
    )  # fmt: skip
    asked = []
    for computing_secs in (0.3, 0.5):
        now[0] += 10.0  # between two steps
        straggler.begin_step()
        now[0] += computing_secs
        straggler._ask()
        asked.append(straggler._asked.get_nowait())
    assert [question.delay for question in asked] == pytest.approx(waits)
    assert [question.sampled for question in asked] == [0.4, 0.4]


def test_the_loop_begins_each_step_before_its_delay(one_worker, by_hand, monkeypatch):
    begins = []
    monkeypatch.setattr(Straggler, "begin_step", lambda self: begins.append(len(by_hand.begun[0])))
    spec = "det:mean_ms=60000,jitter=0,paced=true"
    config = config_of("Dense", "Rows", ["lengths=3"], straggler=(spec,), max_steps=None, num_epochs=9, batch_size=4)
    for _ in range(3):
        by_hand.end(0)
    outcome = one_worker.finish(one_worker.start(config, 0))
    assert (outcome.code, begins) == (0, [0, 1, 2, 3])  # the fourth step finds no data
    assert all(secs < 60.0 for secs in by_hand.begun[0])
    assert outcome.progress.summary().injected_delay_mean == pytest.approx(60.0)  # the computation included


@pytest.mark.parametrize("rule", CHOSEN)
def test_each_phase_of_every_rule_has_the_delay_once(rule):
    promises = PROMISES[rule]
    config = config_of(
        promises.model,
        "Rows",
        update=rule,
        update_option=promises.options,
        straggler=("exp",),
        batch_size=4,
        max_steps=9,
    )
    train = build(config)
    for fetches in train.fetches:
        assert [op.type for op in needed(fetches)].count("PyFunc") == 1
    assert not [op.type for op in needed(train.join_ops)].count("PyFunc")


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("downpour", ("n_push=3", "n_fetch=3")),
        ("easgd", ("period=3",)),
        pytest.param("local_sgd", ("period=3",), marks=pytest.mark.full),  # its phases are those of `easgd`
        ("accumulate", ("steps=3",)),
        ("all_reduce", ()),
    ],
)
def test_local_steps_are_delayed_as_well(one_worker, by_hand, rule, options):
    config = config_of(
        "Dense", "Rows", ["lengths=6"], update=rule, update_option=options, straggler=("det",), batch_size=4,
        max_steps=None, num_epochs=9,
    )  # fmt: skip
    for _ in range(6):
        by_hand.end(0)
    outcome = one_worker.finish(one_worker.start(config, 0))
    assert (outcome.error, len(outcome.losses), len(by_hand.begun[0])) == (None, 6, 6)


class Steps:
    """Steps that consist of a delay alone, on the server of worker 0."""

    def __init__(self, cluster, next_delay):
        self._target = cluster._servers.by_task["worker-0"].target
        self._config = tf.ConfigProto(device_filters=["/job:worker/task:0"], operation_timeout_in_ms=60_000)
        self._delays = []
        device = "/job:worker/task:0"
        with tf.Graph().as_default() as self._graph:
            self._straggler = Straggler(
                lambda: self._delays.append(next_delay()) or self._delays[-1],
                worker_index=0, device=device, container=uuid.uuid4().hex,
            )  # fmt: skip
            piece = types.SimpleNamespace(device=device)
            (held,) = self._straggler.hold_back([Gradient(piece, tf.constant(2.0))])
        self._value = held.value
        self._straggler.start(functools.partial(open_alone, self._target, self._config))

    def run(self):
        with tf.Session(self._target, graph=self._graph, config=self._config) as session:
            return session.run(self._value)

    def run_until_cancelled(self):
        """Makes a step and ends its session during the delay."""
        before = len(self._delays)
        session = tf.Session(self._target, graph=self._graph, config=self._config)
        with ThreadPoolExecutor(1) as thread:
            step = thread.submit(session.run, self._value)
            wait_until(lambda: len(self._delays) > before, SOON_SECS)
            session.close()
            assert isinstance(step.exception(), tf.errors.CancelledError)

    def close(self):
        self._straggler.close()


def test_a_step_after_one_that_was_cancelled_in_its_delay_has_its_own_delay(one_worker, by_hand):
    with contextlib.closing(Steps(one_worker, lambda: 1.0)) as steps:
        for _ in range(2):
            steps.run_until_cancelled()
            by_hand.end(0)  # only now, when no step waits for it any more
        by_hand.end(0)
        assert steps.run() == 2.0
    assert by_hand.begun[0] == [1.0, 1.0, 1.0]


def test_a_new_step_ends_the_wait_of_one_that_was_cancelled(one_worker):
    secs = iter([3600.0, 0.0])
    with contextlib.closing(Steps(one_worker, lambda: next(secs))) as steps:
        steps.run_until_cancelled()
        assert steps.run() == 2.0


def test_a_worker_without_a_delay_has_the_same_graph_as_without_the_flag():
    # With delays, no worker makes several steps in a call.
    settings = {"batch_size": 4, "max_steps": 9, "steps_per_call": 1}
    plain = config_of("Embedded", "Rows", **settings)
    other = config_of("Embedded", "Rows", **settings, straggler=("exp:worker=1",))
    assert nodes(build(other)) == nodes(build(plain))
    assert build(other).straggler is None
    assert {node[1] for node in nodes(build(other, worker=1))} - {
        node[1] for node in nodes(build(plain, worker=1))
    } == {
        "PyFunc",
        "FIFOQueueV2",
        "While",
    }


def test_delays_follow_from_seed_worker_and_spec():
    first = next_delays(straggler_of(["pareto"], seed=3, worker=1), 5)
    sampler = delays.parse("pareto").sampler(delays.rng_for(3, 1), 1)
    assert first == next_delays(straggler_of(["pareto"], seed=3, worker=1), 5) == [sampler() for _ in range(5)]
    assert first != next_delays(straggler_of(["pareto"], seed=3, worker=0), 5)
    assert first != next_delays(straggler_of(["pareto"], seed=4, worker=1), 5)


def test_the_last_spec_for_a_worker_counts():
    texts = ["det:mean_ms=10,jitter=0", "det:mean_ms=20,jitter=0,worker=1"]
    assert [next_delays(straggler_of(texts, worker=worker), 1) for worker in (0, 1)] == [[0.01], [0.02]]
    assert next_delays(straggler_of(texts[::-1], worker=1), 1) == [0.01]
    assert straggler_of(texts[1:], worker=0) is None


def test_a_worker_that_does_not_exist_is_rejected_before_a_task_starts():
    config = config_of("Dense", "Rows", straggler=("exp", "exp:worker=2"))
    components_lib.load(config, num_workers=3)
    with pytest.raises(
        OptionError, match="--straggler exp:worker=2: worker 2 does not exist with num_workers=2.*worker=1"
    ):
        components_lib.load(config, num_workers=2)


def test_the_delayed_worker_carries_the_stale_gradients(two_workers):
    """E[τ_i] = Σ_{j≠i} r_j / r_i: rates decide, and only worker 1 is delayed."""
    config = config_of("Dense", "Rows", straggler=("det:mean_ms=60,worker=1",), batch_size=4, max_steps=300)
    outcomes = two_workers.run(config)
    fast, slow = (outcome.progress for outcome in outcomes)
    assert len(fast.losses) > len(slow.losses) > 1
    means = [float(np.mean(progress.staleness_values)) for progress in (fast, slow)]
    assert means[1] > 1 > means[0]
    assert fast.summary().injected_delay_mean is None
    assert slow.summary().injected_delay_mean == pytest.approx(0.06, rel=0.02)


def test_workers_in_a_long_delay_block_no_other_and_end_when_asked():
    """All servers of this process share a pool of two threads, which two sleeping workers would use up."""
    with InProcessCluster(1, 4) as cluster:
        specs = tuple(f"{A_MINUTE},worker={worker}" for worker in (1, 2, 3))
        config = config_of("Dense", "Rows", straggler=specs, batch_size=4, max_steps=10**6, join_wait_secs=30.0)
        calls = [cluster.start(config, worker) for worker in range(4)]
        wait_until(lambda: all(len(call.made) == 2 and call.worker._stall_watch.is_watching for call in calls))
        seen = len(calls[0].made[-1].losses)
        wait_until(lambda: len(calls[0].made[-1].losses) > seen + 50)
        assert [len(call.made[-1].losses) for call in calls[1:]] == [0, 0, 0]
        asked_at = time.monotonic()
        for call in reversed(calls):
            call.stop.request(Interrupted(15))
            call.stop.call("release")  # the process's main thread does this
        for call in calls:
            assert isinstance(cluster.finish_call(call, SOON_SECS).error, Interrupted)
        assert time.monotonic() - asked_at < SOON_SECS
    assert not [thread for thread in threading.enumerate() if thread.name == "straggler"]

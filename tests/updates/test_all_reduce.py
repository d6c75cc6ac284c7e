"""Rule `all_reduce`: workers around a ring compute the result of one process, and a step uses no ps task."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.errors import Interrupted, OptionError, PeerFailedError, StartTimeoutError
from ps_trainer.updates.ring import Turn
from tests.testing.cluster import InProcessCluster, config_of, wait_until
from tests.testing.components import Dense, global_batches, plain_loop
from tests.testing.repetitions import repetitions, representatives

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from ps_trainer.training import components as components_lib
from ps_trainer.training import graph as graph_lib
from ps_trainer.updates.base import RELEASED
from ps_trainer.updates.ring import RingExchange

LAYOUTS = ("packed", "per_variable")
OPTIMIZERS = {
    "sgd": (0.1, lambda: tf.train.GradientDescentOptimizer(0.1)),
    "momentum": (0.05, lambda: tf.train.MomentumOptimizer(0.05, 0.9)),
    "adam": (0.01, lambda: tf.train.AdamOptimizer(0.01)),
    "adagrad": (0.1, lambda: tf.train.AdagradOptimizer(0.1)),
    "rmsprop": (0.01, lambda: tf.train.RMSPropOptimizer(0.01)),
    "ftrl": (0.1, lambda: tf.train.FtrlOptimizer(0.1)),
}
BATCH, STEPS = 4, 12


@pytest.fixture(scope="module")
def two_workers():
    with InProcessCluster(num_ps=2, num_workers=2) as cluster:
        yield cluster


def config(**fields):
    return config_of("Dense", "Rows", **({"update": "all_reduce", "batch_size": BATCH, "max_steps": STEPS} | fields))


def assert_equals_plain_loop(outcomes, batches, optimizer):
    losses, values = plain_loop(Dense(), batches, OPTIMIZERS[optimizer][1])
    mean_losses = np.mean([outcome.losses for outcome in outcomes], axis=0)
    np.testing.assert_allclose(mean_losses, losses, rtol=0, atol=1e-5)
    assert_same_values(outcomes[0].worker.final_values, values, len(batches))


def assert_same_values(got, wanted, global_step):
    wanted = {name: value for name, value in wanted.items() if not name.endswith("_power")}
    assert set(got) == set(wanted) | {"global_step"}
    assert got["global_step"] == global_step
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("optimizer", representatives(OPTIMIZERS, ["rmsprop"]))  # Adam and momentum are below
def test_two_workers_equal_one_process_with_their_examples(two_workers, optimizer):
    outcomes = two_workers.run(config(optimizer=optimizer, learning_rate=OPTIMIZERS[optimizer][0]))
    assert_equals_plain_loop(outcomes, global_batches(BATCH, STEPS, 2), optimizer)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("num_workers", [1, 3])
def test_any_number_of_workers_in_each_layout(num_workers, layout):
    with InProcessCluster(1, num_workers) as cluster:
        outcomes = cluster.run(config(layout=layout, optimizer="momentum", learning_rate=0.05))
    assert_equals_plain_loop(outcomes, global_batches(BATCH, STEPS, num_workers), "momentum")


def test_gradients_in_many_vectors_are_the_same(two_workers):
    outcomes = two_workers.run(config(update_option=("fusion_bytes=64",), optimizer="adam", learning_rate=0.01))
    assert_equals_plain_loop(outcomes, global_batches(BATCH, STEPS, 2), "adam")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("lengths", [(5, 12), (12, 5)])
def test_the_mean_is_over_the_workers_that_have_data(two_workers, lengths, layout):
    outcomes = two_workers.run(
        config_of(
            "Dense", "Rows", [f"lengths={lengths[0]},{lengths[1]}"], update="all_reduce", batch_size=BATCH,
            max_steps=None, num_epochs=100, layout=layout, optimizer="momentum", learning_rate=0.05,
        )
    )  # fmt: skip
    last = int(np.argmax(lengths))
    batches = global_batches(BATCH, max(lengths), 2)
    for step in range(min(lengths), max(lengths)):
        batches[step] = {name: array[last * BATCH : (last + 1) * BATCH] for name, array in batches[step].items()}
    *_, values = together(batches)
    assert [outcome.code for outcome in outcomes] == [0, 0]
    assert tuple(len(outcome.losses) for outcome in outcomes) == lengths
    assert_same_values(outcomes[0].worker.final_values, values, max(lengths))


def together(batches):
    """`plain_loop` takes one batch size, so this repeats the short batches to the long size."""
    size = max(len(batch["label"]) for batch in batches)
    whole = [{name: np.tile(a, [size // len(a)] + [1] * (a.ndim - 1)) for name, a in b.items()} for b in batches]
    return plain_loop(Dense(), whole, OPTIMIZERS["momentum"][1])


@pytest.mark.full  # the resumed run below is a second run on the same servers, and equals one process
def test_a_second_run_on_the_same_servers_equals_the_first(two_workers):
    first, second = (two_workers.run(config(optimizer="adam")) for _ in range(2))
    assert [outcome.losses for outcome in first] == [outcome.losses for outcome in second]


@pytest.mark.parametrize("layout", repetitions(LAYOUTS))
def test_a_resumed_run_equals_an_uninterrupted_one(two_workers, layout, tmp_path):
    fields = {"layout": layout, "optimizer": "adam", "learning_rate": 0.01, "logdir": str(tmp_path)}
    half = two_workers.run(config(**fields, max_steps=STEPS // 2))
    rest = two_workers.run(config(**fields))
    assert rest[1].progress.global_steps == list(range(STEPS // 2 + 1, STEPS + 1))
    assert half[0].worker.final_values["global_step"] == STEPS // 2
    whole_batches = global_batches(BATCH, STEPS, 2)
    losses, values = plain_loop(Dense(), whole_batches, OPTIMIZERS["adam"][1])
    np.testing.assert_allclose(np.mean([o.losses for o in rest], axis=0), losses[STEPS // 2 :], rtol=0, atol=1e-5)
    assert_same_values(rest[0].worker.final_values, values, STEPS)


def test_clipped_gradients_bound_the_step(two_workers):
    _, initial = plain_loop(Dense(), global_batches(BATCH, 1), lambda: tf.train.GradientDescentOptimizer(0.0))
    clipped = two_workers.run(config(learning_rate=1.0, max_steps=3, gradient_transform=("clip_value:value=0.001",)))[
        0
    ].worker.final_values
    moves = [np.abs(clipped[name] - initial[name]).max() for name in initial]
    assert 0 < max(moves) <= 3 * 1.0 * 0.001 + 1e-6


def test_no_run_of_a_step_touches_a_ps_task():
    with InProcessCluster(1, 2) as cluster:
        task = cluster.task("worker", 1)
        components = components_lib.load(config(optimizer="adam"), 2)
        train = graph_lib.build(components, task, config(optimizer="adam"), "a-run")
    collectives = [op for op in train.graph.get_operations() if op.type == "CollectiveReduce"]
    assert collectives
    (turn,) = [op for op in train.graph.get_operations() if op.name == "ring/turn"]
    for fetches in (*train.fetches, [turn]):
        assert not [op.name for op in ancestors(fetches) if "/job:ps" in op.device]
    assert any(op in ancestors([turn]) for op in collectives)
    assert not any(op in ancestors(train.fetches[0]) for op in collectives)


def ancestors(fetches):
    waiting = [f if isinstance(f, tf.Operation) else f.op for f in tf.nest.flatten(fetches)]
    found = set()
    while waiting:
        op = waiting.pop()
        if op not in found:
            found.add(op)
            waiting += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return found


def test_an_interrupted_worker_ends_the_others_and_is_named():
    with InProcessCluster(1, 3) as cluster:
        unlimited = config(max_steps=10**9)
        calls = [cluster.start(unlimited, index) for index in range(3)]
        wait_until(lambda: all(call.made and len(call.made[-1].losses) > 5 for call in calls))
        calls[1].stop.request(Interrupted(15))
        # In a real task its supervisor does this after a moment.
        wait_until(lambda: all(calls[index].stop.is_requested for index in (0, 2)))
        for index in (0, 2):
            calls[index].stop.call("release")
        outcomes = [cluster.finish(call) for call in calls]
    assert isinstance(outcomes[1].error, Interrupted)
    for index in (0, 2):
        assert isinstance(outcomes[index].error, PeerFailedError)
        assert "worker 1 interrupted" in str(outcomes[index].error)


def test_a_worker_that_does_not_come_is_named():
    with InProcessCluster(1, 2) as cluster:
        call = cluster.finish_call(cluster.start(config(start_timeout_secs=2.0, join_wait_secs=0.1), 0))
    assert isinstance(call.error, StartTimeoutError)
    assert "worker-1 did not join" in str(call.error)


def test_tables_are_rejected_and_hybrid_is_named():
    with pytest.raises(OptionError, match=r"all_reduce cannot train embedding tables.*table.*hybrid"):
        components_lib.load(config_of("Embedded", "Rows", update="all_reduce"), 2)


@pytest.mark.parametrize("transform", ["top_k:ratio=0.1", "cast", "sign", "error_feedback"])
def test_packed_gradients_are_rejected(transform):
    transforms = (transform, "top_k:ratio=0.1") if transform == "error_feedback" else (transform,)
    with pytest.raises(OptionError, match=rf"--gradient_transform {transform.partition(':')[0]}.*clip_norm.*--update"):
        components_lib.load(config(gradient_transform=transforms), 2)


class FakeRing:
    """A ring that records its calls and returns the given turns."""

    def __init__(self, *turns):
        self._turns = list(turns)
        self.calls = []

    def turn(self, session):
        return self._turns.pop(0)

    def __getattr__(self, name):
        return lambda session: self.calls.append(name)


def test_the_chief_reports_progress_to_ps_0_a_few_times_a_second():
    now = [0.0]
    ring = FakeRing(*(Turn(step, 2) for step in range(1, 6)))
    exchange = RingExchange(ring, is_chief=True, time_fn=lambda: now[0])
    counted = []
    for secs in (0.1, 0.15, 0.25, 0.3, 0.5):
        now[0] = secs
        exchange.after_phase(None)
        counted.append(len(ring.calls))
    assert counted == [0, 0, 1, 1, 2]
    assert set(ring.calls) == {"count"}


def test_only_the_chief_reports_progress():
    now = [0.0]
    ring = FakeRing(Turn(1, 2))
    exchange = RingExchange(ring, is_chief=False, time_fn=lambda: now[0])
    now[0] = 9.0
    exchange.after_phase(None)
    assert ring.calls == []


def test_nothing_is_published_before_the_first_step():
    ring = FakeRing(Turn(1, 2))
    exchange = RingExchange(ring, is_chief=False)
    exchange.publish(None)
    assert ring.calls == []
    exchange.after_phase(None)
    exchange.publish(None)
    assert ring.calls == ["publish"]


def test_a_worker_without_data_contributes_nothing_until_all_are_released():
    ring = FakeRing(Turn(1, 1), Turn(RELEASED, 0))
    exchange = RingExchange(ring, is_chief=False)
    assert [exchange.without_data(None) for _ in range(2)] == [1, RELEASED]
    assert ring.calls == ["give_nothing"] * 2

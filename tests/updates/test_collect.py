"""Groups over several ps tasks when workers leave, die in the middle of a push, come back or are let go."""

from __future__ import annotations

import numpy as np
import pytest

from tests.testing.cluster import InProcessCluster

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from ps_trainer.errors import Interrupted, PeerFailedError
from ps_trainer.runtime.server import session_config
from ps_trainer.store.base import Piece
from ps_trainer.training import components as components_lib
from ps_trainer.updates.base import RELEASED
from ps_trainer.updates.group import Group, Grouping
from tests.testing.cluster import config_of, wait_until
from tests.testing.groups import GroupScript
from tests.testing.script import Turnstile

NUM_WORKERS = 3


class TwoPs:
    """As much of a store as groups need, each ps with one vector of two."""

    def __init__(self):
        self.clocks, self.pieces = [], []
        for ps in (0, 1):
            with tf.device(self.ps_device(ps)):
                self.clocks.append(tf.get_variable(f"clock_{ps}", [], tf.int64, tf.zeros_initializer()))
                vector = tf.get_variable(f"vector_{ps}", [2], initializer=tf.zeros_initializer())
                self.pieces.append(Piece(vector, ps, (), None, True, False))

    def ps_device(self, ps: int) -> str:
        return f"/job:ps/task:{ps}"


class Groups:
    """A group on each of two ps tasks, visited one by one, as the parts of a step may be."""

    def __init__(self, cluster, name: str, **grouping):
        defaults = {"counts_workers": True, "is_fresh_only": True, "waits": True}
        with tf.Graph().as_default() as graph, graph.container(name), tf.variable_scope("", use_resource=True):
            store = TwoPs()
            self._who = [tf.placeholder(tf.float32, [2]) for _ in (0, 1)]
            self._notice = tf.placeholder(tf.int64, [4])
            self._leaver = tf.placeholder(tf.int64, [])
            grouping = Grouping(required=lambda clock: tf.constant(3, tf.int64), **(defaults | grouping))

            def update(ps, averages):
                ((piece, average),) = averages
                with tf.control_dependencies([piece.variable.assign_add(average, read_value=False)]):
                    return store.clocks[ps].assign_add(1, read_value=False)

            groups = [
                Group(store, ps, [store.pieces[ps]], NUM_WORKERS, grouping, max_steps=None, update=update, name=name)
                for ps in (0, 1)
            ]
            self._pushes = [
                [groups[ps].push(worker, [self._who[ps]], [self._notice] * ps) for worker in range(NUM_WORKERS)]
                for ps in (0, 1)
            ]
            self._joins = [[groups[ps].join(worker).version for worker in range(NUM_WORKERS)] for ps in (0, 1)]
            self._leaves = [groups[ps].leave(self._leaver, [self._notice] * ps) for ps in (0, 1)]
            self._values = [
                [piece.variable.read_value(), store.clocks[piece.ps].read_value()] for piece in store.pieces
            ]
            init = tf.global_variables_initializer()
        task = cluster.task("worker", 0)
        self.session = tf.Session(f"grpc://{task.own_address}", graph=graph, config=session_config(task.device))
        self.session.run(init)

    def push(self, ps, worker, notice=None):
        """Adds worker + 1 to each entry; returns (whether accepted, notice)."""
        return self._visit(self._pushes[ps][worker], ps, notice, {self._who[ps]: [worker + 1.0] * 2})

    def join(self, ps, worker):
        self.session.run(self._joins[ps][worker])

    def leave(self, ps, worker, notice=None):
        return self._visit(self._leaves[ps], ps, notice, {self._leaver: worker})

    def values(self, ps):
        vector, clock = self.session.run(self._values[ps])
        return vector[0], clock

    def _visit(self, outcome, ps, notice, feed):
        feed = feed | ({self._notice: notice} if ps else {})
        return self.session.run([outcome.is_accepted, outcome.notice], feed)


@pytest.fixture(scope="module")
def cluster():
    with InProcessCluster(2, NUM_WORKERS) as cluster:
        cluster.num_ps = 2
        yield cluster


@pytest.fixture
def own_cluster():
    with InProcessCluster(2, NUM_WORKERS) as cluster:
        yield cluster


@pytest.fixture
def groups(cluster, request):
    groups = Groups(cluster, request.node.name.replace("_", "-"))
    yield groups
    groups.session.close()


def test_the_other_ps_makes_the_update_of_the_same_gradients_in_any_order(groups):
    notices = [groups.push(0, worker)[1] for worker in (2, 0, 1)]
    assert groups.values(0) == (pytest.approx((3 + 1 + 2) / 3), 1)
    for worker, notice in zip((1, 2), (notices[2], notices[0]), strict=True):  # the one that closed it comes first
        groups.push(1, worker, notice)
    assert groups.values(1) == (0, 0)
    groups.push(1, 0, notices[1])
    assert groups.values(1) == (pytest.approx((3 + 1 + 2) / 3), 1)


def test_a_late_gradient_is_refused_on_both(groups):
    notices = [groups.push(0, worker)[1] for worker in range(3)]
    for worker, notice in enumerate(notices):
        assert groups.push(1, worker, notice)[0] == 1
    is_accepted, notice = groups.push(0, 1)  # its stamp is still 0
    assert is_accepted == 0 and notice[0] == -1
    assert groups.push(1, 1, notice)[0] == 0
    assert groups.values(0)[1] == groups.values(1)[1] == 1


def test_a_part_that_never_comes_counts_as_zero_when_its_worker_has_left(groups):
    notices = [groups.push(0, worker)[1] for worker in range(3)]
    groups.push(1, 0, notices[0])
    groups.push(1, 1, notices[1])
    assert groups.values(1)[1] == 0  # worker 2 died, and it was the one that closed the group
    _, notice = groups.leave(0, 2)
    groups.leave(1, 2, notice)
    assert groups.values(0) == (pytest.approx((1 + 2 + 3) / 3), 1)
    assert groups.values(1) == (pytest.approx((1 + 2) / 3), 1)


def test_the_last_one_to_leave_closes_what_waits_for_nobody_else(groups):
    notices = [groups.push(0, worker)[1] for worker in (0, 1)]
    groups.push(1, 0, notices[0])
    groups.push(1, 1, notices[1])
    _, notice = groups.leave(0, 2)
    groups.leave(1, 2, notice)
    for ps in (0, 1):
        assert groups.values(ps) == (pytest.approx((1 + 2) / 2), 1)


def test_leaving_twice_is_leaving_once(groups):
    groups.push(0, 0)
    for _ in range(2):
        _, notice = groups.leave(0, 2)
    assert notice[1] == 0  # still waits for worker 1
    groups.push(0, 1)
    assert groups.values(0)[1] == 1


def test_a_worker_that_comes_back_is_waited_for_again(groups):
    groups.leave(0, 2)
    groups.join(0, 2)
    groups.push(0, 0)
    groups.push(0, 1)
    assert groups.values(0)[1] == 0
    groups.push(0, 2)
    assert groups.values(0) == (pytest.approx((1 + 2 + 3) / 3), 1)


def test_whoever_pushes_is_live(groups):
    groups.leave(0, 2)  # said to have left, wrongly
    groups.push(0, 2)
    groups.push(0, 0)
    assert groups.values(0)[1] == 0
    groups.push(0, 1)
    assert groups.values(0) == (pytest.approx((3 + 1 + 2) / 3), 1)


def test_a_dead_workers_gradient_stands_for_nobody_else(groups):
    groups.push(0, 2)
    groups.leave(0, 2)
    groups.push(0, 0)
    assert groups.values(0)[1] == 0  # worker 1 is live, so it is waited for
    groups.push(0, 1)
    assert groups.values(0) == (pytest.approx((3 + 1 + 2) / 3), 1)


@pytest.mark.parametrize("update", ["backup", "k_async"])
def test_released_workers_get_no_step(cluster, update):
    with Turnstile(cluster) as gate:
        run = GroupScript(cluster, gate, "dense", update=update, update_option=OPTIONS[update], max_steps=50)
        run.push(0, [])
        run.push(1, [])  # both wait for worker 2
        for call in gate.calls.values():
            call.stop.request(Interrupted(15))
        run.service().release()
        for worker in (0, 1):
            call = cluster.finish_call(gate.calls[worker])
            assert isinstance(call.error, Interrupted | PeerFailedError)
            assert RELEASED not in call.made[-1].global_steps and gate.steps(worker) == 0
        gate.open()
        cluster.finish_call(gate.calls[2])


OPTIONS = {"backup": ("backup_workers=0",), "k_async": ("k=3",)}


def broken_components(config):
    """Components whose data ends in an error at the first batch."""
    components = components_lib.load(config, NUM_WORKERS)
    train = components.dataset.train

    def broken(**kwargs):
        examples = train(**kwargs)
        return examples.map(lambda batch: batch | {"x": tf.debugging.check_numerics(batch["x"] / 0.0, "broken")})

    components.dataset.train = broken
    return components


@pytest.mark.parametrize(
    ("update", "options", "goes_on"),
    [
        ("backup", ("backup_workers=1",), True),
        ("backup", ("backup_workers=0",), False),
        ("k_sync", ("k=2",), True),
        ("k_async", ("k=3",), False),
        ("k_batch_sync", ("k=3",), True),
        ("softsync", (), True),
        ("ssp", ("staleness=1",), True),
    ],
)
def test_a_rule_goes_on_without_a_failed_worker_while_enough_are_left(own_cluster, update, options, goes_on):
    cluster = own_cluster
    config = config_of("Dense", "Rows", update=update, update_option=options, batch_size=4, max_steps=40)
    calls = [cluster.start(config, worker) for worker in (0, 1)]
    calls.append(cluster.start(config, 2, components=broken_components(config)))
    if not goes_on:  # what blocks a job that is to stop is let go by the process's main thread, which is missing here
        wait_until(lambda: calls[0].stop.requested)
        calls[0].stop.call("release")
    for call in calls:
        cluster.finish_call(call)
    assert isinstance(calls[2].error, tf.errors.InvalidArgumentError)
    if goes_on:
        assert [call.error for call in calls[:2]] == [None, None]
        assert calls[0].worker.final_values["global_step"] >= 40
        assert calls[0].worker.summary["workers"]["2"]["status"] == "failed"
    else:
        assert isinstance(calls[0].error, PeerFailedError)
        assert f"worker 2 failed, and update rule {update} needs all" in str(calls[0].error)


def test_a_worker_that_comes_late_takes_part(own_cluster):
    config = config_of(
        "Dense", "Rows", ["lengths=100000,100000,30"], update="k_sync", update_option=("k=2",), batch_size=4,
        max_steps=None, num_epochs=4000, join_wait_secs=0.5,
    )  # fmt: skip
    calls = [own_cluster.start(config, worker) for worker in (0, 1)]
    wait_until(lambda: all(call.made and len(call.made[-1].losses) > 20 for call in calls))
    late = own_cluster.finish(own_cluster.start(config, 2))
    assert late.code == 0, late.error
    assert late.progress.global_steps[0] > 20
    assert len(late.losses) == 30
    assert set(np.ravel(late.progress.staleness_values)) <= {0, -1}
    for call in calls:
        call.stop.request(Interrupted(15))
    calls[0].stop.call("release")
    for call in calls:
        assert isinstance(own_cluster.finish_call(call).error, Interrupted)


def test_nobody_is_left_waiting_when_max_steps_is_reached(own_cluster):
    # Two of three workers are in the last update, and the third one's gradient is of no group.
    config = config_of("Dense", "Rows", update="k_async", update_option=("k=2",), batch_size=4, max_steps=3)
    for _ in range(3):
        outcomes = own_cluster.run(config)
        assert [outcome.code for outcome in outcomes] == [0, 0, 0]
        assert outcomes[0].worker.final_values["global_step"] == 3

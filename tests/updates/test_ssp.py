"""`ssp`: each gradient is applied as it arrives, and at every step a worker's lead stays within the bound."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from models import layers
from ps_trainer.errors import Interrupted
from ps_trainer.runtime.server import session_config
from ps_trainer.training import components as components_lib
from ps_trainer.updates.base import RuleContext
from ps_trainer.updates.exclusive import initializers
from ps_trainer.updates.live_workers import Membership
from ps_trainer.updates.options import SspOptions
from ps_trainer.updates.ssp import Ssp, WorkerClocks
from tests.testing import oracles
from tests.testing import script as script_lib
from tests.testing.cluster import InProcessCluster, config_of, wait_until
from tests.testing.components import NUM_CLASSES
from tests.testing.repetitions import repetitions
from tests.testing.script import Turnstile
from tests.testing.two_ps import TwoPs

LEARNING_RATE = 0.5
NUM_WORKERS = 3


class WatchedSsp(Ssp):
    """Records (worker, clocks) in each step: the workers' clocks at the moment when the worker has finished waiting."""

    seen: list = []

    def build(self, store, gradients, context):
        step = super().build(store, gradients, context)
        (phase,) = step.phases
        (clocks,) = [variable for variable in step.state if variable.op.name == "ssp/steps"]
        with tf.device(store.ps_device(0)), tf.control_dependencies([phase.applied[0]]):
            now = clocks.read_value()
        with tf.device(store.worker_device):
            record = tf.numpy_function(lambda v: WatchedSsp.seen.append((context.worker_index, v.copy())), [now], [])
        return step._replace(phases=[phase._replace(targets=[*phase.targets, record])])


class Jittery:
    """Softmax regression whose steps take a seeded random time, which is now and then long."""

    def build(self, batch, training):
        delays = np.random.RandomState(3)
        lock = threading.Lock()

        def delay(worker):
            with lock:
                millis = delays.exponential(0.3) + (4.0 if delays.uniform() < 0.02 else 0.0)
            threading.Event().wait(millis / 1000)
            return worker

        with tf.control_dependencies([tf.numpy_function(delay, [batch["worker"]], tf.int64)]):
            x_BF = tf.identity(batch["x"])
        return layers.classifier_output(layers.dense(x_BF, NUM_CLASSES, "logits"), batch["label"])


def start(cluster, config, staleness, workers=range(3)):
    WatchedSsp.seen = []
    components = components_lib.load(config, 3)._replace(rule=WatchedSsp(SspOptions(staleness=staleness)))
    return [cluster.start(config, worker, components=components) for worker in workers]


@pytest.mark.parametrize(("staleness", "steps"), repetitions([(0, 300), (1, 2100), (3, 300)], first=2))
def test_no_worker_reads_further_ahead_than_the_bound_in_thousands_of_steps(cluster, staleness, steps):
    config = config_of("tests.updates.test_ssp:Jittery", "Rows", update="ssp", batch_size=4, max_steps=steps)
    outcomes = [cluster.finish(call) for call in start(cluster, config, staleness)]
    assert [outcome.code for outcome in outcomes] == [0, 0, 0]
    # No worker waits once global_step is max_steps; 2 of its updates may then not be on their workers' clocks yet.
    seen = [(worker, clocks) for worker, clocks in WatchedSsp.seen if clocks.sum() < steps - 2]
    assert len(seen) >= steps - 100
    ahead = np.array([clocks[worker] - clocks.min() for worker, clocks in seen])
    apart = np.array([clocks.max() - clocks.min() for _, clocks in seen])
    assert ahead.max() <= staleness
    assert apart.max() <= staleness + 1  # pushed, and waiting
    if staleness:
        assert ahead.max() == staleness  # the workers reach the bound
    made = sum(len(outcome.losses) for outcome in outcomes)
    assert outcomes[0].worker.final_values["global_step"] == made
    assert steps <= made <= steps + 2


# `EmbeddedLinear` has dense parts, and the conformance suite has packed parameters.
@pytest.mark.parametrize("model", repetitions(["Linear", "EmbeddedLinear"], first=1))
@pytest.mark.parametrize("layout", repetitions(["packed", "per_variable"], first=1))
def test_gradients_are_applied_one_by_one_as_in_async(cluster, model, layout):
    # Worker 0 is never more than 2 steps ahead of worker 2, so no worker waits.
    script = [0, 1, 0, 2, 1, 0, 2, 2, 1, 0]
    model_class = getattr(script_lib, model)
    wanted = oracles.async_sgd(
        {"Linear": oracles.linear, "EmbeddedLinear": oracles.embedded_linear}[model],
        script_lib.initial_values(model_class()),
        script,
        lambda worker, step: script_lib.worker_batch(worker, 3, 2, step),
        LEARNING_RATE,
    )
    config = config_of(
        f"tests.testing.script:{model}", "Rows", update="ssp", update_option=("staleness=2",), layout=layout,
        batch_size=2, learning_rate=LEARNING_RATE, max_steps=len(script) + 1,
    )  # fmt: skip
    with Turnstile(cluster) as gate:
        gate.start(config)
        for entry, values in enumerate(wanted.values):
            gate.play([script[entry]])
            now = gate.values()
            for name, value in values.items():
                np.testing.assert_allclose(now[name], value, rtol=0, atol=1e-6, err_msg=name)
        staleness = [np.array(call.made[-1].staleness_values) for call in gate.calls.values()]
        gate.open()
        for call in gate.calls.values():
            cluster.finish(call)
    for worker, vectors in enumerate(staleness):
        expected = np.repeat(np.array(wanted.staleness[worker])[:, None], cluster.num_ps, axis=1)
        np.testing.assert_array_equal(vectors, expected)


@pytest.mark.parametrize("staleness", repetitions([0, 2], first=1))
def test_a_worker_waits_until_the_slowest_continues_or_its_loss_is_reported(cluster, staleness):
    config = config_of("tests.testing.script:Linear", "Rows", update="ssp", batch_size=2, max_steps=100)
    services = []
    with Turnstile(cluster) as gate:
        components = components_lib.load(config, 3)._replace(rule=Ssp(SspOptions(staleness=staleness)))
        build = components.rule.build

        def noting(store, gradients, context):
            step = build(store, gradients, context)
            services.append(step.service)
            return step

        components.rule.build = noting
        gate.start(config, components=components)
        for worker in range(3):
            gate.wait_arrived(worker, 1)
        for worker in (0, 1):
            gate.play([worker] * staleness)
            gate.release(worker)  # its clock is s + 1 after this push, worker 2's is 0
        wait_until(lambda: gate.values()["global_step"] == 2 * (staleness + 1))
        assert [gate.steps(worker) for worker in (0, 1)] == [staleness, staleness]
        gate.play([2])
        for worker in (0, 1):
            gate.wait_steps(worker, staleness + 1)
        for worker in (0, 1):  # worker 2 stands at the gate, as if it were dead
            for _ in range(100):
                gate.release(worker)
        wait_until(lambda: gate.values()["global_step"] == 2 * (staleness + 2) + 1)  # each of the two pushed once more
        assert [gate.steps(worker) for worker in (0, 1)] == [staleness + 1, staleness + 1]
        (service,) = [service for service in services if service is not None]
        service.worker_left(2, 1)
        wait_until(lambda: gate.values()["global_step"] >= 100)
        assert gate.steps(2) == 1
        gate.open()
        for worker in (0, 1):
            assert cluster.finish(gate.calls[worker]).code == 0


def test_a_leave_of_a_replaced_process_removes_no_worker(cluster):
    with tf.Graph().as_default() as graph, graph.container("late-leave"), tf.variable_scope("", use_resource=True):
        store = TwoPs()
        contexts = [
            RuleContext(3, 2, is_chief=True, max_steps=None, applier=None, push=None, join_number=join_number)
            for join_number in (1, 2)
        ]
        processes = [WorkerClocks(store, contexts[0], 1)]
        with tf.variable_scope("", reuse=True):
            processes.append(WorkerClocks(store, contexts[1], 1))
        joins = [(clocks.change_member_op, clocks.join_feeds) for clocks in processes]
        leave, (membership,) = joins[0]
        (gone,) = [variable for variable in processes[0].state if variable.op.name == "ssp/gone"]
        init_op = tf.group(tf.global_variables_initializer(), *initializers())
        task = cluster.task("worker", 0)
        with tf.Session(f"grpc://{task.own_address}", config=session_config(task.device)) as session:
            session.run(init_op)
            for (op, feeds), number, is_gone in (
                (joins[0], 2, 1),  # the second process died before its join, after the first had ended
                (joins[1], 1, 0),  # a call to a ps task that was frozen while the worker was restarted
                (joins[1], 2, 1),
            ):
                session.run(op, feeds)
                session.run(leave, {membership: Membership(2, number, joins=0)})
                assert session.run(gone).tolist() == [0, 0, is_gone]


def test_a_late_worker_starts_at_the_slowest_workers_clock(cluster):
    config = config_of(
        "Dense", "Rows", ["lengths=4000,4000,20"], update="ssp", batch_size=4, max_steps=None, num_epochs=100,
        join_wait_secs=0.5,
    )  # fmt: skip
    calls = start(cluster, config, 1, workers=(0, 1))
    wait_until(lambda: len(WatchedSsp.seen) > 50)
    late = cluster.start(
        config, 2, components=components_lib.load(config, 3)._replace(rule=WatchedSsp(SspOptions(staleness=1)))
    )
    assert cluster.finish(late).code == 0
    own = [clocks for worker, clocks in WatchedSsp.seen if worker == 2]
    assert len(own) == 20
    assert own[0][2] > 20  # the others' steps, not its own
    for call in calls:
        call.stop.request(Interrupted(15))
        cluster.finish_call(call)


@pytest.mark.full  # the conformance suite has three workers, with one and with two ps tasks
def test_a_worker_that_ends_first_blocks_no_other_with_one_ps_task():
    config = config_of(
        "Dense", "Rows", ["lengths=5,30"], update="ssp", update_option=("staleness=1",), batch_size=4,
        max_steps=None, num_epochs=100,
    )  # fmt: skip
    with InProcessCluster(1, 2) as cluster:
        outcomes = cluster.run(config)
    assert [len(outcome.losses) for outcome in outcomes] == [5, 30]
    assert outcomes[0].worker.final_values["global_step"] == 35

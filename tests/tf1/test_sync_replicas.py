"""The drop-in `SyncReplicasOptimizer` against its definition in NumPy, on real servers."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer import tf1 as train
from ps_trainer.errors import OptionError
from tests.tf1.in_process import Task, counter, run

NUM_STEPS, RATE = 6, 0.1
ROWS, COLUMNS, NUM_ROWS = 5, 3, 7


class Adam:
    def __init__(self, shape):
        self.m, self.v, self.t = np.zeros(shape), np.zeros(shape), 0

    def __call__(self, value, gradient):
        self.t += 1
        self.m = 0.9 * self.m + 0.1 * gradient
        self.v = 0.999 * self.v + 0.001 * gradient**2
        rate = RATE * np.sqrt(1 - 0.999**self.t) / (1 - 0.9**self.t)
        return value - rate * self.m / (np.sqrt(self.v) + 1e-8)


class Momentum:
    def __init__(self, shape):
        self.a = np.zeros(shape)

    def __call__(self, value, gradient):
        # Sparse updates of TensorFlow touch only the rows of the gradient.
        rows = np.any(gradient != 0, axis=-1, keepdims=True) if gradient.ndim > 1 else np.array(True)
        self.a = np.where(rows, 0.9 * self.a + gradient, self.a)
        return np.where(rows, value - RATE * self.a, value)


def sgd(shape):
    return lambda value, gradient: value - RATE * gradient


OPTIMIZERS = {
    "sgd": (lambda: train.GradientDescentOptimizer(RATE), sgd),
    "momentum": (lambda: train.MomentumOptimizer(RATE, 0.9), Momentum),
    "adam": (lambda: train.AdamOptimizer(RATE), Adam),
}


def dense_gradient(worker, step):
    return np.random.RandomState(100 * worker + step).normal(size=4).astype(np.float32)


def sparse_gradient(worker, step):
    """Rows in any order, some of them twice, and values."""
    random = np.random.RandomState(1000 + 100 * worker + step)
    rows = random.randint(ROWS, size=NUM_ROWS)
    return rows, random.normal(size=(NUM_ROWS, COLUMNS)).astype(np.float32)


def expected(oracle, num_workers):
    dense, table = np.ones(4), np.ones((ROWS, COLUMNS))
    of_dense, of_table = oracle(dense.shape), oracle(table.shape)
    for step in range(NUM_STEPS):
        dense = of_dense(dense, np.mean([dense_gradient(w, step) for w in range(num_workers)], axis=0))
        total = np.zeros_like(table)
        for worker in range(num_workers):
            rows, values = sparse_gradient(worker, step)
            np.add.at(total, rows, values)
        table = of_table(table, total / num_workers)
    return dense, table


@pytest.mark.parametrize("num_ps", [1, 2])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "ref"])
def test_each_update_applies_the_average_of_one_gradient_of_each_worker(name, num_ps, use_resource):
    create, oracle = OPTIMIZERS[name]

    def script(task: Task):
        with task.device():
            step = train.get_or_create_global_step()
            dense = tf.get_variable("dense", initializer=tf.ones([4]), use_resource=use_resource)
            table = tf.get_variable("table", initializer=tf.ones([ROWS, COLUMNS]), use_resource=use_resource)
            of_dense = tf.placeholder(tf.float32, [4])
            rows, values = tf.placeholder(tf.int64, [NUM_ROWS]), tf.placeholder(tf.float32, [NUM_ROWS, COLUMNS])
            optimizer = train.SyncReplicasOptimizer(create(), 2, 2)
            pairs = [(of_dense, dense), (tf.IndexedSlices(values, rows, [ROWS, COLUMNS]), table)]
            train_op = optimizer.apply_gradients(pairs, step)
            hooks = [optimizer.make_session_run_hook(task.is_chief), train.StopAtStepHook(last_step=NUM_STEPS)]
        own, found, jitter = 0, [], np.random.RandomState(task.index)
        with train.MonitoredTrainingSession(task.server.target, task.is_chief, hooks=hooks) as session:
            while not session.should_stop():
                time.sleep(jitter.uniform(0, 0.02))
                given = sparse_gradient(task.index, own)
                session.run(train_op, {of_dense: dense_gradient(task.index, own), rows: given[0], values: given[1]})
                own += 1
                if own == NUM_STEPS:
                    raw = session._tf_sess()
                    found = raw.run([dense, table])
        return own, found

    results = run(script, num_ps=num_ps)
    assert [own for own, _ in results] == [NUM_STEPS, NUM_STEPS]
    dense, table = expected(oracle, 2)
    np.testing.assert_allclose(results[0][1][0], dense, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(results[0][1][1], table, rtol=1e-5, atol=1e-6)


def test_with_backup_workers_every_update_averages_and_no_worker_counts_twice(tmp_path):
    """Each worker's gradient is its own one-hot vector, so the variables tell whose gradients were in the updates."""
    num_workers, required, num_updates = 3, 2, 40

    def script(task: Task):
        random = np.random.RandomState(task.index)
        with task.device():
            step = train.get_or_create_global_step()
            dense = tf.get_variable("dense", initializer=tf.zeros([num_workers]))
            table = tf.get_variable("table", initializer=tf.zeros([num_workers, 1]))
            slices = tf.IndexedSlices(tf.ones([1, 1]), tf.constant([task.index], tf.int64), [num_workers, 1])
            optimizer = train.SyncReplicasOptimizer(train.GradientDescentOptimizer(-1.0), required, num_workers)
            train_op = optimizer.apply_gradients([(tf.one_hot(task.index, num_workers), dense), (slices, table)], step)
            hooks = [optimizer.make_session_run_hook(task.is_chief), train.StopAtStepHook(last_step=num_updates)]
        with train.MonitoredTrainingSession(
            task.server.target, task.is_chief, str(tmp_path), hooks=hooks, save_checkpoint_steps=1000
        ) as session:
            while not session.should_stop():
                time.sleep(random.uniform(0, 0.01) * (1 + 3 * (task.index == 2)))
                session.run(train_op)

    run(script, num_ps=2, num_workers=num_workers)
    last = train.load_checkpoint(str(tmp_path))
    num_made = int(last.get_tensor("global_step"))
    assert num_made >= num_updates
    for name in ("dense", "table"):
        shares = last.get_tensor(name).ravel()
        # An average of one-hot vectors adds 1 in all, and at most 1 / required to one worker.
        assert shares.sum() == pytest.approx(num_made, rel=1e-4), name
        assert shares.max() <= num_made / required * (1 + 1e-4), name
        assert shares.min() < num_made / num_workers, f"{name}: the slow worker was never late"


def test_surrounding_control_dependencies_hold_for_the_train_op_alone(tmp_path):
    """Batch norm's `UPDATE_OPS` often surround `minimize`. They need a batch, which the chief's update has not."""

    def script(task: Task):
        with task.device():
            step, weight, _ = counter(task)
            moving = tf.get_variable("moving", initializer=0.0, trainable=False)
            fed = tf.placeholder(tf.float32, [])
            optimizer = train.SyncReplicasOptimizer(train.GradientDescentOptimizer(1.0), 2, 2)
            with tf.control_dependencies([tf.assign_add(moving, fed, use_locking=True)]):
                train_op = optimizer.minimize(-tf.reduce_sum(weight), step)
            hooks = [optimizer.make_session_run_hook(task.is_chief), train.StopAtStepHook(last_step=NUM_STEPS)]
        with train.MonitoredTrainingSession(
            task.server.target, task.is_chief, str(tmp_path), hooks=hooks, save_summaries_steps=None
        ) as session:
            while not session.should_stop():
                session.run(train_op, {fed: 1.0})

    run(script)
    last = train.load_checkpoint(str(tmp_path))
    assert (last.get_tensor("global_step"), last.get_tensor("moving")) == (NUM_STEPS, 2 * NUM_STEPS)


def test_an_update_that_needs_a_placeholder_is_refused():
    def script(task: Task):
        step, weight, train_op = counter(task)
        with task.device():
            rate = tf.placeholder(tf.float32, [], name="rate")
            optimizer = train.SyncReplicasOptimizer(train.AdamOptimizer(rate * 2), 1, 1)
            with pytest.raises(OptionError, match="placeholder rate, and the chief .*exponential_decay"):
                optimizer.minimize(-tf.reduce_sum(weight), step)
        with train.MonitoredTrainingSession(task.server.target) as session:
            session.run(train_op)

    run(script, num_workers=1)


def test_more_gradients_than_workers_are_refused():
    with pytest.raises(OptionError, match="replicas_to_aggregate=3, total_num_replicas=2"):
        train.SyncReplicasOptimizer(train.GradientDescentOptimizer(0.1), 3, 2)


def test_gradients_without_a_server_are_refused():
    with tf.Graph().as_default():
        step = train.get_or_create_global_step()
        variable = tf.get_variable("v", [2])
        optimizer = train.SyncReplicasOptimizer(train.GradientDescentOptimizer(0.1), 2)
        with tf.device("/job:worker/task:77"), pytest.raises(OptionError, match="make this task's Server before"):
            optimizer.apply_gradients([(tf.ones([2]), variable)], step)


def test_another_number_of_workers_than_the_cluster_has_is_refused():
    def script(task: Task):
        with task.device():
            variable = tf.get_variable("v", [2])
            optimizer = train.SyncReplicasOptimizer(train.GradientDescentOptimizer(0.1), 3)
            with pytest.raises(OptionError, match="total_num_replicas=3, but the cluster has 1 workers"):
                optimizer.apply_gradients([(tf.ones([2]), variable)], train.get_or_create_global_step())
            train_op = variable.assign_add([1.0, 1.0])
        with train.MonitoredTrainingSession(task.server.target) as session:
            session.run(train_op)

    run(script, num_workers=1)

"""Moving averages that several workers update one after the other, in the order of their arrival."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from models import layers
from tests.testing.cluster import InProcessCluster, config_of, wait_until
from tests.testing.components import NUM_CLASSES
from tests.testing.repetitions import repetitions
from tests.testing.script import Turnstile, behind_gate, worker_batch

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

MOMENTUM, BATCH_SIZE, NUM_STEPS = 0.5, 4, 3


class Normed:
    """Softmax regression on "x" behind a batch norm, which follows the turnstile's gate."""

    def build(self, batch, training):
        (x_BF,) = behind_gate(batch, training, [batch["x"]])
        y_B11F = layers.batch_norm(x_BF[:, tf.newaxis, tf.newaxis], "bn", training=training, momentum=MOMENTUM)
        return layers.classifier_output(layers.dense(layers.flatten(y_B11F), NUM_CLASSES, "logits"), batch["label"])


@pytest.mark.parametrize("update", ["async", "sync"])
@pytest.mark.parametrize("num_workers", repetitions([1, 2, 4], every=3, first=1))
def test_averages_are_the_recursion_over_all_workers_batches_in_the_order_of_their_arrival(num_workers, update):
    lengths = ",".join([str(NUM_STEPS)] * num_workers)
    config = config_of(
        f"{__name__}:Normed", "Rows", [f"lengths={lengths}"], update=update, batch_size=BATCH_SIZE, num_epochs=100
    )
    mean, variance = 0.0, 1.0
    order = np.random.RandomState(0)
    with InProcessCluster(1, num_workers) as cluster, Turnstile(cluster) as gate:
        calls = gate.start(config)
        for step in range(NUM_STEPS):
            for worker in range(num_workers):
                gate.wait_arrived(worker, step + 1)  # all steps must have begun before an average is updated
            for worker in order.permutation(num_workers).tolist():
                before = gate.values()
                gate.release(worker)
                wait_until(lambda before=before: _has_moved(before, gate.values()))
                x = worker_batch(worker, num_workers, BATCH_SIZE, step)["x"]
                mean = MOMENTUM * mean + (1 - MOMENTUM) * x.mean(axis=0)
                variance = MOMENTUM * variance + (1 - MOMENTUM) * x.var(axis=0, ddof=1)
                now = gate.values()
                np.testing.assert_allclose(now["bn/moving_mean"], mean, rtol=1e-5, atol=1e-6)
                np.testing.assert_allclose(now["bn/moving_variance"], variance, rtol=1e-5, atol=1e-6)
        for call in calls:
            assert cluster.finish(call).error is None


def test_32_workers_that_begin_together_do_not_make_the_averages_diverge():
    num_workers, num_rounds, momentum = 32, 3, 0.9
    with tf.Graph().as_default():
        queues = [tf.FIFOQueue(1, [tf.float32], shapes=[[1, 1, 2, 1]]) for _ in range(num_workers)]
        value = tf.placeholder(tf.float32, [1, 1, 2, 1])
        arrive_ops = [queue.enqueue(value) for queue in queues]
        with tf.variable_scope("", reuse=tf.AUTO_REUSE, use_resource=True):
            for queue in queues:
                layers.batch_norm(queue.dequeue(), "bn", training=True, momentum=momentum)
        update_ops = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
        variables = {v.op.name: v for v in tf.global_variables() if "moving" in v.op.name}
        init_op = tf.global_variables_initializer()
        with tf.Session() as session:
            session.run(init_op)
            random = np.random.RandomState(1)
            mean, variance = 0.0, 1.0
            for _ in range(num_rounds):
                with ThreadPoolExecutor(1) as pool:
                    steps = pool.submit(session.run, update_ops)  # the steps of all workers begin
                    for worker in random.permutation(num_workers):
                        x = random.normal(5, 2, size=(1, 1, 2, 1)).astype(np.float32)
                        before = session.run(variables)
                        session.run(arrive_ops[worker], {value: x})
                        wait_until(lambda before=before: _has_moved(before, session.run(variables)))
                        mean = momentum * mean + (1 - momentum) * x.mean()
                        variance = momentum * variance + (1 - momentum) * x.var(ddof=1)
                    steps.result()
                now = session.run(variables)
                np.testing.assert_allclose(now["bn/moving_mean"], [mean], rtol=1e-5)
                np.testing.assert_allclose(now["bn/moving_variance"], [variance], rtol=1e-5)


def test_no_update_falls_between_read_and_write_of_another():
    num_workers, num_steps, size = 8, 25, 1_000_000  # large enough that reading, computing and writing take a while
    with tf.Graph().as_default():
        moving = tf.get_variable(
            "moving", [size], initializer=tf.zeros_initializer(), trainable=False, use_resource=True
        )
        update_op = layers.moving_average_update(moving, tf.ones([size]), 0.99)
        assert tf.get_collection(tf.GraphKeys.UPDATE_OPS) == [update_op]
        init_op = tf.global_variables_initializer()
        with tf.Session() as session, ThreadPoolExecutor(num_workers) as pool:
            session.run(init_op)
            for done in [pool.submit(session.run, update_op) for _ in range(num_workers * num_steps)]:
                done.result()
            np.testing.assert_allclose(session.run(moving), 1 - 0.99 ** (num_workers * num_steps), rtol=1e-4)


def _has_moved(before, now):
    return all(np.any(before[name] != now[name]) for name in ("bn/moving_mean", "bn/moving_variance"))

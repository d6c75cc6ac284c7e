"""Packed variables of a script: the same numbers, the same checkpoints, and a reason where they cannot be."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer import tf1 as train
from ps_trainer.errors import OptionError
from tests.testing.repetitions import repetitions
from tests.tf1.in_process import Task, run

LAYERS, UNITS = 2, 8


def network(x):
    """Variables by both functions of TensorFlow; `shared` is made once and read twice."""
    for i in range(LAYERS):
        initial = np.random.RandomState(i).normal(scale=0.4, size=[UNITS, UNITS]).astype(np.float32)
        w = tf.get_variable(f"w{i}", initializer=initial)
        b = tf.Variable(tf.zeros([UNITS]), name=f"b{i}")
        with tf.variable_scope("shared", reuse=i > 0):
            scale = tf.get_variable("scale", [], initializer=tf.ones_initializer())
        x = tf.tanh(scale * x @ w + b)
    return tf.reduce_mean((x - 0.5) ** 2) + 1e-3 * tf.nn.l2_loss(w)


def trained(num_steps, *, is_packed, create, checkpoint_dir=None, is_sync=False, layouts=None):
    def script(task: Task):
        with task.device():
            step = train.get_or_create_global_step()
            x = tf.constant(np.random.RandomState(9 + task.index).normal(size=[4, UNITS]), tf.float32)
            with train.packed() if is_packed else contextlib.nullcontext() as layout:
                loss = network(x)
            optimizer, hooks = create(), []
            if is_sync:
                optimizer = train.SyncReplicasOptimizer(optimizer, 2)
                hooks = [optimizer.make_session_run_hook(task.is_chief)]
            train_op = optimizer.minimize(loss, global_step=step)
        losses = []
        with train.MonitoredTrainingSession(
            task.server.target, task.is_chief, checkpoint_dir, hooks=hooks, save_checkpoint_steps=10_000
        ) as session:
            for _ in range(num_steps):
                losses.append(session.run([loss, train_op])[0])
        if layouts is not None:
            layouts.append(layout)
        return losses

    return script


@pytest.mark.parametrize("num_ps", [1, 2])
@pytest.mark.parametrize(
    "create",
    [
        lambda: train.GradientDescentOptimizer(0.5),
        lambda: train.MomentumOptimizer(0.1, 0.9),
        lambda: train.AdamOptimizer(0.01),
    ],
    ids=["sgd", "momentum", "adam"],
)
def test_losses_equal_those_of_separate_variables_to_the_last_bit(create, num_ps):
    found = [
        run(trained(8, is_packed=is_packed, create=create), num_ps=num_ps, num_workers=1)[0]
        for is_packed in (False, True)
    ]
    assert found[0] == found[1]
    assert found[0][-1] < found[0][0]


def test_synchronous_updates_of_packed_variables_are_the_same():
    found = [
        run(trained(8, is_packed=is_packed, create=lambda: train.AdamOptimizer(0.01), is_sync=True))
        for is_packed in (False, True)
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


@pytest.mark.parametrize("packed_first", repetitions([True, False]))
def test_a_checkpoint_goes_from_one_form_to_the_other_with_its_slots(tmp_path, packed_first):
    create = lambda: train.AdamOptimizer(0.01)  # noqa: E731
    whole = run(trained(8, is_packed=False, create=create), num_workers=1)[0]
    first = trained(4, is_packed=packed_first, create=create, checkpoint_dir=str(tmp_path))
    then = trained(4, is_packed=not packed_first, create=create, checkpoint_dir=str(tmp_path))
    losses = run(first, num_ps=2, num_workers=1)[0] + run(then, num_ps=1, num_workers=1)[0]
    assert losses == whole
    names = set(tf.train.load_checkpoint(str(tmp_path)).get_variable_to_shape_map())
    expected = {f"{kind}{i}" for kind in "wb" for i in range(LAYERS)} | {"shared/scale"}
    slots = {f"{name}/{slot}" for name in expected for slot in ("Adam", "Adam_1")}
    assert names == expected | slots | {"global_step", "beta1_power", "beta2_power"}


def test_staleness_counts_the_updates_between_pull_and_apply():
    """Worker 0 stands between its pull and its update until worker 1 has made three steps."""

    def script(task: Task):
        with task.device():
            step = train.get_or_create_global_step()
            with tf.device("/job:ps/task:0"):
                has_pulled = tf.FIFOQueue(1, [tf.float32], [()], shared_name="has_pulled")
                may_push = tf.FIFOQueue(1, [tf.float32], [()], shared_name="may_push")
                open_gate = may_push.enqueue(1.0)
                wait_for_pull = has_pulled.dequeue()
            with train.packed() as layout:
                loss = network(tf.ones([2, UNITS]))
            if task.is_chief:
                with tf.control_dependencies([has_pulled.enqueue(loss)]):
                    loss *= may_push.dequeue()
            train_op = train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
        with train.MonitoredTrainingSession(task.server.target, task.is_chief) as session:
            if task.is_chief:
                session.run(train_op)
            else:
                session.run(wait_for_pull)
                for _ in range(3):
                    session.run(train_op)
                session.run(open_gate)
        return layout.staleness

    assert run(script) == [[3], [0, 0, 0]]


def test_alone_no_gradient_is_stale():
    layouts = []
    run(
        trained(20, is_packed=True, create=lambda: train.GradientDescentOptimizer(0.1), layouts=layouts),
        num_workers=1,
    )
    assert layouts[0].staleness == [0] * 20


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            lambda: tf.nn.embedding_lookup(tf.get_variable("table", [9, 2]), [1, 2]),
            "table cannot be packed: it is read by rows",
        ),
        (lambda: tf.get_variable("w", [2]).assign([1.0, 2.0]), "w cannot be packed: something asks for its assign"),
        (lambda: tf.get_variable("w", [2]).initialized_value(), "something asks for its initialized_value"),
        (lambda: tf.constant(1.0), "makes no trainable variable"),
    ],
    ids=["lookup", "assign", "initialized_value", "nothing"],
)
def test_who_needs_the_variable_itself_is_told_so(body, reason):
    def script(task: Task):
        with task.device(), pytest.raises(OptionError, match=reason), train.packed():
            body()
        with tf.Graph().as_default(), task.device():
            train.get_or_create_global_step()
            with train.MonitoredTrainingSession(task.server.target):
                pass

    run(script, num_workers=1)


def test_a_function_that_builds_the_model_can_be_decorated():
    def script(task: Task):
        with task.device():
            step = train.get_or_create_global_step()
            loss = train.packed()(network)(tf.ones([2, UNITS]))
            train_op = train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
        assert [v.op.name for v in tf.trainable_variables()] == ["packed/float32/ps_0"]
        with train.MonitoredTrainingSession(task.server.target) as session:
            session.run(train_op)
            return session.run(step)

    assert run(script, num_workers=1) == [1]

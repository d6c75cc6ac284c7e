"""Uses that scripts make of the drop-in `MonitoredTrainingSession`, on real servers in this process."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer import tf1 as train
from ps_trainer.checkpoints import reader, writer
from ps_trainer.errors import CheckpointError, OptionError, RunError
from tests.tf1.in_process import Task, run


def counter(task: Task):
    """A model: `weight` [2] starts at 1 and loses 1 per step."""
    with task.device():
        step = train.get_or_create_global_step()
        weight = tf.get_variable("weight", initializer=tf.ones([2]))
        train_op = train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(weight), global_step=step)
    return step, weight, train_op


def trained(last_step, checkpoint_dir=None, **arguments):
    """A script that trains the counter up to a step; it returns the last weight that it has seen."""

    def script(task: Task):
        step, weight, train_op = counter(task)
        hooks = [train.StopAtStepHook(last_step=last_step)]
        seen = None
        with train.MonitoredTrainingSession(
            task.server.target, task.is_chief, checkpoint_dir, hooks=hooks, **arguments
        ) as session:
            while not session.should_stop():
                session.run(train_op)
                seen = session.run(weight) if not session.should_stop() else seen
        return seen

    return script


def test_a_scaffolds_init_fn_sees_the_scripts_graph_and_session():
    graphs = []

    def script(task: Task):
        step, weight, train_op = counter(task)
        given = tf.placeholder(tf.float32, [2])
        assign = weight.assign(given)

        def init_fn(scaffold, session):
            graphs.append(tf.get_default_graph() is weight.graph)
            session.run(assign, {given: [5.0, 7.0]})

        scaffold = train.Scaffold(init_fn=init_fn)
        with train.MonitoredTrainingSession(task.server.target, task.is_chief, scaffold=scaffold) as session:
            return session.run(weight)

    for weight in run(script):
        np.testing.assert_array_equal(weight, [5, 7])
    assert graphs == [True], "only the chief initialises"


def test_hooks_with_arguments_chief_only_hooks_and_step_functions():
    calls = []

    class Hook(tf.train.SessionRunHook):
        def __init__(self, name):
            self.name = name

        def begin(self):
            calls.append(f"{self.name} begins")

        def end(self, session):
            session.run(tf.train.get_global_step(session.graph))
            calls.append(f"{self.name} ends")

    def script(task: Task):
        step, _, train_op = counter(task)
        with train.MonitoredTrainingSession(
            task.server.target, task.is_chief, hooks=[Hook(f"worker {task.index}")], chief_only_hooks=[Hook("chief")]
        ) as session:
            return session.run_step_fn(lambda step_context: step_context.run_with_hooks([train_op, step])[1])

    assert len(run(script)) == 2
    assert sorted(calls) == sorted(
        f"{name} {what}" for name in ("chief", "worker 0", "worker 1") for what in ("begins", "ends")
    )


def test_several_train_ops_queue_runners_summaries_and_local_variables(tmp_path):
    def script(task: Task):
        with task.device():
            step = train.get_or_create_global_step()
            first = tf.get_variable("first", initializer=tf.zeros([2]))
            second = tf.Variable([0.0, 0.0], name="second")
            tf.summary.scalar("total", tf.reduce_sum(first))
            own = tf.get_local_variable("own", initializer=tf.constant(float(task.index)))
            with tf.device(f"/job:worker/task:{task.index}"):
                numbers = train.input_producer(tf.constant([1.0]), shuffle=False).dequeue()
            ops = [
                train.GradientDescentOptimizer(-numbers).minimize(tf.reduce_sum(first), global_step=step),
                train.AdamOptimizer(0.1).minimize(tf.reduce_sum(second)),
            ]
        with train.MonitoredTrainingSession(
            task.server.target, task.is_chief, str(tmp_path), save_summaries_steps=1, stop_grace_period_secs=5
        ) as session:
            for _ in range(5):
                session.run(ops[0])
                session.run(ops[1])
            assert session.run(own) in (0.0, 1.0)
        return True

    assert run(script) == [True, True]
    last = tf.train.load_checkpoint(str(tmp_path))
    assert last.get_tensor("global_step") == 10
    np.testing.assert_array_equal(last.get_tensor("first"), [10, 10])
    events = [e for path in tmp_path.glob("events*") for e in tf.train.summary_iterator(str(path))]
    assert {"total"} <= {value.tag for event in events for value in event.summary.value}


def test_the_end_of_the_data_ends_the_script_well():
    def script(task: Task):
        _, _, train_op = counter(task)
        with tf.device(f"/job:worker/task:{task.index}"):
            item = tf.data.make_one_shot_iterator(tf.data.Dataset.range(7)).get_next()
        count = 0
        with train.MonitoredTrainingSession(task.server.target, task.is_chief) as session:
            while not session.should_stop():
                session.run([train_op, item])
                count += 1
        return count

    assert run(script) == [7, 7]


def test_a_checkpoint_goes_on_in_another_run_and_is_one_of_tensorflows_own(tmp_path):
    folder = str(tmp_path)
    run(trained(10, folder, save_checkpoint_steps=4))
    with tf.Graph().as_default(), tf.Session() as session:
        step, weight = train.get_or_create_global_step(), tf.get_variable("weight", [2])
        saver = tf.train.Saver()
        saver.restore(session, tf.train.latest_checkpoint(folder))
        reached, value = session.run([step, weight])
        assert reached >= 10
        np.testing.assert_array_equal(value, 1.0 - np.full(2, reached))
        session.run([step.assign(1000), weight.assign([500.0, 500.0])])
        # In TensorFlow's asynchronous jobs the name is older than the content.
        saver.save(session, f"{folder}/model.ckpt", global_step=998)
    run(trained(1003, folder, save_checkpoint_steps=4))
    last = tf.train.load_checkpoint(folder)
    reached = last.get_tensor("global_step")
    assert reached >= 1003
    np.testing.assert_array_equal(last.get_tensor("weight"), np.full(2, 500.0 - (reached - 1000)))


def test_a_checkpoint_of_local_which_has_no_powers_of_adam_goes_on(tmp_path):
    def script(num_steps):
        def train_on(task: Task):
            with task.device():
                step = train.get_or_create_global_step()
                weight = tf.get_variable("weight", initializer=tf.ones([3]))
                loss = tf.reduce_sum(weight * tf.constant([1.0, 2.0, 3.0]) * tf.cast(step + 1, tf.float32))
                train_op = train.AdamOptimizer(0.1).minimize(loss, global_step=step)
            with train.MonitoredTrainingSession(task.server.target, True, str(tmp_path)) as session:
                for _ in range(num_steps):
                    session.run(train_op)
                return session.run(weight)

        return train_on

    (expected,) = run(script(9), num_workers=1)
    for path in tmp_path.iterdir():
        path.unlink()
    run(script(5), num_workers=1)
    saved = reader.Checkpoint(tmp_path / "model.ckpt-5")
    # As `local` writes it.
    writer.write(tmp_path, 5, {name: saved[name] for name in saved if "power" not in name})
    assert "beta1_power" not in reader.Checkpoint(tmp_path / "model.ckpt-5")
    (found,) = run(script(4), num_workers=1)
    # 1 - 0.999 ** 6 in float32 has five digits, and TensorFlow rounds the power at each step. A power of step 0 would
    # change the first digit.
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_a_damaged_checkpoint_is_passed_over_and_where_all_are_damaged_nothing_begins(tmp_path):
    run(trained(10, str(tmp_path), save_checkpoint_steps=2), num_workers=1)
    data = sorted(tmp_path.glob("model.ckpt-*.data-*"), key=lambda path: int(path.name.split("-")[1].split(".")[0]))
    data[-1].write_bytes(data[-1].read_bytes()[:-3])
    seen = run(trained(11, str(tmp_path)), num_workers=1)
    assert seen is not None
    for path in tmp_path.glob("model.ckpt-*.data-*"):
        path.write_bytes(b"")
    with pytest.raises(CheckpointError, match="none can be loaded"):
        run(trained(12, str(tmp_path)), num_workers=1)


def test_each_checkpoint_has_the_name_of_the_step_that_it_holds_although_others_make_steps_during_a_save(tmp_path):
    run(trained(100, str(tmp_path), save_checkpoint_steps=1), num_ps=2, num_workers=3)
    names = sorted(tmp_path.glob("model.ckpt-*.index"))
    assert len(names) == 5
    assert not list(tmp_path.glob("*-of-00002")), "a ps task has written its own file"
    for path in names:
        held = tf.train.load_checkpoint(str(path.with_suffix(""))).get_tensor("global_step")
        assert path.name == f"model.ckpt-{held}.index"


def test_old_checkpoints_are_removed_with_their_graphs(tmp_path):
    run(trained(20, str(tmp_path), save_checkpoint_steps=1), num_workers=1)
    kinds = {suffix: len(list(tmp_path.glob(f"model.ckpt-*{suffix}"))) for suffix in (".index", ".meta")}
    assert kinds == {".index": 5, ".meta": 5}
    assert not list(tmp_path.glob("writing-*"))


def test_a_script_whose_variables_lie_on_no_ps_task_is_refused():
    def script(task: Task):
        step = train.get_or_create_global_step()
        with train.MonitoredTrainingSession(task.server.target) as session:
            session.run(step)

    with pytest.raises(OptionError, match="no variable lies on a ps task"):
        run(script, num_workers=1)


def test_is_chief_must_agree_with_the_cluster():
    def script(task: Task):
        counter(task)
        with pytest.raises(OptionError, match="is_chief=False on worker-0, but the chief of its cluster is worker-0"):
            train.MonitoredTrainingSession(task.server.target, is_chief=False)
        with train.MonitoredTrainingSession(task.server.target):
            pass

    run(script, num_workers=1)


def test_an_error_of_the_script_reaches_it_unchanged_and_the_ps_says_that_a_worker_failed():
    def script(task: Task):
        _, _, train_op = counter(task)
        with train.MonitoredTrainingSession(task.server.target) as session:
            session.run(train_op)
            raise ZeroDivisionError("of the script")

    with pytest.raises(ZeroDivisionError, match="of the script"):
        run(script, num_workers=1)


def test_a_worker_that_comes_when_the_run_is_over_has_nothing_to_do(tmp_path):
    chief_is_done = threading.Event()

    def script(task: Task):
        if not task.is_chief:
            assert chief_is_done.wait(100)
        result = trained(5)(task)
        chief_is_done.set()
        return result

    train.configure(join_wait_secs=0.0)
    try:
        chief, late = run(script)
    finally:
        train.configure(join_wait_secs=30.0)
    assert late is None
    assert chief is not None


@pytest.mark.parametrize("create", [lambda: "", lambda: train.Server.create_local_server().target], ids=["", "local"])
def test_a_script_without_a_cluster_uses_tensorflows_own_session(create):
    with tf.Graph().as_default():
        add = train.get_or_create_global_step().assign_add(1)
        with train.MonitoredTrainingSession(create()) as session:
            assert session.run(add) == 1


def test_a_saver_hook_of_the_script_takes_the_default_saver(tmp_path):
    def script(task: Task):
        _, _, train_op = counter(task)
        hooks = [train.CheckpointSaverHook(str(tmp_path), save_steps=1000)]
        with train.MonitoredTrainingSession(task.server.target, task.is_chief, chief_only_hooks=hooks) as session:
            session.run(train_op)

    run(script, num_workers=1)
    assert train.load_checkpoint(str(tmp_path)).get_tensor("global_step") == 1


def test_jobs_one_after_the_other_in_one_process_leave_no_threads_of_a_job():
    run(trained(5), num_workers=1)
    run(trained(5), num_workers=1)
    left = [thread.name for thread in threading.enumerate() if thread.name in ("job", "watcher", "sync-replicas")]
    assert not left


def test_a_worker_with_another_model_is_refused():
    def script(task: Task):
        with task.device():
            step = train.get_or_create_global_step()
            weight = tf.get_variable("weight", [2 + task.index])
            train_op = train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(weight), global_step=step)
        with train.MonitoredTrainingSession(task.server.target, task.is_chief) as session:
            session.run(train_op)

    with pytest.raises((OptionError, RunError), match="worker"):
        run(script)

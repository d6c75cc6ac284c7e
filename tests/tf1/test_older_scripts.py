"""Habits of scripts from 2016 to 2018: sessions looked up by hand, saves after the end, `sys.exit`, own creators."""

from __future__ import annotations

import concurrent.futures
import contextlib
import signal
import sys
import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer import tf1 as train
from ps_trainer.cluster import network
from ps_trainer.cluster.ports import pick_free_ports
from ps_trainer.errors import ClusterConfigError, Interrupted, OptionError, PeerFailedError, StartTimeoutError
from ps_trainer.tf1 import saving, signals
from ps_trainer.tf1.run_state import Containers
from tests.tf1.in_process import Task, counter, run, start


def test_a_script_finds_tensorflows_session_by_its_name_and_saves_by_hand(tmp_path):
    def script(task: Task):
        _, _, train_op = counter(task)
        saver = train.Saver()
        with train.MonitoredTrainingSession(task.server.target, task.is_chief) as session:
            session.run(train_op)
            found = session
            while type(found).__name__ != "Session":
                found = found._sess
            return saver.save(found, str(tmp_path / "hand"))

    (path,) = run(script, num_workers=1)
    np.testing.assert_array_equal(tf.train.load_checkpoint(path).get_tensor("weight"), [1, 1])


def test_queue_runners_may_be_started_again_by_the_script():
    def script(task: Task):
        _, _, train_op = counter(task)
        with train.MonitoredTrainingSession(task.server.target, task.is_chief) as session:
            threads = train.start_queue_runners(sess=session, coord=train.Coordinator())
            session.run(train_op)
        return threads

    assert run(script, num_workers=1) == [[]], "the session has started them already"


def test_the_chief_saves_after_its_supervisor_was_stopped(tmp_path):
    def script(task: Task):
        step, _, train_op = counter(task)
        saver = train.Saver()
        supervisor = train.Supervisor(is_chief=task.is_chief, logdir=str(tmp_path / "log"), saver=saver)
        session = supervisor.prepare_or_wait_for_session(task.server.target)
        for _ in range(5):
            session.run(train_op)
        supervisor.stop()
        if task.is_chief:
            saver.save(session, str(tmp_path / "after" / "model.ckpt"), global_step=step)
            session.close()
        return True

    assert run(script) == [True, True]
    last = tf.train.load_checkpoint(str(tmp_path / "after"))
    assert last.get_tensor("global_step") == 10
    np.testing.assert_array_equal(last.get_tensor("weight"), [10, 10])


def test_a_supervisors_threads_work_where_eager_execution_was_not_disabled(tmp_path):
    logged = threading.Event()

    def script(task: Task):
        _, _, train_op = counter(task)
        supervisor = train.Supervisor(logdir=str(tmp_path))
        add = supervisor.summary_writer.add_session_log
        # The thread that saves logs its checkpoint with the step, which it reads from the session.
        supervisor.summary_writer.add_session_log = lambda log, step=None: (
            add(log, step),
            step is not None and logged.set(),
        )
        with supervisor.managed_session(task.server.target) as session:
            session.run(train_op)
            while not logged.wait(0.1):
                assert not supervisor.should_stop()

    run(script, num_workers=1)


@pytest.mark.parametrize("code", [None, 0])
def test_sys_exit_without_an_error_is_a_good_end_and_the_last_checkpoint_has_every_step(tmp_path, code):
    def script(task: Task):
        _, _, train_op = counter(task)
        with (
            pytest.raises(SystemExit),
            train.MonitoredTrainingSession(task.server.target, task.is_chief, str(tmp_path)) as session,
        ):
            for _ in range(4):
                session.run(train_op)
            sys.exit(code)
        return True

    assert run(script) == [True, True]
    assert tf.train.load_checkpoint(str(tmp_path)).get_tensor("global_step") == 8


@pytest.mark.parametrize("with_supervisor", [False, True])
def test_sys_exit_with_an_error_is_a_failure_of_the_worker(tmp_path, with_supervisor):
    def script(task: Task):
        _, _, train_op = counter(task)
        if with_supervisor:
            supervisor = train.Supervisor(logdir=str(tmp_path), save_summaries_secs=0)
            context = supervisor.managed_session(task.server.target)
        else:
            context = train.MonitoredTrainingSession(task.server.target)
        with context as session:
            session.run(train_op)
            sys.exit(3)

    job = start(script, num_workers=1)
    with pytest.raises(SystemExit):
        job.workers[0].end()
    with pytest.raises(PeerFailedError, match="a worker failed"):
        job.ps[0].end()


def test_a_worker_that_swallows_the_failure_of_the_job_has_failed():
    def script(task: Task):
        _, _, train_op = counter(task)
        supervisor = train.Supervisor(is_chief=task.is_chief, logdir=None)
        with supervisor.managed_session(task.server.target) as session:
            session.run(train_op)
            if task.is_chief:
                raise ZeroDivisionError("of the chief")
            with contextlib.suppress(PeerFailedError):
                while True:
                    session.run(train_op)

    job = start(script)
    with pytest.raises(ZeroDivisionError):
        job.workers[0].end()
    with pytest.raises(PeerFailedError, match="of the chief"):
        job.workers[1].end()


def test_a_second_session_after_a_good_end_is_refused_at_once():
    def script(task: Task):
        _, _, train_op = counter(task)
        with train.MonitoredTrainingSession(task.server.target) as session:
            session.run(train_op)
        with pytest.raises(OptionError, match="make all steps in one session"):
            train.MonitoredTrainingSession(task.server.target)
        task.server.join()  # returns, since the worker's part is over

    run(script, num_workers=1)


def test_sessions_of_creators_take_part_in_the_job(tmp_path):
    def script(task: Task):
        step, weight, train_op = counter(task)
        scaffold = train.Scaffold()
        hooks = [train.StopAtStepHook(last_step=50)]
        if task.is_chief:
            creator = train.ChiefSessionCreator(scaffold, task.server.target, checkpoint_dir=str(tmp_path))
            hooks.append(train.CheckpointSaverHook(str(tmp_path), save_steps=1000, scaffold=scaffold))
        else:
            creator = train.WorkerSessionCreator(scaffold, task.server.target)
        made = 0
        with train.MonitoredSession(creator, hooks) as session:
            assert isinstance(session, tf.train.MonitoredSession)
            while not session.should_stop():
                session.run(train_op)
                made += 1
        return made

    made = sum(run(script))
    last = tf.train.load_checkpoint(str(tmp_path))
    assert last.get_tensor("global_step") == made >= 50
    np.testing.assert_array_equal(last.get_tensor("weight"), [made, made])


def test_sessions_that_cannot_take_part_in_a_job_are_refused():
    def script(task: Task):
        _, _, train_op = counter(task)
        target = task.server.target
        with pytest.raises(OptionError, match="write MonitoredTrainingSession"):
            train.SingularMonitoredSession(master=target)
        with pytest.raises(OptionError, match="but the chief of its cluster is worker-0"):
            train.WorkerSessionCreator(master=target)
        with train.MonitoredTrainingSession(target) as session:
            session.run(train_op)

    run(script, num_workers=1)


def test_the_target_of_a_server_of_tensorflows_own_is_refused():
    server = tf.train.Server.create_local_server()
    with tf.Graph().as_default():
        train.get_or_create_global_step()
        with pytest.raises(OptionError, match=r"write train\.Server in place of tf\.train\.Server"):
            train.MonitoredTrainingSession(server.target)
        with pytest.raises(OptionError, match=r"write train\.Server"):
            train.Supervisor(logdir="").prepare_or_wait_for_session(server.target)


def test_monitored_session_without_a_cluster_is_tensorflows_own():
    with tf.Graph().as_default():
        add = train.get_or_create_global_step().assign_add(1)
        with train.MonitoredSession() as session:
            assert session.run(add) == 1
            assert not session.should_stop()


def test_a_graph_moves_from_the_container_of_one_run_to_that_of_the_next():
    with tf.Graph().as_default() as graph, tf.device("/job:ps/task:0"):
        variable = tf.get_variable("v", [2], use_resource=True)
        for run_id in ("first", "second"):
            Containers(graph).put_into(run_id)
            assert variable.handle.op.get_attr("container") == run_id.encode()


def test_ctrl_c_is_a_keyboard_interrupt_too():
    error = signals.interruption(signal.SIGINT)
    assert isinstance(error, KeyboardInterrupt)
    assert isinstance(error, Interrupted)
    assert error.exit_code == 130
    assert not isinstance(signals.interruption(signal.SIGTERM), KeyboardInterrupt)


def test_a_ps_task_without_workers_names_the_variable_of_its_deadline(monkeypatch):
    monkeypatch.setenv("PS_TRAINER_START_TIMEOUT_SECS", "0.5")
    hosts = [f"localhost:{port}" for port in pick_free_ports(2)]
    server = train.Server({"ps": hosts[:1], "worker": hosts[1:]}, "ps", 0)
    with pytest.raises(StartTimeoutError, match="or raise PS_TRAINER_START_TIMEOUT_SECS"):
        server.join()


def test_a_second_server_on_the_same_port_is_refused_with_the_fix():
    hosts = [f"localhost:{port}" for port in pick_free_ports(2)]
    cluster = {"ps": hosts[:1], "worker": hosts[1:]}
    train.Server(cluster, "worker", 0)
    with pytest.raises(ClusterConfigError, match="give each job other ports, or restart the notebook's kernel"):
        train.Server(cluster, "worker", 0)


def test_the_warning_about_open_ports_names_what_a_script_can_set(monkeypatch, caplog):
    monkeypatch.setattr(network, "interfaces", lambda: {"eth0": ["10.0.0.1"]})
    hosts = [f"localhost:{port}" for port in pick_free_ports(2)]
    train.Server({"ps": hosts[:1], "worker": hosts[1:]}, "ps", 0)
    assert "state how with train.configure(isolation=…)" in caplog.text


def test_a_save_in_another_thread_writes_the_graph_of_the_session(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("v", initializer=tf.zeros([2]))
        saver = train.Saver()
        session.run(tf.global_variables_initializer())
        arguments = (saver, session, str(tmp_path / "model.ckpt"), 1)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            pool.submit(saving.save, *arguments, write_meta_graph=True).result()
    with tf.Graph().as_default():
        tf.train.import_meta_graph(str(tmp_path / "model.ckpt-1.meta"))
        assert [variable.op.name for variable in tf.global_variables()] == ["v"]


def test_an_error_does_not_end_an_interactive_console(monkeypatch, capsys):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    error = OptionError("of the console")
    sys.excepthook(OptionError, error, None)
    assert "OptionError: of the console" in capsys.readouterr().err

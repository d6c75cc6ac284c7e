"""Habits of older TF1 scripts, as real processes: no `else` after `server.join()`, sessions that nobody closes."""

from __future__ import annotations

import signal

import tensorflow.compat.v1 as tf

from tests.testing.processes import END_SECS, LOST_SECS, START_SECS
from tests.testing.user_scripts import ScriptRun

NO_RECOVERY = {"PS_TRAINER_RECOVER_TIMEOUT_SECS": "0"}

OLDER = """
import argparse, threading, time
import tensorflow.compat.v1 as tf
from ps_trainer import tf1 as train
tf.disable_v2_behavior()
parser = argparse.ArgumentParser()
for name in ("ps_hosts", "worker_hosts", "job_name", "log", "kind"):
    parser.add_argument(f"--{name}")
parser.add_argument("--task_index", type=int)
parser.add_argument("--last", type=int, default=60)
flags = parser.parse_args()
cluster = {"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")}
server = train.Server(cluster, flags.job_name, flags.task_index)
is_chief = flags.task_index == 0


def build():
    with tf.device(train.replica_device_setter(worker_device=f"/job:worker/task:{flags.task_index}", cluster=cluster)):
        step = train.get_or_create_global_step()
        weight = tf.get_variable("weight", initializer=tf.zeros([2]))
        optimizer = train.SyncReplicasOptimizer(train.GradientDescentOptimizer(1.0), 2, 2)
        return step, optimizer, optimizer.minimize(-tf.reduce_sum(weight), global_step=step)


def loop(session, step, train_op):
    made = 0
    while True:
        time.sleep(0.02)  # a test that waits leaves the cores to other tests
        reached = session.run([train_op, step])[1]
        made += 1
        if made == 50:
            print("50 local steps")
        if reached >= flags.last:
            return


def supervised():
    step, optimizer, train_op = build()
    init = optimizer.chief_init_op if is_chief else optimizer.local_step_init_op
    supervisor = train.Supervisor(is_chief=is_chief, logdir=flags.log, local_init_op=init)
    loop(supervisor.prepare_or_wait_for_session(server.target), step, train_op)  # never stopped, never closed


def monitored():
    with tf.Graph().as_default():
        step, optimizer, train_op = build()
        hooks = [optimizer.make_session_run_hook(is_chief)]
        with train.MonitoredTrainingSession(server.target, is_chief, flags.log, hooks=hooks) as session:
            loop(session, step, train_op)


if flags.job_name == "ps":
    server.join()  # without an else: TensorFlow's never returns
if flags.kind == "never_stopped":
    supervised()
elif flags.kind == "catches":
    try:
        monitored()
    except KeyboardInterrupt:
        print("stopped by the user")
        raise SystemExit(7)
else:
    thread = threading.Thread(target=monitored)
    thread.start()
    thread.join()
"""


def older(tmp_path, kind, *flags):
    script = tmp_path / "older.py"
    script.write_text(OLDER)
    return ScriptRun(tmp_path, script, f"--kind={kind}", f"--log={tmp_path}/log", *flags, env=NO_RECOVERY)


def test_a_synchronous_script_that_never_stops_its_supervisor_ends_in_every_task(tmp_path):
    with older(tmp_path, "never_stopped") as run:
        ps, workers = run.start_all()
        assert [task.wait(START_SECS) for task in (*workers, *ps)] == [0, 0, 0]


def test_a_script_that_catches_keyboard_interrupt_sees_ctrl_c(tmp_path):
    with older(tmp_path, "catches", "--last=1000000000") as run:
        (ps,), (chief, worker) = run.start_all()
        chief.wait_for_log("50 local steps")
        chief.send(signal.SIGINT)
        assert chief.wait(END_SECS) == 7
        assert "stopped by the user" in chief.log
        assert [task.wait(LOST_SECS) for task in (worker, ps)] == [1, 1]


def test_sigterm_to_a_session_of_a_thread_saves_a_checkpoint(tmp_path):
    with older(tmp_path, "thread", "--last=1000000000") as run:
        (ps,), (chief, worker) = run.start_all()
        chief.wait_for_log("50 local steps")
        chief.send(signal.SIGTERM)
        assert [task.wait(LOST_SECS) for task in (chief, worker, ps)] == [128 + signal.SIGTERM, 1, 1]
        assert tf.train.load_checkpoint(str(tmp_path / "log")).get_tensor("global_step") >= 50


def test_a_failure_in_a_thread_of_the_script_gives_the_exit_code(tmp_path):
    with older(tmp_path, "thread", "--last=1000000000") as run:
        (ps,), (chief, worker) = run.start_all()
        chief.wait_for_log("50 local steps")
        worker.kill()
        assert [task.wait(LOST_SECS) for task in (chief, ps)] == [1, 1]
        assert "error: worker 1" in chief.log

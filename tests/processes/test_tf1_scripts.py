"""TF1 scripts with one import changed, as real processes: how they end, and what they say."""

from __future__ import annotations

import difflib
import re
import signal

import pytest
import tensorflow.compat.v1 as tf

from tests.testing.processes import END_SECS, LOST_SECS, ROOT, START_SECS
from tests.testing.repetitions import repetitions
from tests.testing.user_scripts import ScriptRun

SCRIPTS = ROOT / "examples" / "tf1_scripts"
TUTORIAL = SCRIPTS / "tutorial.py"
WORD2VEC = SCRIPTS / "word2vec.py"
ESTIMATOR = SCRIPTS / "estimator.py"
ENDLESS = "--train_steps=1000000000"
NO_RECOVERY = {"PS_TRAINER_RECOVER_TIMEOUT_SECS": "0"}


def own_steps(task):
    return int(re.search(r"is done: (\d+) local steps", task.log)[1])


def started(task):
    task.wait_for_log("1 local steps")


@pytest.mark.parametrize("name", ["tutorial", "word2vec", "estimator"])
def test_only_the_import_differs_from_the_script_of_2017(name):
    before, after = ((SCRIPTS / f"{file}.py").read_text().splitlines() for file in (f"{name}_2017", name))
    changed = [
        line
        for line in difflib.unified_diff(before, after, lineterm="", n=0)
        if not line.startswith(("---", "+++", "@@"))
    ]
    assert changed == ["-from tensorflow.compat.v1 import train", "+from ps_trainer import tf1 as train"]


def test_an_asynchronous_script_ends_in_every_task_and_its_last_checkpoint_has_every_step(tmp_path):
    with ScriptRun(tmp_path, TUTORIAL, "--train_steps=100", f"--checkpoint_dir={tmp_path}/checkpoints") as run:
        ps, workers = run.start_all()
        assert [task.wait(START_SECS) for task in (*workers, *ps)] == [0, 0, 0]
        made = sum(own_steps(task) for task in workers)
        last = tf.train.load_checkpoint(run.checkpoint_dir)
        assert last.get_tensor("global_step") == made >= 100


# tests/tf1/test_sync_replicas.py counts the steps of each worker, and the restart below has a late worker as well.
@pytest.mark.full
@pytest.mark.parametrize("late_secs", [0, 4])
def test_a_synchronous_script_makes_each_update_of_one_step_of_each_worker(tmp_path, late_secs):
    with ScriptRun(tmp_path, TUTORIAL, "--train_steps=60", "--sync_replicas") as run:
        ps, chief = run.start("ps"), run.start("worker", 0)
        if late_secs:
            chief.wait_for_log("waiting for worker-1|worker-0: initialised")
        worker = run.start("worker", 1)
        assert [task.wait(START_SECS) for task in (chief, worker, ps)] == [0, 0, 0]
        assert [own_steps(task) for task in (chief, worker)] == [60, 60]


@pytest.mark.full  # tests/tf1/test_sync_replicas.py has backup workers, and all of its tasks end
def test_with_a_backup_worker_the_script_ends_too(tmp_path):
    with ScriptRun(tmp_path, TUTORIAL, "--train_steps=60", "--sync_replicas", "--replicas_to_aggregate=1") as run:
        ps, workers = run.start_all()
        assert [task.wait(START_SECS) for task in (*workers, *ps)] == [0, 0, 0]


@pytest.mark.parametrize("flags", repetitions([[], ["--sync_replicas"]], first=1))
def test_word2vec_with_a_supervisor_ends(tmp_path, flags):
    with ScriptRun(tmp_path, WORD2VEC, "--train_steps=40", f"--checkpoint_dir={tmp_path}/checkpoints", *flags) as run:
        ps, workers = run.start_all()
        assert [task.wait(START_SECS) for task in (*workers, *ps)] == [0, 0, 0]
        assert tf.train.load_checkpoint(run.checkpoint_dir).get_tensor("global_step") >= 40


def test_a_program_in_the_form_of_an_estimator_ends(tmp_path):
    flags = ("--train_steps=100", f"--model_dir={tmp_path}/checkpoints")
    with ScriptRun(tmp_path, ESTIMATOR, *flags, by_flags=False) as run:
        ps, workers = run.start_all()
        assert [task.wait(START_SECS) for task in (*workers, *ps)] == [0, 0, 0]
        assert tf.train.load_checkpoint(run.checkpoint_dir).get_tensor("global_step") >= 100


def test_word2vec_ends_when_a_worker_is_killed(tmp_path):
    with ScriptRun(tmp_path, WORD2VEC, ENDLESS, "--sync_replicas", env=NO_RECOVERY, is_slow=True) as run:
        (ps,), (chief, worker) = run.start_all()
        worker.wait_for_log("10 local steps")
        worker.kill()
        assert [task.wait(LOST_SECS) for task in (chief, ps)] == [1, 1]
        assert "worker 1" in chief.log


def test_word2vec_saves_at_sigterm(tmp_path):
    checkpoints = f"--checkpoint_dir={tmp_path}/checkpoints"
    with ScriptRun(tmp_path, WORD2VEC, ENDLESS, checkpoints, is_slow=True) as run:
        (ps,), (chief, worker) = run.start_all()
        for task in (chief, worker):
            task.wait_for_log("10 local steps")
        chief.send(signal.SIGTERM)
        assert [task.wait(LOST_SECS) for task in (chief, worker, ps)] == [128 + signal.SIGTERM, 1, 1]
        assert tf.train.load_checkpoint(run.checkpoint_dir).get_tensor("global_step") >= 10


@pytest.mark.full  # the tutorial's script has the same session and loses its ps task below; both forms end above
def test_a_program_in_the_form_of_an_estimator_ends_when_the_ps_is_killed(tmp_path):
    flags = (ENDLESS, f"--model_dir={tmp_path}/checkpoints")
    with ScriptRun(tmp_path, ESTIMATOR, *flags, env=NO_RECOVERY, by_flags=False, is_slow=True) as run:
        (ps,), workers = run.start_all()
        for worker in workers:
            worker.wait_for_log("10 local steps")
        ps.kill()
        assert [task.wait(LOST_SECS) for task in workers] == [1, 1]
        assert all("ps-0" in task.log and "Traceback" not in task.log for task in workers)


def test_a_program_in_the_form_of_an_estimator_goes_on_without_a_frozen_worker(tmp_path):
    flags = ("--train_steps=160", f"--model_dir={tmp_path}/checkpoints")
    env = {**NO_RECOVERY, "PS_TRAINER_HEARTBEAT_TIMEOUT_SECS": "4"}
    with ScriptRun(tmp_path, ESTIMATOR, *flags, env=env, by_flags=False, is_slow=True) as run:
        (ps,), (chief, worker) = run.start_all()
        worker.wait_for_log("10 local steps")
        worker.freeze()
        assert [task.wait(LOST_SECS) for task in (chief, ps)] == [0, 1]
        assert tf.train.load_checkpoint(run.checkpoint_dir).get_tensor("global_step") >= 160


def test_a_missing_ps_is_named_with_its_address_after_the_deadline(tmp_path):
    with ScriptRun(tmp_path, TUTORIAL, env={"PS_TRAINER_START_TIMEOUT_SECS": "3"}) as run:
        worker = run.start("worker", 0)
        assert worker.wait(START_SECS) == 1
        assert f"ps-0 ({run.ps_hosts[0]})" in worker.log
        assert "PS_TRAINER_START_TIMEOUT_SECS" in worker.log
        assert "Traceback" not in worker.log


def test_a_missing_worker_is_named_in_sync(tmp_path):
    env = {"PS_TRAINER_START_TIMEOUT_SECS": "6", "PS_TRAINER_JOIN_WAIT_SECS": "1"}
    with ScriptRun(tmp_path, TUTORIAL, "--sync_replicas", env=env) as run:
        ps, chief = run.start("ps"), run.start("worker", 0)
        assert chief.wait(START_SECS) == 1
        assert "needs 2 workers; worker-1 did not join within" in chief.log
        assert ps.wait(LOST_SECS) == 1


@pytest.mark.parametrize("flags", repetitions([[], ["--sync_replicas"]], first=1))
def test_a_killed_ps_ends_the_job_and_the_same_command_goes_on_from_its_checkpoint(tmp_path, flags):
    checkpoints = f"--checkpoint_dir={tmp_path}/checkpoints"
    with ScriptRun(
        tmp_path, TUTORIAL, ENDLESS, checkpoints, "--save_steps=5", *flags, env=NO_RECOVERY, is_slow=True
    ) as run:
        (ps,), workers = run.start_all()
        for worker in workers:
            worker.wait_for_log("10 local steps")
        ps.kill()
        for worker in workers:
            assert worker.wait(LOST_SECS) == 1
            assert "ps-0" in worker.log
            assert "Traceback" not in worker.log
        saved = int(tf.train.load_checkpoint(run.checkpoint_dir).get_tensor("global_step"))
        assert saved >= 5
        again = [run.start("ps"), *(run.start("worker", i, f"--train_steps={saved + 20}") for i in range(2))]
        assert [task.wait(START_SECS) for task in again] == [0, 0, 0]
        assert f"restored {run.checkpoint_dir}/model.ckpt-{saved}, at step {saved}" in again[1].log


@pytest.mark.parametrize(
    "flags", repetitions([["--train_steps=120"], ["--train_steps=60", "--sync_replicas"]], first=1)
)
def test_a_restarted_ps_lets_the_workers_go_on_in_their_processes(tmp_path, flags):
    checkpoints = f"--checkpoint_dir={tmp_path}/checkpoints"
    with ScriptRun(tmp_path, TUTORIAL, checkpoints, "--save_steps=5", *flags, is_slow=True) as run:
        (ps,), workers = run.start_all()
        for worker in workers:
            worker.wait_for_log("10 local steps")
        ps.kill()
        ps = run.start("ps")
        for worker in workers:
            assert worker.wait(START_SECS) == 0, worker.log
        assert ps.wait(START_SECS) == 0
        assert len(re.findall("worker-0: restored", workers[0].log)) == 1


def test_a_killed_worker_ends_a_synchronous_job_that_does_not_wait_for_it(tmp_path):
    with ScriptRun(tmp_path, TUTORIAL, ENDLESS, "--sync_replicas", env=NO_RECOVERY, is_slow=True) as run:
        (ps,), (chief, worker) = run.start_all()
        started(chief)
        started(worker)
        worker.kill()
        assert chief.wait(LOST_SECS) == 1
        assert "worker 1" in chief.log
        assert ps.wait(LOST_SECS) == 1


def test_a_late_and_a_restarted_worker_join_the_synchronous_steps(tmp_path):
    with ScriptRun(tmp_path, TUTORIAL, "--train_steps=60", "--sync_replicas", is_slow=True) as run:
        ps, chief = run.start("ps"), run.start("worker", 0)
        chief.wait_for_log("waiting for worker-1|worker-0: initialised")
        worker = run.start("worker", 1)
        worker.wait_for_log("10 local steps")
        worker.kill()
        worker = run.start("worker", 1)
        assert [task.wait(START_SECS) for task in (chief, worker, ps)] == [0, 0, 0]
        assert own_steps(chief) == 60


def test_a_frozen_worker_ends_a_synchronous_job_after_the_deadlines(tmp_path):
    env = {**NO_RECOVERY, "PS_TRAINER_HEARTBEAT_TIMEOUT_SECS": "4"}
    with ScriptRun(tmp_path, TUTORIAL, ENDLESS, "--sync_replicas", env=env, is_slow=True) as run:
        (ps,), (chief, worker) = run.start_all()
        started(chief)
        worker.freeze()
        assert chief.wait(LOST_SECS) == 1
        assert "worker 1" in chief.log
        assert ps.wait(LOST_SECS) == 1


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("flags", [[], ["--sync_replicas"]], ids=["async", "sync"])
def test_a_signal_to_the_chief_saves_a_checkpoint_and_ends_the_job(tmp_path, flags, signum):
    checkpoints = f"--checkpoint_dir={tmp_path}/checkpoints"
    with ScriptRun(tmp_path, TUTORIAL, ENDLESS, checkpoints, "--save_steps=1000000", *flags, is_slow=True) as run:
        (ps,), (chief, worker) = run.start_all()
        for task in (chief, worker):
            task.wait_for_log("10 local steps")
        chief.send(signum)
        assert chief.wait(END_SECS) == 128 + signum
        assert worker.wait(LOST_SECS) == 1
        assert f"worker 0 interrupted: ended by {signal.Signals(signum).name}" in worker.log
        assert ps.wait(LOST_SECS) != 0
        assert tf.train.load_checkpoint(run.checkpoint_dir).get_tensor("global_step") >= 10


def test_a_chief_that_was_killed_attaches_to_the_state_on_the_ps_tasks(tmp_path):
    with ScriptRun(tmp_path, TUTORIAL, "--train_steps=300", is_slow=True) as run:
        (ps,), (chief, worker) = run.start_all()
        worker.wait_for_log("10 local steps")
        chief.kill()
        chief = run.start("worker", 0)
        assert [task.wait(START_SECS) for task in (chief, worker, ps)] == [0, 0, 0]
        attached = re.search(r"attached to the run on the ps tasks, at step (\d+)", chief.log)
        assert int(attached[1]) >= 10


@pytest.mark.parametrize("chief_is_first", [False, True])
def test_a_script_that_forgets_the_hook_of_the_optimizer_is_refused_before_any_step(tmp_path, chief_is_first):
    script = tmp_path / "forgets.py"
    script.write_text(
        TUTORIAL.read_text().replace(
            "            hooks.append(optimizer.make_session_run_hook(is_chief))\n", "            pass\n"
        )
    )

    def check(worker):
        assert worker.wait(START_SECS) == 2
        assert "make_session_run_hook" in worker.log

    with ScriptRun(tmp_path, script, "--sync_replicas", env={"PS_TRAINER_START_TIMEOUT_SECS": "10"}) as run:
        chief = run.start("worker", 0)
        if chief_is_first:  # then no ps task serves that could hear how it ended
            check(chief)
        ps = run.start("ps")
        check(run.start("worker", 1))
        check(chief)
        assert ps.wait(LOST_SECS) == 1

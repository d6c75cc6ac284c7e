"""Two tasks lost together, or a ps task lost while the chief makes no step, under rules with a chief's service.

Such a rule continues without a lost worker: the chief's service reports the loss to every ps task, one of which may be
lost as well.
"""

from __future__ import annotations

import signal

import pytest

from tests.processes.hooks import FOLDER_VARIABLE
from tests.testing.processes import END_SECS, LOST_SECS, START_SECS, UNLIMITED, wait_until
from tests.testing.repetitions import repetitions

FAILED = 1
# (update rule, its option, workers)
RULES = [
    ("backup", "backup_workers=1", 2),
    ("k_sync", "k=2", 3),
    ("local_sgd", "period=4", 3),
]
STEP_MS = 200.0  # the others still have steps to make when the restarted worker is back
SOFT = ("--recover_timeout_secs=90", "--save_checkpoint_secs=1", "--learning_rate=0.02")


def start(create_run, update, option, *flags, num_workers=3, **kwargs):
    """A run of 2 ps tasks and some workers under a rule; returns the run and its tasks."""
    flags = (*SOFT, f"--update={update}", f"--update_option={option}", *flags)
    run = create_run(num_ps=2, num_workers=num_workers, flags=flags, **kwargs)
    return run, *run.start_all()


def kill(task):
    task.send(signal.SIGKILL)
    assert task.wait(END_SECS) == -signal.SIGKILL


def assert_done(run, *tasks):
    """Asserts that all tasks end with 0 and that the summary reports every worker as done."""
    assert [task.wait(START_SECS) for task in tasks] == [0] * len(tasks)
    assert {worker["status"] for worker in run.summary()["workers"].values()} == {"done"}
    assert run.checkpoint_step() == run.summary()["global_step"]


@pytest.mark.parametrize(("update", "option", "num_workers"), repetitions(RULES, every=3))
def test_a_ps_task_and_a_worker_that_are_killed_together(create_run, update, option, num_workers):
    flags = ("--max_steps=60",)
    run, ps_0, ps_1, *workers = start(create_run, update, option, *flags, num_workers=num_workers, step_ms=STEP_MS)
    run.wait_for_step(10)
    ps_1.send(signal.SIGKILL)
    workers[-1].send(signal.SIGKILL)
    workers[0].wait_for_log("waiting up to 90 s for it to rejoin", LOST_SECS)
    ps_1, workers[-1] = run.start_ps(1), run.start_worker(num_workers - 1)
    assert_done(run, ps_0, ps_1, *workers)


# The test above continues under such a rule after both losses; the test below notices the freeze.
@pytest.mark.full
@pytest.mark.parametrize(("update", "option", "num_workers"), RULES)
def test_a_ps_task_that_is_frozen_while_a_worker_is_killed_is_noticed_and_waited_for(
    create_run, update, option, num_workers
):
    flags = ("--max_steps=60", "--heartbeat_timeout_secs=4")
    run, ps_0, ps_1, *workers = start(create_run, update, option, *flags, num_workers=num_workers, step_ms=STEP_MS)
    run.wait_for_step(10)
    ps_1.freeze()
    kill(workers[-1])
    for task in workers[:-1]:
        task.wait_for_log(r"ps-1 \(localhost:\d+\) has not answered for \d+ s", LOST_SECS)
    ps_1.thaw()
    workers[-1] = run.start_worker(num_workers - 1)
    assert_done(run, ps_0, ps_1, *workers)


def test_a_ps_task_that_stays_frozen_while_a_worker_is_killed_ends_the_run_in_time(create_run):
    """The limit is the heartbeat and recovery timeouts, the 8 s in which a task leaves, and some slack."""
    run = create_run(num_ps=2, flags=("--recover_timeout_secs=5", "--heartbeat_timeout_secs=4"))
    ps_0, ps_1, chief, worker = run.start_all(UNLIMITED, "--update=backup", "--update_option=backup_workers=1")
    run.wait_for_step(10)
    ps_1.freeze()
    kill(worker)
    assert chief.wait(LOST_SECS) == FAILED
    assert "ps-1" in chief.log
    assert ps_0.wait(LOST_SECS) == FAILED


class TestWhileTheChief:
    """A ps task is killed while the chief makes no step, so another worker notices the loss first."""

    # In the test below the other worker notices the loss as well; `test_moments.py` kills a ps task in this wait.
    @pytest.mark.full
    @pytest.mark.parametrize("killed", [0, 1])
    def test_waits_for_the_others_at_the_end(self, create_run, killed):
        """Worker 1 is done and its process has ended, so the run rolls back to the last checkpoint without it."""
        slow = "--straggler=det:mean_ms=6000,worker=2"
        run, *tasks = start(create_run, "k_sync", "k=2", "--max_steps=30", "--save_checkpoint_steps=5", slow)
        tasks[2].wait_for_log("waiting for worker (1, )?2")
        assert tasks[3].wait(END_SECS) == 0
        kill(tasks[killed])
        tasks[2].wait_for_log("waiting up to 90 s for it to rejoin", LOST_SECS)
        tasks[killed] = run.start_ps(killed)
        assert_done(run, *tasks)
        assert run.checkpoint_step() >= 30

    @pytest.mark.parametrize("killed", repetitions([0, 1]))
    def test_evaluates_at_the_end(self, create_run, tmp_path, killed):
        run, *tasks = self.held(create_run, tmp_path, "HoldEvaluation", "--max_steps=10")
        kill(tasks[killed])
        (tmp_path / "hold").unlink()
        others = [task for index, task in enumerate(tasks) if index != killed]
        assert_done(run, *others)

    def held(self, create_run, tmp_path, hook, *flags, **kwargs):
        """A run of two workers whose chief is held up by a hook."""
        (tmp_path / "hold").touch()
        run, *tasks = start(
            create_run, "backup", "backup_workers=1", *flags, f"--hook=tests.processes.hooks:{hook}",
            env={FOLDER_VARIABLE: str(tmp_path)}, num_workers=2, **kwargs,
        )  # fmt: skip
        wait_until((tmp_path / "held").exists, START_SECS, "the chief is not held up")
        return run, *tasks

from __future__ import annotations

import os
import signal
import sys

import pytest

from ps_trainer.errors import RunError
from ps_trainer.launch.process import TaskProcess
from tests.launch import fakes


@pytest.fixture
def start(tmp_path):
    started = []

    def start_one(script, **kwargs):
        task = TaskProcess(
            job_name="worker",
            task_index=3,
            command=[sys.executable, "-S", "-E", "-c", script],
            log_path=tmp_path / "worker-3.log",
            **kwargs,
        )
        task.start()
        started.append(task)
        return task

    yield start_one
    for task in started:
        task.kill()
        fakes.wait_until(lambda task=task: task.poll() is not None, "the killed task")


def finish(task):
    fakes.wait_until(lambda: task.poll() is not None, "the task's end")
    return task.exit_code


def wait_for_line(task, line):
    fakes.wait_until(lambda: line in task.log_tail(9), f"{line!r} in the log")


@pytest.mark.parametrize(
    "script, exit_code, words",
    [
        ("", 0, "done"),
        ("raise SystemExit(3)", 3, "failed (exit 3)"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV, "killed (SIGSEGV)"),
        ("import os; os.kill(os.getpid(), 15)", -signal.SIGTERM, "killed (SIGTERM)"),
    ],
)
def test_describes_how_it_ended(start, script, exit_code, words):
    task = start(script)
    assert finish(task) == exit_code
    assert task.outcome() == words
    assert not task.is_running


def test_a_task_asked_to_end_is_stopped_not_failed(start):
    task = start("import time; print('up', flush=True); time.sleep(60)")
    wait_for_line(task, "up")
    task.terminate()
    assert finish(task) == -signal.SIGTERM
    assert task.outcome() == "stopped"


@pytest.mark.parametrize("is_announced, words", [(True, "stopped"), (False, "failed (exit 143)")])
def test_a_task_whose_end_is_announced_is_stopped_when_it_ends_by_itself(start, is_announced, words):
    task = start(
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(143)); print('up', flush=True); time.sleep(60)"
    )
    wait_for_line(task, "up")
    if is_announced:
        task.announce_end()
    task.send(signal.SIGTERM)
    assert finish(task) == 128 + signal.SIGTERM
    assert task.outcome() == words


def test_an_announcement_does_not_change_how_a_task_has_ended(start):
    task = start("raise SystemExit(143)")
    finish(task)
    task.announce_end()
    assert task.outcome() == "failed (exit 143)"


def test_runs_in_a_session_of_its_own_without_input(start):
    task = start("import os, sys; print(os.getsid(0) == os.getpid(), sys.stdin.read() == '')")
    finish(task)
    assert task.log_tail(1) == ["True True"]


def test_output_and_errors_go_to_the_log_after_that_of_an_earlier_run(start, tmp_path):
    finish(start("print('first')"))
    task = start("import sys; print('second', flush=True); print('third', file=sys.stderr)")
    finish(task)
    assert task.log_tail(25) == ["second", "third"]
    lines = (tmp_path / "worker-3.log").read_text().splitlines()
    assert lines[0] == "first"
    assert "new run" in lines[2]


def test_environment_is_the_given_one(start):
    task = start("import os; print(os.environ['ONLY'])", env={"ONLY": "this"})
    finish(task)
    assert task.log_tail(1) == ["this"]


def test_kill_ends_a_task_that_ignores_sigterm(start):
    task = start(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    wait_for_line(task, "up")
    task.terminate()
    assert task.poll() is None
    task.kill()
    assert finish(task) == -signal.SIGKILL
    assert task.outcome() == "stopped (SIGKILL)"


@pytest.mark.parametrize("ending", ["raise SystemExit(0)", "import os; os.kill(os.getpid(), 9)"])
def test_grandchildren_in_its_group_end_with_it(start, ending):
    sleeper = f"subprocess.Popen([{sys.executable!r}, '-S', '-c', 'import time; time.sleep(600)'])"
    task = start(f"import subprocess\nprint({sleeper}.pid, flush=True)\n{ending}")
    finish(task)
    pid = int(task.log_tail(1)[0])
    fakes.wait_until(lambda: not fakes.is_alive(pid), "the grandchild's end")


def test_signals_after_the_end_reach_no_process(start, monkeypatch):
    task = start("")
    finish(task)
    monkeypatch.setattr(os, "kill", None)
    monkeypatch.setattr(os, "killpg", None)
    task.terminate()
    task.kill()
    assert task.outcome() == "done"


def test_elapsed_time_stops_at_the_end(start):
    now = [100.0]
    task = start("import time; print('up', flush=True); time.sleep(60)", time_fn=lambda: now[0])
    now[0] = 107.0
    assert task.elapsed_secs == 107.0 - 100.0
    task.kill()
    finish(task)
    now[0] = 200.0
    assert task.elapsed_secs == 107.0 - 100.0


def test_a_program_that_does_not_exist_is_named(tmp_path):
    task = TaskProcess(job_name="ps", task_index=0, command=["/no/such/program"], log_path=tmp_path / "ps-0.log")
    with pytest.raises(RunError, match="ps-0: cannot start /no/such/program"):
        task.start()
    assert not task.is_running
    assert task.outcome() == "not started"


def test_a_log_that_cannot_be_written_is_named(tmp_path):
    task = TaskProcess(job_name="ps", task_index=0, command=["true"], log_path=tmp_path / "none" / "ps-0.log")
    with pytest.raises(RunError, match="none/ps-0.log"):
        task.start()

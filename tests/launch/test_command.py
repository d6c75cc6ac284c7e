"""A local cluster as a child process: how it ends, and what is left of it."""

from __future__ import annotations

import sys

import pytest

from ps_trainer.errors import RunError
from ps_trainer.launch import command


@pytest.fixture
def launcher(monkeypatch):
    """Puts a small program in the place of the launcher; returns the flags it was given."""
    given = []

    def use(program):
        def made(flags):
            given.append(list(flags))
            return [sys.executable, "-c", program]

        monkeypatch.setattr(command, "local_command", made)
        return given

    return use


def test_the_output_is_kept_and_the_time_told(launcher, tmp_path):
    given = launcher("print('step 1'); import sys; print('step 2', file=sys.stderr)")
    secs = command.run_local(["--max_steps=2"], tmp_path / "new" / "logdir", 60)
    assert 0 < secs < 60
    assert given == [["--max_steps=2", f"--logdir={tmp_path / 'new' / 'logdir'}"]]
    assert set((tmp_path / "new" / "logdir" / "output.txt").read_text().split("\n")) == {"step 1", "step 2", ""}


def test_a_failed_run_tells_the_end_of_its_output(launcher, tmp_path):
    launcher("print(*range(100), 'last', sep='\\n'); raise SystemExit(3)")
    with pytest.raises(RunError, match=r"exit code 3\n--- the end of .*output.txt\n(.*\n)*last") as caught:
        command.run_local([], tmp_path, 60)
    assert len(str(caught.value).splitlines()) == 2 + 40


def test_a_slow_run_is_ended(launcher, tmp_path):
    launcher("import time; print('begun', flush=True); time.sleep(600)")
    with pytest.raises(RunError, match="not done after 0.5 s"):
        command.run_local([], tmp_path, 0.5)


def test_an_interrupted_wait_ends_the_launcher(launcher, tmp_path, monkeypatch):
    launcher("import time; time.sleep(600)")
    started = []
    popen = command.subprocess.Popen

    def start(*args, **kwargs):
        started.append(popen(*args, **kwargs))
        wait = started[0].wait
        monkeypatch.setattr(started[0], "wait", lambda secs: interrupt() if secs == 99 else wait(secs))
        return started[0]

    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(command.subprocess, "Popen", start)
    with pytest.raises(KeyboardInterrupt):
        command.run_local([], tmp_path, 99)
    assert started[0].poll() is not None


def test_the_environment_has_no_gpu_and_no_proxy(launcher, tmp_path):
    launcher("import os; print(os.environ['CUDA_VISIBLE_DEVICES'] == '', 'http_proxy' in os.environ, os.environ['A'])")
    command.run_local([], tmp_path, 60, environ={"CUDA_VISIBLE_DEVICES": "0", "http_proxy": "x", "A": "b"})
    assert (tmp_path / "output.txt").read_text() == "True False b\n"


def test_the_command_is_what_one_types():
    assert command.local_command(["--num_ps=1"])[1:] == ["-m", "ps_trainer", "local", "--num_ps=1", "--plain"]

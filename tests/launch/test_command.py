"""A local cluster as a child process: its output, its end, and its leftovers."""

from __future__ import annotations

import json
import pathlib
import sys

import pytest

from ps_trainer.errors import RunError
from ps_trainer.launch import command
from ps_trainer.launch.forkserver import ForkServer


@pytest.fixture
def launcher(monkeypatch):
    """Puts a small program in the place of the launcher; returns the flags that the launcher was given."""
    given = []

    def use(program):
        def made(flags):
            given.append(list(flags))
            return [sys.executable, "-c", program]

        monkeypatch.setattr(command, "local_command", made)
        return given

    return use


def test_the_output_and_the_run_time_are_returned(launcher, tmp_path):
    given = launcher("print('step 1'); import sys; print('step 2', file=sys.stderr)")
    secs = command.run_local(["--max_steps=2"], tmp_path / "new" / "logdir", 60)
    assert 0 < secs < 60
    assert given == [["--max_steps=2", f"--logdir={tmp_path / 'new' / 'logdir'}"]]
    assert set((tmp_path / "new" / "logdir" / "output.txt").read_text().split("\n")) == {"step 1", "step 2", ""}


def test_a_failed_run_shows_the_end_of_its_output(launcher, tmp_path):
    launcher("print(*range(100), 'last', sep='\\n'); raise SystemExit(3)")
    with pytest.raises(RunError, match=r"exit code 3\n--- the end of .*output.txt\n(.*\n)*last") as caught:
        command.run_local([], tmp_path, 60)
    assert len(str(caught.value).splitlines()) == 2 + 40


def test_a_slow_run_is_ended(launcher, tmp_path):
    launcher("import time; print('begun', flush=True); time.sleep(600)")
    with pytest.raises(RunError, match="not finished after 0.5 s"):
        command.run_local([], tmp_path, 0.5)


def test_an_interrupted_wait_ends_the_launcher(launcher, tmp_path, monkeypatch):
    launcher("import time; time.sleep(600)")
    tasks = []

    def interrupt(secs):
        monkeypatch.undo()
        raise KeyboardInterrupt

    class Noted(command.TaskProcess):
        def start(self):
            super().start()
            tasks.append(self)

    monkeypatch.setattr(command, "TaskProcess", Noted)
    monkeypatch.setattr(command.time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        command.run_local([], tmp_path, 99)
    assert tasks[0].outcome() == "stopped"


def test_the_environment_has_no_gpu_and_no_proxy(launcher, tmp_path):
    launcher("import os; print(os.environ['CUDA_VISIBLE_DEVICES'] == '', 'http_proxy' in os.environ, os.environ['A'])")
    command.run_local([], tmp_path, 60, environ={"CUDA_VISIBLE_DEVICES": "0", "http_proxy": "x", "A": "b"})
    assert (tmp_path / "output.txt").read_text() == "True False b\n"


@pytest.mark.skipif(not ForkServer.is_available(), reason="the fork server needs Linux")
def test_preloaded_launchers_share_one_process_and_fork_their_own_tasks(tmp_path):
    flags = ["--num_workers=1", "--max_steps=3", "--report_secs=0.1"]
    for name in ("first", "second"):
        command.run_local(flags, tmp_path / name, 120, preloaded=True)
        assert json.loads((tmp_path / name / "summary.json").read_text())["global_step"] == 3
    (server,) = command._servers  # of this test, or of an earlier one in this process
    assert "forkserver_main" in pathlib.Path(f"/proc/{server._process.pid}/cmdline").read_text()
    assert not (tmp_path / "second" / "forkserver.txt").exists()
    with pytest.raises(RunError, match="exit code 2\\n--- the end of .*output.txt\\n(.*\\n)*.*no_such"):
        command.run_local(["--model=no_such"], tmp_path / "third", 120, preloaded=True)


def test_the_command_is_the_one_that_a_user_types():
    assert command.local_command(["--num_ps=1"])[1:] == ["-m", "ps_trainer", "local", "--num_ps=1", "--plain"]

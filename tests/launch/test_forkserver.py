from __future__ import annotations

import json
import os
import pathlib
import signal

import pytest

from ps_trainer.cluster.ports import pick_free_ports
from ps_trainer.errors import RunError
from ps_trainer.launch.forkserver import PROGRAM, ForkServer, ForkServerEndedError
from ps_trainer.launch.process import TaskProcess
from tests.launch import fakes

pytestmark = pytest.mark.skipif(not ForkServer.is_available(), reason="the fork server needs Linux")

ROLE = ["task", "--job_name=ps", "--task_index=0"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    log = tmp_path_factory.mktemp("server") / "forkserver.log"
    with ForkServer(os.environ, log, "a-label") as started:
        started.wait_until_ready()
        started.wait_until_ready()  # a server that is ready stays ready
        yield started


@pytest.fixture
def fork(server, tmp_path):
    """Starts a command with its arguments; kills every task that still lives at the end."""
    tasks = []

    def start(*args, env=None, job_name="ps"):
        task = TaskProcess(
            job_name=job_name,
            task_index=len(tasks),
            command=[*PROGRAM, *args],
            log_path=tmp_path / f"{len(tasks)}.log",
            env=env or dict(os.environ),
            spawn=server.popen,
        )
        tasks.append(task)
        task.start()
        return task

    yield start
    for task in tasks:
        task.kill()
        fakes.wait_until(lambda task=task: task.poll() is not None, f"the end of {task.name}")


def ended(task):
    fakes.wait_until(lambda: task.poll() is not None, f"the end of {task.name}")
    return task.exit_code, task.log_path.read_text()


def serving_ps(fork):
    own, other = pick_free_ports(2)
    task = fork(*ROLE, f"--ps_hosts=localhost:{own}", f"--worker_hosts=localhost:{other}")
    fakes.wait_until(lambda: "serving" in task.log_path.read_text(), "a ps that serves")
    return task


def test_a_forked_command_runs_like_a_fresh_one(fork):
    code, output = ended(fork("--version"))
    assert (code, output.split()[0]) == (0, "ps_trainer")


def test_exit_code_and_error_are_the_command_s(fork):
    code, output = ended(fork(*ROLE))
    assert code == 2
    assert output.startswith("error: ")


def test_the_environment_is_that_of_the_request(fork):
    cluster = {"cluster": {"ps": ["localhost:1"], "worker": ["localhost:2"]}, "task": {"type": "shepherd", "index": 0}}
    code, output = ended(fork("task", env={**os.environ, "TF_CONFIG": json.dumps(cluster)}))
    assert (code, "shepherd" in output) == (2, True)
    assert "shepherd" not in ended(fork("task"))[1]


def test_a_task_is_the_caller_s_child_in_a_session_of_its_own(fork):
    task = serving_ps(fork)
    state, parent, group, session = pathlib.Path(f"/proc/{task.pid}/stat").read_text().rpartition(")")[2].split()[:4]
    assert (int(parent), int(group), int(session)) == (os.getpid(), task.pid, task.pid)
    assert state in "RS"
    assert pathlib.Path(f"/proc/{task.pid}/comm").read_text() == "ps-0\n"
    assert b"a-label" in pathlib.Path(f"/proc/{task.pid}/cmdline").read_bytes()
    assert os.readlink(f"/proc/{task.pid}/fd/0") == os.devnull


def test_signals_reach_a_task(fork):
    asked, killed = serving_ps(fork), serving_ps(fork)
    asked.terminate()
    os.kill(killed.pid, signal.SIGKILL)
    assert ended(asked)[0] == 128 + signal.SIGTERM
    assert ended(killed)[0] == -signal.SIGKILL
    assert (asked.outcome(), killed.outcome()) == ("stopped", "killed (SIGKILL)")


def test_only_commands_of_this_package_can_be_forked(server, tmp_path):
    with (tmp_path / "log").open("ab") as log, pytest.raises(ValueError, match="does not start with"):
        server.popen(["/bin/true"], stdout=log, env=os.environ)


def test_a_failed_import_is_reported_with_its_reason(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('this tensorflow is broken')")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with (
        ForkServer(environ, tmp_path / "log", "broken") as broken,
        pytest.raises(RunError, match="(?s)cannot be imported.*this tensorflow is broken"),
    ):
        broken.wait_until_ready()


def test_waiting_ends_when_it_is_cancelled_and_leaves_nothing(tmp_path):
    with ForkServer(os.environ, tmp_path / "log", "cancelled") as cancelled:
        cancelled.wait_until_ready(lambda: True)
        pid = cancelled._process.pid
        assert fakes.is_alive(pid)
    assert not fakes.is_alive(pid)


def test_tasks_outlive_the_server_and_a_dead_server_is_reported(tmp_path, server):
    """It ends the server of this module, so it is the last test."""
    with (tmp_path / "task.log").open("ab") as log:
        task = server.popen([*PROGRAM, "--version"], stdout=log, env=os.environ)
        os.kill(server._process.pid, signal.SIGKILL)
        assert task.wait() == 0
        with pytest.raises(ForkServerEndedError, match="the fork server has ended; see .*forkserver.log"):
            server.popen([*PROGRAM, "--version"], stdout=log, env=os.environ)

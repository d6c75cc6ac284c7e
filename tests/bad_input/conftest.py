"""Runs a command on bad input in this process: it must end with the right code and message before a task starts."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence

import pytest

from ps_trainer.cli import task
from ps_trainer.cluster import ports


class Started(AssertionError):
    """The bad input was not noticed: a task, a server or a process was about to start."""


def _start(*_args, **_kwargs):
    raise Started("bad input was not refused")


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """No cluster in the environment, no log set-up, and every port counts as free."""
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setattr(task, "start_logging", lambda: None)
    monkeypatch.setattr(ports, "check_port_free", lambda address: None)


@pytest.fixture
def without_tensorflow(monkeypatch):
    """Replaces the code that needs TensorFlow, because the command must reject its input before it imports that."""
    module = types.ModuleType("ps_trainer.training.task")
    module.run = _start
    monkeypatch.setitem(sys.modules, "ps_trainer.training.task", module)
    import ps_trainer.runtime

    monkeypatch.setattr(ps_trainer.runtime, "task", module, raising=False)


@pytest.fixture
def without_server(monkeypatch):
    """Lets the task's own code run until it starts its server."""
    from ps_trainer.runtime import environment

    environment.prepare(is_ps=True)
    from ps_trainer.training import task as runtime_task

    monkeypatch.setattr(runtime_task, "create_server", _start)


@pytest.fixture
def refuse(capsys) -> Callable[..., str]:
    """Runs a command, checks that it rejects its input, and returns its message."""

    def run(command: Callable[[Sequence[str]], int], args: Sequence[str], words: str) -> str:
        code = command(["prog", *args])
        captured = capsys.readouterr()
        message = captured.err.strip().splitlines()[-1] if captured.err.strip() else "no message"
        assert code == 2, f"exit code {code}: {message}"
        assert message.startswith("error: ")
        assert words in message, message
        return message

    return run

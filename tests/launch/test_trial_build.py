"""The trial build of a user's model in a child process: what its exit code and its lines lead to."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest

from ps_trainer.config import TrainConfig
from ps_trainer.errors import UsageError
from ps_trainer.launch import trial_build

FLAGS = ("--model=mine:Model",)
OWN_MODEL = TrainConfig(model="mine:Model")


@pytest.fixture
def check(tmp_path):
    """Checks a model in a child that runs the given Python lines in place of the real check."""
    started = []

    def run(lines, config=OWN_MODEL, **kwargs):
        def spawn(command, **popen):
            process = subprocess.Popen([sys.executable, "-S", "-c", lines, *command[1:]], **popen)
            started.append(process)
            return process

        return trial_build.run(config, 2, FLAGS, spawn=spawn, environ=os.environ, folder=tmp_path, **kwargs)

    run.started = started
    return run


def test_the_child_gets_the_command_the_flags_and_no_gpu(check, tmp_path):
    assert check("import os, sys; print(sys.argv[1:], os.environ['CUDA_VISIBLE_DEVICES'] == '')") == []
    expected = ["-m", "ps_trainer", "check_model", "--num_workers=2", *FLAGS]
    assert (tmp_path / "check_model.log").read_text() == f"{expected} True\n"


def test_warnings_are_returned(check):
    assert check("print('noise'); print('warning: use layers.embedding')") == ["use layers.embedding"]


def test_wrong_usage_is_an_error_with_the_childs_words(check):
    with pytest.raises(UsageError, match=r"^model 'mine:Model': build returned None$"):
        check("import sys; print('noise'); print(\"error: model 'mine:Model': build returned None\"); sys.exit(2)")


@pytest.mark.parametrize("end", ["raise ValueError('the model fails')", "sys.exit(1)", "os.abort()"])
def test_any_other_failure_is_left_to_the_tasks(check, end):
    assert check(f"import os, sys; {end}") == []


def test_a_model_of_the_package_needs_no_check(check):
    assert check("raise AssertionError", config=TrainConfig(model="softmax")) == []
    assert not check.started


@pytest.mark.parametrize(
    "own",
    [{"model_option": ("hidden=3",)}, {"hook": ("mine:Hook",)}, {"dataset": "mine:Data"}, {"update": "mine:Rule"}],
)
def test_options_and_any_class_of_the_users_own_are_checked(check, own):
    with pytest.raises(UsageError, match=r"^mine has no class$"):
        check("import sys; print('error: mine has no class'); sys.exit(2)", config=TrainConfig(**own))


@pytest.mark.parametrize("how", ["limit", "cancelled"])
def test_a_check_that_takes_too_long_is_killed(check, how):
    ticks = itertools.count(0, 20.0)
    given = {"time_fn": lambda: float(next(ticks))} if how == "limit" else {"is_cancelled": lambda: True}
    assert check("import time; time.sleep(600)", **given) == []
    (child,) = check.started
    assert child.wait(20) != 0


def test_a_server_that_has_ended_leaves_the_check_to_the_tasks(tmp_path):
    def spawn(command, **popen):
        raise OSError("the fork server has ended")

    assert trial_build.run(OWN_MODEL, 2, FLAGS, spawn=spawn, environ={}, folder=tmp_path) == []

"""Exit codes of every error, and the tree that the module's docstring draws."""

from __future__ import annotations

import re
import signal

import pytest

from ps_trainer import errors
from ps_trainer.errors import Interrupted, PsTrainerError, RunError, UsageError

USAGE = ("UsageError", "ClusterConfigError", "OptionError", "UnknownNameError", "DataError", "CheckpointError")
ARGUMENTS = ("ArgumentError", "ArgumentTypeError")
LOST = ("LostError", "PsLostError", "PeerLostError", "RunReplacedError")
FAILED = ("StalledError", "PeerFailedError", "NanLossError", "SaveError", "TrainingError")
RUN = ("RunError", "StartTimeoutError", *LOST, *FAILED)


@pytest.mark.parametrize("name", [*USAGE, *ARGUMENTS])
def test_wrong_input_exits_with_2(name):
    error = getattr(errors, name)("why")
    assert isinstance(error, UsageError) and isinstance(error, PsTrainerError)
    assert error.exit_code == errors.EXIT_USAGE == 2


@pytest.mark.parametrize("name", RUN)
def test_a_failed_job_exits_with_1(name):
    error = getattr(errors, name)("why")
    assert isinstance(error, RunError) and isinstance(error, PsTrainerError)
    assert error.exit_code == errors.EXIT_FAILED == 1


@pytest.mark.parametrize("name", LOST)
def test_a_lost_task_may_come_back(name):
    assert issubclass(getattr(errors, name), errors.LostError)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 128 + 2), (signal.SIGTERM, 128 + 15)])
def test_a_signal_exits_with_128_and_its_number_and_is_named(signum, code):
    error = Interrupted(signum)
    assert error.exit_code == code
    assert str(error) == f"ended by {signum.name}"


def test_a_signal_is_not_an_error_of_the_job():
    assert not issubclass(Interrupted, PsTrainerError)


def test_no_error_is_missing_here_or_in_the_docstrings_tree():
    defined = {
        name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, PsTrainerError)
    }
    assert defined == {"PsTrainerError", *USAGE, *ARGUMENTS, *RUN}
    assert defined == set(re.findall(r"\w+Error", errors.__doc__)) - {"ValueError", "TypeError"}


def test_wrong_arguments_are_the_errors_that_python_raises_for_them():
    assert issubclass(errors.ArgumentError, ValueError)
    assert issubclass(errors.ArgumentTypeError, TypeError)


def test_a_failed_training_names_task_cause_and_exit_code():
    error = errors.TrainingError("worker-1 failed", exit_code=130, task="worker-1", cause="Interrupted")
    assert (error.exit_code, error.task, error.cause) == (130, "worker-1", "Interrupted")

"""The errors that `ps_trainer` raises for its users, and the exit code of each.

    PsTrainerError
    ├── UsageError             exit 2: the input is wrong; nothing was started, nothing is lost
    │   ├── ClusterConfigError   flags, TF_CONFIG, cluster file, addresses
    │   ├── OptionError          a component's options, or a combination of components
    │   ├── UnknownNameError     a model, dataset, update rule … that is not registered
    │   ├── DataError            a data file that is missing, broken or out of range
    │   ├── CheckpointError      a checkpoint directory that cannot be continued from
    │   ├── ArgumentError        an argument of the Python API has a wrong value; also a ValueError
    │   └── ArgumentTypeError    an argument of the Python API is unknown or of a wrong type; also a TypeError
    └── RunError               exit 1: the input was right, and the job failed while it ran
        ├── StartTimeoutError    a task did not appear before the deadline
        ├── LostError            a part of the job is lost, and may return within --recover_timeout_secs
        │   ├── PsLostError        a parameter server stopped answering, or lost its state
        │   ├── PeerLostError      a worker is lost that every step needs
        │   └── RunReplacedError   the chief has replaced the run by a new one
        ├── StalledError         no step completed before the deadline
        ├── PeerFailedError      another task of the job failed or was interrupted
        ├── NanLossError         the loss is NaN or infinite
        ├── SaveError            a checkpoint, or a file made from one, could not be written
        └── TrainingError        a run that the Python API started has failed; names the task and its error

A task that a signal ends raises `Interrupted` (exit 128 + signal: 130 for Ctrl-C, 143 for SIGTERM).
That is not an error of the job.
"""

from __future__ import annotations

import difflib
import signal
from collections.abc import Iterable

from ps_trainer import shadowing

# Here, because every part of the package imports this module.
shadowing.refuse()

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2


class PsTrainerError(Exception):
    """Base of every error that this package raises for a user to read."""

    exit_code = EXIT_FAILED


class UsageError(PsTrainerError):
    """The input is wrong; raised before anything is started."""

    exit_code = EXIT_USAGE


class ClusterConfigError(UsageError):
    """The cluster description (flags, TF_CONFIG, file) is wrong."""


class OptionError(UsageError):
    """An option of a component is wrong, or components cannot be combined."""


class UnknownNameError(UsageError):
    """A name that no registry knows."""


class DataError(UsageError):
    """A data file is missing, broken, or holds values out of range."""


class CheckpointError(UsageError):
    """A checkpoint directory cannot be continued from."""


class ArgumentError(UsageError, ValueError):
    """An argument of the Python API has a wrong value, or arguments cannot be combined."""


class ArgumentTypeError(UsageError, TypeError):
    """An argument of the Python API is unknown, or of a wrong type."""


class RunError(PsTrainerError):
    """The input was right, and the job failed while it ran."""


class StartTimeoutError(RunError):
    """A task did not appear before `--start_timeout_secs`."""


class LostError(RunError):
    """A part of the job is lost; the task that notices waits up to `--recover_timeout_secs` for its return."""


class PsLostError(LostError):
    """A parameter server stopped answering, or came back without its state."""


class PeerLostError(LostError):
    """A worker is lost that every step needs."""


class RunReplacedError(LostError):
    """The chief has replaced the run by a new one, which this worker must join."""


class StalledError(RunError):
    """No step completed for `--stall_timeout_secs`."""


class PeerFailedError(RunError):
    """Another task of the job failed or was interrupted."""


class NanLossError(RunError):
    """The loss became NaN or infinite."""


class SaveError(RunError):
    """A checkpoint, or a file made from one, could not be written; earlier files are unchanged."""


class TrainingError(RunError):
    """A run that the Python API started has failed, or was stopped.

    Args:
        message: The failure, with the task's own reason.
        exit_code: Exit code that the failed task would have on the command line: 1, 2, or 128 + signal.
        task: Name of the task that failed first, "worker-1"; empty if it is unknown.
        cause: Name of the class of its error, "NanLossError"; empty if it is unknown.
    """

    def __init__(self, message: str, *, exit_code: int = EXIT_FAILED, task: str = "", cause: str = ""):
        super().__init__(message)
        self.exit_code = exit_code
        self.task = task
        self.cause = cause


class Interrupted(Exception):
    """A signal asked this task to end.

    Args:
        signum: Number of the signal.
    """

    def __init__(self, signum: int):
        super().__init__(f"ended by {signal.Signals(signum).name}")
        self.exit_code = 128 + signum


def did_you_mean(name: str, known: Iterable[str], dashes: str = "") -> str:
    """Returns the words "did you mean cnn? " for messages about an unknown name; empty if no known name is similar."""
    spelled = {one.lower(): one for one in known}
    nearest = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=0.5)
    return f"did you mean {dashes}{spelled[nearest[0]]}? " if nearest else ""


def list_names(names: Iterable[str], limit: int = 8) -> str:
    """Lists the first `limit` names for messages, separated by commas, and the number of the others."""
    names = list(names)
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")

"""The errors a user of `ps_trainer` can meet, and the exit code of each.

    PsTrainerError
    ├── UsageError             exit 2: the input is wrong; nothing was started, nothing is lost
    │   ├── ClusterConfigError   flags, TF_CONFIG, cluster file, addresses
    │   ├── OptionError          a component's options, or a combination of components
    │   ├── UnknownNameError     a model, dataset, update rule … that is not registered
    │   ├── DataError            a data file that is missing, broken or out of range
    │   └── CheckpointError      a checkpoint directory that cannot be continued from
    └── RunError               exit 1: a job that was right to start, and failed
        ├── StartTimeoutError    a task did not appear before the deadline
        ├── LostError            a part of the job is gone, and may come back within --recover_timeout_secs
        │   ├── PsLostError        a parameter server stopped answering, or lost its state
        │   ├── PeerLostError      a worker is gone without which no step can be made
        │   └── RunReplacedError   the chief has begun the run anew
        ├── StalledError         no step completed before the deadline
        ├── PeerFailedError      another task of the job failed or was interrupted
        ├── NanLossError         the loss is not a number any more
        └── SaveError            a checkpoint, or what is made of one, could not be written

A task that a signal ends raises `Interrupted` (exit 128 + signal: 130 for Ctrl-C, 143 for SIGTERM),
which is no error of the job.
"""

from __future__ import annotations

import difflib
import signal
from collections.abc import Iterable

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
    """An option of a component is wrong, or components do not go together."""


class UnknownNameError(UsageError):
    """A name that no registry knows."""


class DataError(UsageError):
    """A data file is missing, broken, or holds values out of range."""


class CheckpointError(UsageError):
    """A checkpoint directory cannot be continued from."""


class RunError(PsTrainerError):
    """A job that was right to start failed while it ran."""


class StartTimeoutError(RunError):
    """A task did not appear before `--start_timeout_secs`."""


class LostError(RunError):
    """A part of the job is gone that may come back: a task that meets it waits `--recover_timeout_secs` for that."""


class PsLostError(LostError):
    """A parameter server stopped answering, or came back without its state."""


class PeerLostError(LostError):
    """A worker is gone without which no step can be made."""


class RunReplacedError(LostError):
    """The chief has begun the run anew; this worker is to join that one."""


class StalledError(RunError):
    """No step completed for `--stall_timeout_secs`."""


class PeerFailedError(RunError):
    """Another task of the job failed or was interrupted."""


class NanLossError(RunError):
    """The loss became NaN or infinite."""


class SaveError(RunError):
    """A checkpoint, or what is made of one, could not be written; what was there before is untouched."""


class Interrupted(Exception):
    """A signal asked this task to end.

    Args:
        signum: the signal's number.
    """

    def __init__(self, signum: int):
        super().__init__(f"ended by {signal.Signals(signum).name}")
        self.exit_code = 128 + signum


def did_you_mean(name: str, known: Iterable[str], dashes: str = "") -> str:
    """The words "did you mean cnn? " for messages about an unknown name; empty where none of `known` is like it."""
    nearest = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"did you mean {dashes}{nearest[0]}? " if nearest else ""

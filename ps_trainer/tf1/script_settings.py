"""The deadlines of a script's job: from `configure`, else from the environment, else ps_trainer's defaults.

A script has no flags of ps_trainer's. So each setting has an environment variable, PS_TRAINER_START_TIMEOUT_SECS for
`start_timeout_secs`, and messages name that variable.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from typing import Any

from ps_trainer import options
from ps_trainer.config import TrainConfig
from ps_trainer.errors import OptionError, PsTrainerError, did_you_mean

NAMES = (
    "start_timeout_secs",
    "join_wait_secs",
    "stall_timeout_secs",
    "heartbeat_timeout_secs",
    "watch_secs",
    "recover_timeout_secs",
    "max_failed_saves",
    "isolation",
    "intra_op_threads",
    "inter_op_threads",
)
"""Settings of `TrainConfig` that a script can change."""

_PREFIX = "PS_TRAINER_"
_given: dict[str, Any] = {}


def configure(**settings: Any) -> None:
    """Sets deadlines for the jobs that this process begins from now on.

    Args:
        settings: Values of settings in `NAMES`, such as `start_timeout_secs=60`. `docs/howto/migrate-tf1.md` lists them
            with their defaults.

    Raises:
        OptionError: A name is unknown, or a value is out of range.
    """
    for name in settings:
        if name not in NAMES:
            raise OptionError(f"{name}: no setting; {did_you_mean(name, NAMES)}There are {', '.join(NAMES)}")
    _check_fields(settings)
    _given.update(settings)


def current(environ: Mapping[str, str] = os.environ, **changes: Any) -> TrainConfig:
    """Returns the settings of a job that begins now.

    Args:
        environ: Environment of the process.
        changes: Fields of `TrainConfig` that the script itself decides.

    Raises:
        OptionError: An environment variable is unknown, or its value is out of range.
    """
    return _check_fields({**_from_environment(environ), **_given, **changes})


def rephrase(text: str) -> str:
    """Returns a message with names that the owner of a script can set, in place of ps_trainer's flags."""
    for flag, words in _OTHER_WORDS.items():
        text = re.sub(rf"{flag}\b", words, text)
    for name in NAMES:
        text = text.replace(f"--{name}", _variable(name))
    return text


def rephrase_error(error: PsTrainerError) -> PsTrainerError:
    """Returns the same error with `rephrase`."""
    error.args = (rephrase(str(error)), *error.args[1:])
    return error


_OTHER_WORDS = {
    "--isolation": "train.configure(isolation=…)",
    "--(ps|worker|chief)_hosts": "the ClusterSpec",
    "--logdir": "checkpoint_dir",
    "--update_option": "the SyncReplicasOptimizer",
    "--keep_checkpoints": "the Saver's max_to_keep",
    "update rule ": "",
}


def _variable(name: str) -> str:
    return _PREFIX + name.upper()


def _check_fields(fields: Mapping[str, Any]) -> TrainConfig:
    config = TrainConfig(**fields)
    try:
        options.check(config)
    except OptionError as error:
        raise rephrase_error(error) from error
    return config


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    defaults = {field.name: field.default for field in dataclasses.fields(TrainConfig)}
    known = {_variable(name): name for name in NAMES}
    found: dict[str, Any] = {}
    for variable, text in environ.items():
        if variable in known:
            found[known[variable]] = _parse(variable, text, defaults[known[variable]])
        elif variable.startswith(_PREFIX) and variable.endswith(("_SECS", "_SAVES", "_THREADS")):
            raise OptionError(
                f"{variable} is not a setting of ps_trainer; {did_you_mean(variable, known)}"
                f"There are {', '.join(known)}"
            )
    return found


def _parse(variable: str, text: str, default: Any) -> Any:
    if default is None:
        return text
    try:
        return type(default)(text)
    except ValueError:
        kind = "a whole number" if isinstance(default, int) else "a number"
        raise OptionError(f"{variable}={text!r} is not {kind}") from None

"""Finds the checkpoints of a run and its recorded settings, for the commands that use a trained model."""

from __future__ import annotations

import dataclasses
import difflib
import pathlib
from collections.abc import Container
from typing import Any

from ps_trainer import component_tables, recorded_config
from ps_trainer.cli.command_wrapper import importing_tensorflow, start_logging
from ps_trainer.config import TrainConfig
from ps_trainer.errors import CheckpointError, OptionError, UnknownNameError
from ps_trainer.options import option
from ps_trainer.registry import Registry

# For model and dataset: the registered names, the field with the name, and the fields that belong to that name.
_RECORDED = (
    (component_tables.MODELS, "model", ("model_option",)),
    (component_tables.DATASETS, "dataset", ("dataset_option", "data_dir")),
)

_CHECKPOINTS = "checkpoints"

# The flags that matter to a command that uses a trained model.
COMMON_FLAGS = (
    "logdir",
    "checkpoint_dir",
    "model",
    "model_option",
    "dataset",
    "dataset_option",
    "data_dir",
)
OWN_TEXTS = {
    "logdir": "folder of the run, with its checkpoints and config.json",
    "model": "model of the checkpoint; default: from config.json",
    "model_option": "option of the model, as key=value; default: from config.json",
    "dataset": "data to read; default: from config.json",
    "dataset_option": "option of the dataset, as key=value; default: from config.json",
    "data_dir": "folder with the files of the dataset; default: from config.json",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointFlags:
    """Location of the checkpoints."""

    checkpoint_dir: str | None = option(None, "folder of the checkpoints; none = <logdir>/checkpoints")


def find(flags: CheckpointFlags, config: TrainConfig, given: Container[str]) -> tuple[TrainConfig, pathlib.Path]:
    """Returns the configuration, completed from the run's `config.json`, and the folder of the checkpoints.

    The command line overrides the model, the dataset and their options in `config.json`. If that file names a class as
    `package.module:Class`, the command line must name the same class. An import runs code, and somebody else may have
    written the folder.

    Args:
        flags: Location of the checkpoints.
        config: Settings from the command line.
        given: Names of the flags on the command line.

    Raises:
        CheckpointError: No folder is given, or it holds no checkpoints.
        OptionError: A value is not allowed, or the run was trained without the preset that is given.
        UnknownNameError: A name is unknown, or the command line does not confirm a recorded class.
    """
    path = find_checkpoints(config.logdir, flags.checkpoint_dir)
    # Checkpoints lie in <logdir>/checkpoints, so the config.json of their run is in the folder above.
    recorded = recorded_config.read(path.parent) or {}
    config = _fill_in_recorded(config, given, recorded, path.parent / "config.json")
    config.check()
    _check_preset(config, given, recorded)
    return config, path


def find_checkpoints(logdir: str | None, checkpoint_dir: str | None) -> pathlib.Path:
    """Returns the folder of the checkpoints.

    Args:
        logdir: Folder of the run, with the folder `checkpoints`.
        checkpoint_dir: Folder of the checkpoints, in place of that one.

    Raises:
        CheckpointError: No folder is given, or it holds no checkpoints; the message names a folder nearby that does.
    """
    from ps_trainer.checkpoints import folder_listing  # here, so that help appears at once

    given = checkpoint_dir or logdir
    if not given:
        raise CheckpointError("no checkpoints: give --logdir of the run, or --checkpoint_dir")
    path = pathlib.Path(given) if checkpoint_dir else pathlib.Path(given) / _CHECKPOINTS
    if path.is_dir() and folder_listing.read_folder(path).remains:
        return path
    fault = "holds no checkpoint" if path.is_dir() else "is not a folder"
    near = _find_near(pathlib.Path(given))
    example = f", such as {near}" if near else ""
    raise CheckpointError(f"{path} {fault}; give --logdir or --checkpoint_dir of a run that has saved{example}")


def _find_near(given: pathlib.Path) -> str:
    """Returns the flag for a folder with checkpoints near the given path; empty if there is none."""
    if _has_checkpoints(given / _CHECKPOINTS):
        return f"--logdir={given}"
    for folder in (given, given.parent):  # it may be the prefix of a checkpoint
        if _has_checkpoints(folder):
            return f"--logdir={folder.parent}" if folder.name == _CHECKPOINTS else f"--checkpoint_dir={folder}"
    folder = given if given.is_dir() else given.parent
    try:
        runs = {path.name: path for path in sorted(folder.iterdir()) if _has_checkpoints(path / _CHECKPOINTS)}
    except OSError:
        return ""
    names = list(runs) if folder is given else difflib.get_close_matches(given.name, runs, 1)
    return f"--logdir={runs[names[-1]]}" if names else ""


def _has_checkpoints(path: pathlib.Path) -> bool:
    from ps_trainer.checkpoints import folder_listing

    try:
        return bool(folder_listing.read_folder(path).steps)
    except CheckpointError:
        return False


def start() -> None:
    """Starts logging and sets the environment for TensorFlow; call before anything imports TensorFlow."""
    start_logging()

    from ps_trainer.runtime import environment

    environment.prepare(is_ps=False)
    with importing_tensorflow():
        import tensorflow.compat.v1 as tf

        tf.config.list_physical_devices("GPU")  # the first look for GPUs logs an error where there are none


def _fill_in_recorded(
    config: TrainConfig, given: Container[str], recorded: dict[str, Any], source: pathlib.Path
) -> TrainConfig:
    values: dict[str, Any] = {}
    for registered, head, fields in _RECORDED:
        if head in given and getattr(config, head) != recorded.get(head):
            continue  # the recorded options belong to the recorded name
        if head in recorded and head not in given:
            _check_is_registered(registered, str(recorded[head]), source)
        for name in (head, *fields):
            if name in recorded and name not in given:
                values[name] = recorded[name] if not name.endswith("_option") else tuple(recorded[name])
    return dataclasses.replace(config, **values)


def _check_preset(config: TrainConfig, given: Container[str], recorded: dict[str, Any]) -> None:
    """Raises OptionError for a preset other than the run's, whose options the checkpoint's model need not have."""
    preset = recorded.get("preset") if recorded.get("model") == config.model else None
    if "preset" in given and config.preset not in (None, preset):
        known = f"config.json records the preset {preset}" if preset else "config.json records no preset of this model"
        raise OptionError(
            f"--preset={config.preset}: a preset applies to a training, and {known}; omit the flag, and give options of"
            f" the model that config.json lacks by --model_option (`ps_trainer list {config.model}` prints presets)"
        )


def _check_is_registered(registered: Registry, name: str, source: pathlib.Path) -> None:
    """Raises UnknownNameError unless a recorded name is registered in this package."""
    registered.check(name)
    if name not in registered.names():
        raise UnknownNameError(
            f"{source} names the {registered.kind} {name}, which is not part of this package; using it runs its code"
            f" here. If you trust that code, give --{registered.flag}={name}"
        )

"""Finds the checkpoints of a run and its recorded settings, for the commands that use a trained model."""

from __future__ import annotations

import dataclasses
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
        CheckpointError: No folder is given, or the path is not a folder.
        OptionError: A value is not allowed, or the run was trained without the preset that is given.
        UnknownNameError: A name is unknown, or the command line does not confirm a recorded class.
    """
    path = pathlib.Path(flags.checkpoint_dir) if flags.checkpoint_dir else config.checkpoint_dir
    if path is None:
        raise CheckpointError("no checkpoints: give --logdir of the run, or --checkpoint_dir")
    if not path.is_dir():
        raise CheckpointError(f"{path} is not a folder; give --logdir or --checkpoint_dir of a run that has saved")
    # Checkpoints lie in <logdir>/checkpoints, so the config.json of their run is in the folder above.
    recorded = recorded_config.read(path.parent) or {}
    config = _fill_in_recorded(config, given, recorded, path.parent / "config.json")
    config.check()
    _check_preset(config, given, recorded)
    return config, path


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

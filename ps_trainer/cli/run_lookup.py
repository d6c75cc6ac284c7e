"""What the commands that use a trained model share: where its checkpoints are, and what it was trained as."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Container
from typing import Any

from ps_trainer import config as config_lib
from ps_trainer import registry
from ps_trainer.cli.command_wrapper import quiet_tensorflow, start_logging
from ps_trainer.component_registry import Registry
from ps_trainer.config import TrainConfig
from ps_trainer.errors import CheckpointError, UnknownNameError
from ps_trainer.options import option

# What names a model, and data: the names that are registered, a field, and those that belong to its value.
_RECORDED = (
    (registry.MODELS, "model", ("model_option",)),
    (registry.DATASETS, "dataset", ("dataset_option", "data_dir")),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointFlags:
    """Which checkpoints."""

    checkpoint_dir: str | None = option(None, "folder of the checkpoints; none = <logdir>/checkpoints")


def find(flags: CheckpointFlags, config: TrainConfig, given: Container[str]) -> tuple[TrainConfig, pathlib.Path]:
    """The configuration, completed by what the run has recorded, and the folder of the checkpoints.

    Model, dataset and their options that are not given are those in the `config.json` of the run, where there is one.
    A class that it names by `package.module:Class` counts only where the command line gives the same: to import it
    runs code, and the folder may be somebody else's.

    Args:
        flags: where.
        config: as the command line says.
        given: names of the flags that stand there.

    Raises:
        CheckpointError: no folder is given, or it is none.
        OptionError: a value that no run could have.
        UnknownNameError: likewise; or the run has recorded a class that is not registered, and it is not given.
    """
    path = pathlib.Path(flags.checkpoint_dir) if flags.checkpoint_dir else config.checkpoint_dir
    if path is None:
        raise CheckpointError("no checkpoints: give --logdir of the run, or --checkpoint_dir")
    if not path.is_dir():
        raise CheckpointError(f"{path} is not a folder; give --logdir or --checkpoint_dir of a run that has saved")
    config = _completed(config, given, config_lib.recorded(path.parent) or {}, path.parent / "config.json")
    config.check()
    return config, path


def start() -> None:
    """Begins to log, and prepares for TensorFlow, which is not imported before."""
    start_logging()
    quiet_tensorflow()

    from ps_trainer.runtime import environment

    environment.prepare(is_ps=False)


def _completed(
    config: TrainConfig, given: Container[str], recorded: dict[str, Any], source: pathlib.Path
) -> TrainConfig:
    values: dict[str, Any] = {}
    for registered, head, fields in _RECORDED:
        if head in given and getattr(config, head) != recorded.get(head):
            continue  # another one has other options
        if head in recorded and head not in given:
            _check_is_registered(registered, str(recorded[head]), source)
        for name in (head, *fields):
            if name in recorded and name not in given:
                values[name] = recorded[name] if not name.endswith("_option") else tuple(recorded[name])
    return dataclasses.replace(config, **values)


def _check_is_registered(registered: Registry, name: str, source: pathlib.Path) -> None:
    """Raises unless a recorded name is one of this package; UnknownNameError for one that can be none at all."""
    registered.check(name)
    if name not in registered.names():
        raise UnknownNameError(
            f"{source} names the {registered.kind} {name}, which is not part of this package; to use it runs its code"
            f" here. If you trust it, give --{registered.flag}={name}"
        )

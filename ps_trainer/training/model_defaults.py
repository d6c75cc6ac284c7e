"""Defaults that a model's class declares (optimizer, learning rate, schedule, batch size), and its presets.

The defaults apply to a run whose user gives no flag about them:

* `--batch_size`, or any flag about the optimizer, takes its place. With a flag about the optimizer, no default of the
  model applies at all. So a command that names an optimizer or a rate trains as it always did.
* A folder with checkpoints keeps what its last run has recorded.
* An update rule or gradient transform that rejects the optimizer, such as `easgd`, gets the general default.

A preset holds the settings of a publication, with options of the model and a length. `--preset` asks for it, so the
defaults do not apply, and only a flag for the same setting comes first.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Collection
from typing import Any, NamedTuple

from ps_trainer import component_tables, recorded_config
from ps_trainer.checkpoints import reader
from ps_trainer.config import TrainConfig
from ps_trainer.errors import OptionError, UnknownNameError
from ps_trainer.gradients.transform_list import load as load_transforms
from ps_trainer.options import format_value
from ps_trainer.registry import split_inline
from ps_trainer.training import run_optimizers

_OPTIMIZATION = ("optimizer", "optimizer_option", "optimizer_for", "learning_rate", "schedule", "schedule_option")
_NAMES = (*_OPTIMIZATION, "batch_size")
# A setting -> settings that belong to its value: options of one optimizer mean nothing to another one.
_BELONGING = {"optimizer": ("optimizer_option", "optimizer_for"), "schedule": ("schedule_option",)}


class ConfigWithDefaults(NamedTuple):
    """A configuration with the defaults of its model.

    Attributes:
        config: The configuration.
        note: Sentence for the user about what was filled in; empty if nothing was.
    """

    config: TrainConfig
    note: str


def fill_in_defaults(
    config: TrainConfig,
    given: Collection[str],
    num_workers: int,
    *,
    model: Any = None,
    checkpoints: pathlib.Path | None = None,
) -> ConfigWithDefaults:
    """Fills in the defaults of the model where the user gave no flag.

    Args:
        config: Configuration of the run.
        given: Names of the settings that the user gave.
        num_workers: Number of workers in the cluster.
        model: Object in place of the model that `config` names.
        checkpoints: Folder of the checkpoints from which the run continues; None = the folder of `config`.

    Raises:
        UsageError: An unknown name, or a wrong option.
    """
    folder = checkpoints or config.checkpoint_dir
    run = folder.parent if folder is not None and reader.list_prefixes(folder) else None
    if config.preset is None and run is not None and model is None:
        config = dataclasses.replace(config, preset=_recorded_preset(run, config))
    if config.preset is not None:
        return _with_preset(config, given, run, is_object=model is not None)
    defaults = getattr(component_tables.MODELS.load(config.model) if model is None else model, "defaults", None)
    if defaults is None:
        config.check()
        return ConfigWithDefaults(config, "")
    values = settings_of(defaults)
    by_user = [name for name in _OPTIMIZATION if name in given]
    if by_user:
        config.check()
        unused = (
            f"the defaults of {config.model} are not used, as --{by_user[0]} is given: {' '.join(as_flags(values))}"
        )
        return ConfigWithDefaults(config, "" if "optimizer" in given else unused)
    source = f"defaults of {config.model}"
    if run is not None:
        values, source = _recorded_settings(run, config), "as in the last run in this folder"
    values = {name: value for name, value in values.items() if name not in given}
    if not _is_accepted(dataclasses.replace(config, **values), num_workers):
        values = {name: value for name, value in values.items() if name not in _OPTIMIZATION}
    config = dataclasses.replace(config, **values)
    config.check()
    return ConfigWithDefaults(config, f"{source}: {' '.join(as_flags(values))}" if values else "")


def settings_of(defaults: Any) -> dict[str, Any]:
    """Returns the settings by name that a `layers.TrainingSettings` gives."""
    return {name: value for name in _NAMES if (value := getattr(defaults, name)) not in (None, ())}


def text_of(model: type) -> str:
    """Returns the settings of a run without flags about them, as flags; empty for a class that is not a model."""
    if not all(hasattr(model, method) for method in component_tables.MODELS.methods):
        return ""
    general = TrainConfig()
    values = {name: getattr(general, name) for name in ("optimizer", "learning_rate", "batch_size")}
    defaults = getattr(model, "defaults", None)
    own = settings_of(defaults) if defaults is not None else {}
    return " ".join(as_flags(dict(sorted((values | own).items(), key=lambda item: _NAMES.index(item[0])))))


def preset_lines(model: type) -> list[str]:
    """Returns a line about each preset of a model: name and source, flags, and differences from the source.

    For a model of this package without one, the line says why.
    """
    lines = [
        f"`--preset={name}`: {preset.source}. It sets `{' '.join(as_flags(_values_of(preset)))}`."
        + (f" Differences: {preset.differences}." if preset.differences else "")
        for name, preset in getattr(model, "presets", {}).items()
    ]
    reason = getattr(model, "no_preset", "")
    return [*lines, f"No `--preset=paper`: {reason}."] if reason else lines


def as_flags(values: dict[str, Any]) -> list[str]:
    """Returns the settings as a user types them."""
    return [
        f"--{name}={format_value(one)}"
        for name, value in values.items()
        for one in (value if isinstance(value, tuple) else (value,))
    ]


def _with_preset(
    config: TrainConfig, given: Collection[str], run: pathlib.Path | None, *, is_object: bool
) -> ConfigWithDefaults:
    """Fills in a preset, or for what the last run in this folder has recorded, that."""
    if is_object:
        raise OptionError(f"preset={config.preset} sets options of the model; give the model by its name")
    presets = getattr(component_tables.MODELS.load(config.model), "presets", {})
    asked = f"--preset={config.preset}: {config.model}"
    if not presets:
        models = component_tables.MODELS
        others = ", ".join(name for name in models.names() if getattr(models.load(name), "presets", {}))
        raise UnknownNameError(f"{asked} has no presets; omit the flag; models with presets: {others}")
    if config.preset not in presets:
        raise UnknownNameError(f"{asked} has no such preset; it has {', '.join(presets)}")
    preset = presets[config.preset]
    values = _without_replaced(_values_of(preset), config, given)
    if "model_option" in given:
        keys = {text.partition("=")[0] for text in config.model_option}
        of_preset = tuple(text for text in preset.model_option if text.partition("=")[0] not in keys)
        values["model_option"] = (*of_preset, *config.model_option)
    if run is not None:
        values |= _without_replaced(_recorded_settings(run, config), config, given)
    config = dataclasses.replace(config, **values)
    config.check()
    differences = f" (differences: {preset.differences})" if preset.differences else ""
    note = f"preset {config.preset} of {config.model}, {preset.source}{differences}: {' '.join(as_flags(values))}"
    return ConfigWithDefaults(config, note)


def _values_of(preset: Any) -> dict[str, Any]:
    """Returns the settings by name that a `layers.Preset` gives."""
    values = {"model_option": preset.model_option, **settings_of(preset), "max_steps": preset.max_steps}
    values["gradient_transform"] = preset.gradient_transform
    return {name: value for name, value in values.items() if value not in (None, ())}


def _without_replaced(values: dict[str, Any], config: TrainConfig, given: Collection[str]) -> dict[str, Any]:
    """Returns values of settings that the user did not give, without options of another optimizer or schedule."""
    replaced = {name for name in _BELONGING if name in given and values.get(name) != getattr(config, name)}
    foreign = {option for name in replaced for option in _BELONGING[name]}
    return {name: value for name, value in values.items() if name not in {*given, *foreign}}


def _recorded_preset(run: pathlib.Path, config: TrainConfig) -> str | None:
    """Returns the preset of a folder's last run; None if it had another model, or no preset that the model knows."""
    record = recorded_config.read(run) or {}
    if record.get("model") != config.model or config.model not in component_tables.MODELS.names():
        return None
    preset: str | None = record.get("preset")
    return preset if preset in getattr(component_tables.MODELS.load(config.model), "presets", {}) else None


def _recorded_settings(run: pathlib.Path, config: TrainConfig) -> dict[str, Any]:
    """Returns the settings of a folder's last run; none if it had another model, or a component that is not registered.

    Somebody else may have written the folder, and a class that it names would be imported.
    """
    record = recorded_config.read(run) or {}
    found = {name: _like(getattr(config, name), record[name]) for name in _NAMES if name in record}
    if record.get("model") != config.model or None in found.values():
        return {}
    assigned = [split_inline(text.partition("=")[2])[0] for text in found.get("optimizer_for", ())]
    optimizers = {*assigned, found.get("optimizer", config.optimizer)}
    is_known = optimizers <= {*component_tables.OPTIMIZERS.names()}
    return found if is_known and found.get("schedule", config.schedule) in component_tables.SCHEDULES.names() else {}


def _like(default: Any, value: Any) -> Any:
    """Returns a value out of JSON in the type of a setting; None if it is of another type."""
    if isinstance(default, tuple):
        return tuple(value) if isinstance(value, list) and all(isinstance(one, str) for one in value) else None
    return value if type(value) is type(default) else None


def _is_accepted(config: TrainConfig, num_workers: int) -> bool:
    """Returns whether the update rule and the gradient transforms accept the optimizers."""
    rule = component_tables.UPDATES.create(config.update, config.update_option)
    transforms = load_transforms(config.gradient_transform)
    try:
        run_optimizers.check(rule, run_optimizers.create(config), transforms, config, num_workers)
    except OptionError:
        return False  # `components.load` raises the error again if it is not about the optimizer
    return True

"""Sizes and scales of a model, such as `vocab_size` and `rating_scale`, that the data give unless the user does."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from ps_trainer import component_tables, recorded_config
from ps_trainer.checkpoints import reader
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline import dataset_record, recorded_words
from ps_trainer.errors import OptionError
from ps_trainer.training import data_changes

UNBOUNDED = dict.fromkeys(dataset_record.SIZES, 2**31 - 1)
"""Sizes to check other options with as long as the data are not known."""

# What each size counts, for messages.
_SIZE_UNITS = {
    "num_classes": "classes",
    "num_features": "ids of features",
    "num_buckets": "ids in a column",
    "num_users": "users",
    "num_items": "items",
    "window": "words on each side",
}


_WORD_SIZES = ("vocab_size", "source_vocab_size", "target_vocab_size", "num_features", "num_buckets")


def fill_in_sizes(config: TrainConfig, sizes: Mapping[str, float], run: pathlib.Path | None = None) -> TrainConfig:
    """Returns a configuration with those sizes that its model has as options and that it does not give.

    A run that has checkpoints keeps its sizes, even if the data now have others. Runs of versions that recorded no size
    have the default of the model's option.

    Args:
        config: Configuration of the run.
        sizes: Sizes and scales of the data by name.
        run: Folder of the trained run whose model is wanted; None = `logdir`, if that has checkpoints.
    """
    options_type = getattr(component_tables.MODELS.load(config.model), "Options", None)
    if not dataclasses.is_dataclass(options_type):
        return config
    given = {text.partition("=")[0] for text in config.model_option}
    defaults = {field.name: field.default for field in dataclasses.fields(options_type)}
    wanted: dict[str, Any] = {name: size for name, size in sizes.items() if name in defaults.keys() - given}
    of_run = _options_of(config, run) if wanted else None
    if of_run is not None:
        wanted = {name: of_run.get(name, defaults[name]) for name in wanted}
    return dataclasses.replace(
        config, model_option=(*config.model_option, *(f"{name}={size}" for name, size in wanted.items()))
    )


def _options_of(config: TrainConfig, run: pathlib.Path | None) -> dict[str, Any] | None:
    """Returns the options of the model in a run's checkpoints; None if there are none, or if they are unknown."""
    if run is None and config.checkpoint_dir is not None and reader.list_prefixes(config.checkpoint_dir):
        run = config.checkpoint_dir.parent
    record = recorded_config.read(run) if run is not None else None
    if record is None or record.get("model") != config.model:
        return None
    return dict(text.partition("=")[::2] for text in record.get("model_option", ()))


def check(model: Any, dataset: Any, config: TrainConfig) -> None:
    """Checks that the model can tell all classes, ids, users and items of the dataset apart.

    Raises:
        CheckpointError: It cannot, and the data differ from those with which the run in the logdir began.
        OptionError: It cannot.
    """
    for size, of_data in dataset_record.sizes_of(dataset).items():
        of_model = getattr(getattr(model, "options", None), size, None)
        if of_model is not None and of_model < of_data:
            data_changes.check(config, dataset)  # another column or word is the cause, the size only follows
            is_of_run = size in _WORD_SIZES and _options_of(config, None) is not None
            keep = recorded_words.flag_to_keep(dataset, config.logdir) if is_of_run else ""
            raise OptionError(
                f"dataset {config.dataset!r} has {of_data} {_SIZE_UNITS.get(size, 'ids')}, model {config.model!r} only"
                f" {of_model}; {keep}set --model_option {size}={of_data}, or leave it out, and give a"
                " --logdir without checkpoints of the smaller model"
            )
